"""Backbones of timm and transformers: small ones, really built, trained, saved and loaded again."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import proxysynth as ps
from proxysynth.data import pixels_named
from proxysynth.models.backbones import make_embedder
from proxysynth.training.defaults import default_run
from proxysynth.training.run import Split

MEAN, STD = (0.48, 0.46, 0.41), (0.27, 0.26, 0.28)
KEPT: list[Any] = []  # a library of operators lives as long as its object


def define_operators() -> None:
    """Let torchvision be imported beside a torch of another build, without its compiled part."""
    found = importlib.util.find_spec("torchvision")
    if found is None or KEPT or "torchvision" in sys.modules:
        return
    folder = Path(str(found.origin)).parent
    text = "".join(file.read_text() for file in folder.glob("_*_registrations.py"))
    names = set(re.findall(r"torchvision::(\w+)", text))
    names |= set(re.findall(r'register_meta\("(\w+)"', text))
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in sorted(names):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor x) -> Tensor")
    KEPT.append(library)


@pytest.fixture(scope="module")
def timm() -> Any:
    define_operators()
    return pytest.importorskip("timm")


@pytest.fixture(scope="module")
def hf() -> Any:
    define_operators()
    return pytest.importorskip("transformers")


SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TOWER = {**SMALL, "intermediate_size": 48, "image_size": 32, "patch_size": 8}
TEXT = {**SMALL, "intermediate_size": 16, "vocab_size": 64, "bos_token_id": 0, "eos_token_id": 1}


def saved(hf: Any, folder: Path, kind: str) -> Path:
    """A small model of that kind with random weights, as `save_pretrained` writes it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if kind == "vit":
            model = hf.ViTForImageClassification(hf.ViTConfig(**TOWER))
        elif kind == "dinov2":
            config = {**SMALL, "image_size": 32, "patch_size": 8, "mlp_ratio": 2}
            model = hf.Dinov2Model(hf.Dinov2Config(**config))
        elif kind == "clip":
            model = hf.CLIPModel(hf.CLIPConfig(vision_config=TOWER, text_config=TEXT))
        elif kind == "siglip":
            model = hf.SiglipModel(hf.SiglipConfig(vision_config=TOWER, text_config=TEXT))
        else:
            sizes = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 24, 32], "image_size": 32}
            model = hf.ConvNextModel(hf.ConvNextConfig(**sizes))
    with torch.no_grad():  # a bias of 0 would hide a norm that is left out
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    processor = {"image_mean": MEAN, "image_std": STD, "size": {"shortest_edge": 36}}
    processor |= {"crop_size": {"height": 32, "width": 32}, "do_center_crop": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def expected(hf: Any, kind: str, folder: Path, pooling: str, images: torch.Tensor) -> torch.Tensor:
    """The features by the library's own classes."""
    kinds = {"vit": "ViTModel", "dinov2": "Dinov2Model", "clip": "CLIPVisionModel"}
    kinds |= {"siglip": "SiglipVisionModel", "convnext": "ConvNextModel"}
    model = getattr(hf, kinds[kind]).from_pretrained(folder).eval()
    out = model(pixel_values=images)
    tokens = out.last_hidden_state
    if pooling == "own":
        return tokens[:, 0] if kind == "vit" else out.pooler_output
    if kind == "clip":
        tokens = getattr(model, "vision_model", model).post_layernorm(tokens)
    if pooling == "class":
        return tokens[:, 0]
    return tokens[:, 0 if kind == "siglip" else 1 :].mean(dim=1)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [
        ("vit", "own"),
        ("vit", "average"),
        ("dinov2", "class"),
        ("dinov2", "average"),
        ("clip", "own"),
        ("clip", "class"),
        ("clip", "average"),
        ("siglip", "own"),
        ("siglip", "average"),
        ("convnext", "own"),
    ],
)
def test_features_match_the_library(hf: Any, tmp_path: Path, kind: str, pooling: str):
    folder = saved(hf, tmp_path / "model", kind)
    net = make_embedder(f"hf:{folder}", None, pooling=pooling, normalize=False).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.inference_mode():
        made, wanted = net(images), expected(hf, kind, folder, pooling, images)
    assert torch.allclose(made, wanted, atol=1e-5)
    assert (net.image_size, net.dim, round(32 * net.resize)) == (32, 32, 36)
    pixels = pixels_named(net.preprocess)
    assert (pixels.mean, pixels.std, pixels.order) == (MEAN, STD, "RGB")


def test_image_size_can_be_changed(hf: Any, tmp_path: Path):
    folder = saved(hf, tmp_path / "model", "vit")
    net = make_embedder(f"hf:{folder}", None, pooling="average", image_size=48).eval()
    assert net(torch.randn(2, 3, 48, 48)).shape == (2, 32)


