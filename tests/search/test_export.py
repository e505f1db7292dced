import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

import proxysynth as ps
from proxysynth.models.backbones import make_embedder
from proxysynth.search.export import NotTheSame, compare, describe, export
from proxysynth.training.inference import Trained
from proxysynth.training.run import Run
from proxysynth.training.run_folder import Recorded

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

EXAMPLE = Path(__file__).parents[2] / "examples" / "load_exported.py"


@pytest.fixture(scope="module")
def onnx_file(run_folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("exported") / "model.onnx"
    made = export(ps.load(run_folder), "onnx", out)
    assert made.file == out
    assert made.difference < 1e-5
    return out


def random_images(n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(size=(n, 1, 32, 32)).astype(np.float32)


def test_onnx_embeddings_match_the_run_for_any_batch_size(onnx_file, run_folder):
    session = onnxruntime.InferenceSession(onnx_file)
    model = ps.load(run_folder)
    for n in (1, 3, 17):
        images = random_images(n)
        (got,) = session.run(None, {"images": images})
        with torch.inference_mode():
            expected = model.embedder(torch.from_numpy(images)).numpy()
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_onnx_file_is_valid_and_describes_its_input(onnx_file, run_folder):
    made = onnx.load(onnx_file, load_external_data=False)
    onnx.checker.check_model(made, full_check=True)
    assert [path.name for path in onnx_file.parent.iterdir()] == ["model.onnx"]
    about = json.loads({p.key: p.value for p in made.metadata_props}["proxysynth"])
    assert about == describe(ps.load(run_folder))
    assert about["preprocessing"]["channels"] == "L"
    assert about["input"] == ["n", 1, 32, 32]
    assert about["thresholds"] == ps.load(run_folder).calibration.thresholds
    shape = made.graph.input[0].type.tensor_type.shape.dim
    assert shape[0].dim_param
    assert [d.dim_value for d in shape][1:] == [1, 32, 32]
    assert str(Path(ps.__file__).parent).encode() not in onnx_file.read_bytes()


@pytest.mark.parametrize("size", [(70, 50), (40, 65)])
def test_example_embeddings_match_the_run(onnx_file, run_folder, tmp_path, size):
    noise = np.random.default_rng(0).integers(0, 256, (20, 20, 3)).astype(np.uint8)
    path = tmp_path / "photo.png"
    Image.fromarray(noise).resize(size).save(path)
    command = [sys.executable, EXAMPLE, onnx_file, path]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    got = [float(word) for word in done.stdout.strip().strip("[]").split()]
    np.testing.assert_allclose(got, ps.load(run_folder).embed(path)[0].numpy(), atol=1e-5)


def by_the_metadata(path: Path, about: dict) -> np.ndarray:
    """The network's input, made with Pillow and nothing but what the file says."""
    steps = about["preprocessing"]

    def resize(image: Image.Image, side: int) -> Image.Image:
        short = min(image.size)
        size = (side * image.width // short, side * image.height // short)
        return image.resize(size, Image.Resampling.BILINEAR)

    def middle(image: Image.Image, width: int, height: int, offset) -> Image.Image:
        left, top = offset((image.width - width) / 2), offset((image.height - height) / 2)
        return image.crop((left, top, left + width, top + height))

    image = ImageOps.exif_transpose(Image.open(path))
    layer = image.convert("RGBA")
    image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer).convert("RGB")
    if 0 < steps["shrink_short_side"] < min(image.size):
        image = resize(image, steps["shrink_short_side"])
    image = image.convert("L" if steps["channels"] == "L" else "RGB")
    most = 16 * min(image.size)
    image = middle(image, min(image.width, most), min(image.height, most), math.floor)
    image = resize(image, steps["resize_short_side"])
    image = middle(image, steps["center_crop"], steps["center_crop"], round)
    values = np.asarray(image, np.float32).reshape(*image.size[::-1], -1)
    values = values[..., ::-1] if steps["channels"] == "BGR" else values
    made = (values / steps["divide_by"] - steps["mean"]) / steps["std"]
    return np.ascontiguousarray(made.transpose(2, 0, 1)[None], np.float32)


@pytest.mark.parametrize(
    ("size", "kind", "orientation"),
    [((801, 600), "jpg", 6), ((33, 47), "png", 1), ((97, 38), "png", 1), ((1200, 37), "jpg", 3)],
)
def test_metadata_suffices_to_embed(onnx_file, run_folder, tmp_path, size, kind, orientation):
    noise = np.random.default_rng(1).integers(0, 256, (9, 9, 4 if kind == "png" else 3))
    exif, path = Image.Exif(), tmp_path / f"photo.{kind}"
    exif[0x0112] = orientation
    Image.fromarray(noise.astype(np.uint8)).resize(size).save(path, exif=exif)
    session = onnxruntime.InferenceSession(onnx_file)
    about = json.loads(session.get_modelmeta().custom_metadata_map["proxysynth"])
    assert "floor" in about["preprocessing"]["resize"]
    (got,) = session.run(None, {"images": by_the_metadata(path, about)})
    np.testing.assert_allclose(got, ps.load(run_folder).embed(path).numpy(), atol=1e-4)


def test_example_has_ten_lines_and_does_not_import_torch():
    text = EXAMPLE.read_text()
    code = text[text.index("session =") :].strip().splitlines()
    assert len(code) == 10
    imports = [line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))]
    assert imports == ["json", "sys", "numpy", "onnxruntime", "PIL"]


