from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.resnet import PreActResNet18, ResNet50

LEAVES = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def test_names_match_torchvision() -> None:
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


def test_outputs_match_functional_forward() -> None:
    network = shaken(ResNet50()).double()
    images = torch.randn(2, 3, 64, 80, dtype=torch.float64)
    with torch.no_grad():
        expected = forward_by_names(network.state_dict(), images)
        torch.testing.assert_close(network(images), expected, rtol=1e-9, atol=1e-9)


def test_outputs_match_reference_network() -> None:
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


def test_missing_pretrained_weights_are_reported() -> None:
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


@pytest.mark.parametrize(("width", "stride", "side"), [(0.25, 1, 32), (0.5, 2, 64), (0.25, 1, 40)])
def test_preact_outputs_match_functional_forward(width: float, stride: int, side: int) -> None:
    network = shaken(PreActResNet18(width, stride)).double()
    images = torch.randn(2, 3, side, side, dtype=torch.float64)
    with torch.no_grad():
        expected = preact_forward_by_names(network.state_dict(), images, stride)
        torch.testing.assert_close(network(images), expected, rtol=1e-9, atol=1e-9)
    assert expected.shape == (2, int(512 * width), side // stride // 8, side // stride // 8)


def test_preact_parameter_count() -> None:
    assert parameters(PreActResNet18()) + 512 * 10 + 10 == 11_171_146
    assert parameters(PreActResNet18(0.25)) < parameters(PreActResNet18()) / 15


def test_preact_first_stride_depends_on_image_size() -> None:
    assert make_embedder("preact_resnet18", width=0.25).backbone.conv1.stride == (1, 1)
    net = make_embedder("preact_resnet18", dim=None, width=0.25, image_size=64)
    assert net.backbone.conv1.stride == (2, 2)
    assert net.dim == 128
    assert net.image_size == 64


def test_mixing_at_stage_one_follows_the_first_layer() -> None:
    net = make_embedder("preact_resnet18", dim=None, width=0.25, normalize=False).eval()
    backbone = net.backbone
    images = torch.randn(4, 3, 32, 32)
    swapped = torch.tensor([1, 0, 3, 2])
    with torch.no_grad():
        mixed = net(images, mix=lambda x: 0.3 * x + 0.7 * x[swapped], at=1)
        x = backbone.layer1(backbone.conv1(images))
        x = backbone.layer4(backbone.layer3(backbone.layer2(0.3 * x + 0.7 * x[swapped])))
    torch.testing.assert_close(mixed, x.mean((2, 3)))


def preact_forward_by_names(state: dict[str, Tensor], x: Tensor, stride: int) -> Tensor:
    def active(x: Tensor, name: str) -> Tensor:
        leaves = ("weight", "bias", "running_mean", "running_var")
        w, b, mean, var = (state[f"{name}.{leaf}"].view(1, -1, 1, 1) for leaf in leaves)
        return ((x - mean) / (var + 1e-5).sqrt() * w + b).clamp(min=0)

    x = F.conv2d(x, state["conv1.weight"], stride=stride, padding=1)
    for layer in (1, 2, 3, 4):
        for block in (0, 1):
            name = f"layer{layer}.{block}"
            step = 2 if layer > 1 and block == 0 else 1
            a = active(x, f"{name}.bn1")
            if f"{name}.shortcut.0.weight" in state:
                x = F.conv2d(a, state[f"{name}.shortcut.0.weight"], stride=step)
            y = F.conv2d(a, state[f"{name}.conv1.weight"], stride=step, padding=1)
            y = F.conv2d(active(y, f"{name}.bn2"), state[f"{name}.conv2.weight"], padding=1)
            x = x + y
    return x
