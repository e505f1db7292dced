"""ResNet-50: torchvision's names, and values of two independent forwards."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.resnet import ResNet50

LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def test_names_are_torchvisions() -> None:
    expected = {"conv1.weight"} | {f"bn1.{leaf}" for leaf in LEAVES}
    for layer, blocks in ((1, 3), (2, 4), (3, 6), (4, 3)):
        for block in range(blocks):
            for i in (1, 2, 3):
                expected.add(f"layer{layer}.{block}.conv{i}.weight")
                expected |= {f"layer{layer}.{block}.bn{i}.{leaf}" for leaf in LEAVES}
        expected.add(f"layer{layer}.0.downsample.0.weight")
        expected |= {f"layer{layer}.0.downsample.1.{leaf}" for leaf in LEAVES}
    network = ResNet50()
    assert set(network.state_dict()) == expected
    assert parameters(network) + 2048 * 1000 + 1000 == 25_557_032


def test_outputs_equal_a_forward_by_names() -> None:
    network = shaken(ResNet50()).double()
    images = torch.randn(2, 3, 64, 80, dtype=torch.float64)
    with torch.no_grad():
        expected = forward_by_names(network.state_dict(), images)
        torch.testing.assert_close(network(images), expected, rtol=1e-9, atol=1e-9)


def test_outputs_equal_the_independent_network() -> None:
    peer = pytest.importorskip("pytorchcv.models.resnet")
    ours, theirs = shaken(ResNet50()), peer.resnet50b().eval()
    state = {their_name(key): value for key, value in ours.state_dict().items()}
    assert theirs.load_state_dict(state, strict=False).unexpected_keys == []
    assert parameters(ours) + parameters(theirs.output) == parameters(theirs)
    images = torch.randn(1, 3, 96, 96)
    with torch.no_grad():
        maps = ours(images)
        expected = theirs.features[:-1](images)
    torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-4 * maps.max().item())


def test_absent_weights_are_named() -> None:
    with pytest.raises(ValueError, match=r"resnet50-19c8e357\.pth.*download\.pytorch.*weights="):
        make_embedder("resnet50", pretrained=True)


def forward_by_names(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """The network written out over its state dict."""

    def norm(x: Tensor, name: str) -> Tensor:
        w, b, mean, var = (state[f"{name}.{leaf}"].view(1, -1, 1, 1) for leaf in LEAVES[:4])
        return (x - mean) / (var + 1e-5).sqrt() * w + b

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    x = norm(conv(x, "conv1", 2), "bn1").clamp(min=0)
    x = F.max_pool2d(x, 3, 2, 1)
    for layer, blocks in ((1, 3), (2, 4), (3, 6), (4, 3)):
        for block in range(blocks):
            name = f"layer{layer}.{block}"
            stride = 2 if layer > 1 and block == 0 else 1
            y = norm(conv(x, f"{name}.conv1"), f"{name}.bn1").clamp(min=0)
            y = norm(conv(y, f"{name}.conv2", stride), f"{name}.bn2").clamp(min=0)
            y = norm(conv(y, f"{name}.conv3"), f"{name}.bn3")
            if block == 0:
                x = norm(conv(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
            x = (x + y).clamp(min=0)
    return x


def their_name(key: str) -> str:
    """`layer2.0.downsample.1.bias` as `features.stage2.unit1.identity_conv.bn.bias`."""
    layer, leaf = key.rsplit(".", 1)
    if layer in ("conv1", "bn1"):
        return f"features.init_block.conv.{layer[:-1]}.{leaf}"
    stage, block, rest = re.fullmatch(r"layer(\d)\.(\d)\.(.*)", layer).groups()
    unit = f"features.stage{stage}.unit{int(block) + 1}"
    if rest.startswith("downsample"):
        return f"{unit}.identity_conv.{'conv' if rest.endswith('0') else 'bn'}.{leaf}"
    return f"{unit}.body.conv{rest[-1]}.{rest[:-1]}.{leaf}"