def test_torch_export_matches_the_run(run_folder, tmp_path):
    made = export(ps.load(run_folder), "torch", tmp_path / "model.pt2")
    assert made.difference < 1e-5
    extra = {"proxysynth.json": ""}
    program = torch.export.load(made.file, extra_files=extra).module()
    assert json.loads(extra["proxysynth.json"]) == made.about
    images = torch.from_numpy(random_images(4))
    with torch.inference_mode():
        torch.testing.assert_close(program(images), ps.load(run_folder).embedder(images))
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt2"]


def test_export_with_different_output_is_not_written(run_folder, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_text("the old one")
    module = sys.modules["proxysynth.search.export"]
    write, real = module._MODEL["onnx"]
    shifted = (write, lambda path: lambda x: real(path)(x) + 3e-5)
    monkeypatch.setitem(module._MODEL, "onnx", shifted)
    with pytest.raises(NotTheSame, match=r"differ .* by 3\.0e-05, more than 1e-05"):
        export(ps.load(run_folder), "onnx", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_text() == "the old one"
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_export_with_fixed_batch_size_is_rejected(run_folder):
    model = ps.load(run_folder)
    with pytest.raises(NotTheSame, match="a batch of 2"):
        compare(model, lambda x: model.embedder(x)[:1].detach(), "it")


def test_invalid_exports_are_rejected(run_folder, tmp_path, monkeypatch):
    model = ps.load(run_folder)
    with pytest.raises(ValueError, match="got 'tflite'"):
        export(model, "tflite", tmp_path / "x")
    with pytest.raises(ValueError, match="there is no folder"):
        export(model, "onnx", tmp_path / "no" / "x")

    class Fickle(torch.nn.Module):
        dim, normalize, preprocess, channels = 8, True, "grey", 1

        def forward(self, images):
            return images.flatten(1)[:, :8] * (1 if images.sum() > 0 else 2)

    fickle = replace(model, embedder=Fickle())
    with pytest.raises(RuntimeError, match="conv4") as said:
        export(fickle, "torch", tmp_path / "x")
    assert "\n" not in str(said.value)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"onnxscript.*pip install 'proxysynth\[export\]'"):
        export(model, "onnx", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("to", ["onnx", "torch"])
@pytest.mark.parametrize(
    "backbone", ["efficientnet_lite0", "bn_inception", "resnet50", "preact_resnet18"]
)
def test_every_backbone_can_be_exported(backbone, to, tmp_path):
    net = make_embedder(backbone, 32, pretrained=False, image_size=64).eval()
    run = Run(backbone=backbone, dim=32)
    recorded = Recorded(run, run.identity, {}, (), 64, 73)
    model = Trained(tmp_path, recorded, net, torch.empty(0, 32), 1)
    assert export(model, to, tmp_path / "model").difference < 1e-5