def test_invalid_models_are_rejected(hf: Any, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no such folder"):
        make_embedder(f"hf:{tmp_path / 'missing'}")
    with pytest.raises(ValueError, match="transformers could not load"):
        make_embedder(f"hf:{tmp_path / 'empty'}")
    siglip = saved(hf, tmp_path / "siglip", "siglip")
    with pytest.raises(ValueError, match="no class token"):
        make_embedder(f"hf:{siglip}", pooling="class")
    convnext = saved(hf, tmp_path / "convnext", "convnext")
    with pytest.raises(ValueError, match="class"):
        make_embedder(f"hf:{convnext}", None, pooling="class")(torch.zeros(1, 3, 32, 32))
    with pytest.raises(ValueError, match="pixels"):
        pixels_named("mean 1 2 x std 1 1 1")


def photographs(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for label in range(6):
        (folder / f"class{label}").mkdir(parents=True)
        for number in range(4):
            noise = rng.integers(0, 60, (40, 44, 3)) + 30 * label
            Image.fromarray(noise.astype(np.uint8)).save(folder / f"class{label}/{number}.png")
    return folder


def small_run(data: Path, backbone: str, **changes: Any) -> ps.Run:
    base = default_run(str(data), backbone=backbone, epochs=1, dim=8, image_size=32, **changes)
    return replace(base, batch_size=8, split=Split(unseen_fraction=0.5))


def test_trained_run_loads_without_model_folder(hf: Any, tmp_path: Path):
    """Also with remote code named in the configuration, which is never asked for."""
    folder = saved(hf, tmp_path / "model", "clip")
    data = photographs(tmp_path / "photos")
    run = small_run(data, f"hf:{folder}", freeze=("model.embeddings",), layer_decay=0.5)
    assert run.pooling == "own"
    ps.train(run, tmp_path / "run")
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())
    assert recorded["architecture"]["config"]["model_type"] == "clip_vision_model"
    before = make_embedder(f"hf:{folder}", None, pooling="own").backbone.state_dict()
    for file in folder.iterdir():
        file.unlink()
    model = ps.load(tmp_path / "run")
    after = model.embedder.backbone.state_dict()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved
    assert not any(name.startswith("model.embeddings") for name in moved)
    x = model.embed(data / "class0" / "0.png")
    assert x.shape == (1, 8)
    assert bool(torch.isfinite(x).all())
    index = ps.build_index(model, data, tmp_path / "photos.index")
    assert index.search(data / "class0" / "0.png", k=1)[0].similarity > 0.9


def test_recorded_architecture_cannot_load_code(hf: Any, tmp_path: Path):
    config = hf.ViTConfig(**TOWER).to_dict()
    config |= {"auto_map": {"AutoModel": "evil--code.Model"}, "_attn_implementation": "evil/kernel"}
    made = make_embedder(
        "hf:anything", None, pooling="own", architecture={"config": config, "processor": {}}
    )
    assert not hasattr(made.backbone.model.config, "auto_map")
    assert made.backbone.model.config._attn_implementation in ("eager", "sdpa")
    with pytest.raises(ValueError, match="architecture"):
        make_embedder("hf:x", architecture={"config": {"model_type": "none"}, "processor": {}})


def test_timm_transformers_and_convolutions(timm: Any, tmp_path: Path):
    images = torch.randn(2, 3, 32, 32)
    for pooling in ("own", "class", "average", "max"):
        net = make_embedder("timm:vit_tiny_patch16_224", None, pooling=pooling, pretrained=False,
                            normalize=False, image_size=32).eval()  # fmt: skip
        inner = net.backbone if pooling == "own" else net.backbone.model
        tokens = inner.forward_features(images)
        wanted = {"own": tokens[:, 0], "class": tokens[:, 0], "average": tokens[:, 1:].mean(1),
                  "max": tokens[:, 1:].amax(1)}[pooling]  # fmt: skip
        assert torch.allclose(net(images), wanted, atol=1e-4)
    assert pixels_named(net.preprocess).mean == (0.5, 0.5, 0.5)
    net = make_embedder("timm:resnet10t", 6, pretrained=False, image_size=32, pooling="both")
    assert net(images).shape == (2, 6)
    assert net.preprocess == "imagenet"
    with pytest.raises(ValueError, match="timm could not load 'no_such_network'"):
        make_embedder("timm:no_such_network")


def test_timm_network_can_be_trained(timm: Any, tmp_path: Path):
    data = photographs(tmp_path / "photos")
    run = small_run(data, "timm:resnet10t", pretrained=False, pooling="average")
    ps.train(run, tmp_path / "run")
    assert ps.load(tmp_path / "run").embed(data / "class0" / "0.png").shape == (1, 8)
