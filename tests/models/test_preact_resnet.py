"""PreActResNet18 against a forward written out over its state dict."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.preact_resnet import PreActResNet18


@pytest.mark.parametrize(("width", "stride", "side"), [(0.25, 1, 32), (0.5, 2, 64), (0.25, 1, 40)])
def test_outputs_equal_a_forward_by_names(width: float, stride: int, side: int) -> None:
    network = shaken(PreActResNet18(width, stride)).double()
    images = torch.randn(2, 3, side, side, dtype=torch.float64)
    with torch.no_grad():
        expected = forward_by_names(network.state_dict(), images, stride)
        torch.testing.assert_close(network(images), expected, rtol=1e-9, atol=1e-9)
    assert expected.shape == (2, int(512 * width), side // stride // 8, side // stride // 8)


def test_size_is_the_known_one() -> None:
    assert parameters(PreActResNet18()) + 512 * 10 + 10 == 11_171_146
    assert parameters(PreActResNet18(0.25)) < parameters(PreActResNet18()) / 15


def test_the_pictures_side_decides_the_first_stride() -> None:
    assert make_embedder("preact_resnet18", width=0.25).backbone.conv1.stride == (1, 1)
    net = make_embedder("preact_resnet18", dim=None, width=0.25, image_size=64)
    assert net.backbone.conv1.stride == (2, 2)
    assert net.dim == 128
    assert net.image_size == 64


def test_mixing_at_stage_one_is_mixing_after_the_first_layer() -> None:
    net = make_embedder("preact_resnet18", dim=None, width=0.25, normalize=False).eval()
    backbone = net.backbone
    images = torch.randn(4, 3, 32, 32)
    swapped = torch.tensor([1, 0, 3, 2])
    with torch.no_grad():
        mixed = net(images, mix=lambda x: 0.3 * x + 0.7 * x[swapped], at=1)
        x = backbone.layer1(backbone.conv1(images))
        x = backbone.layer4(backbone.layer3(backbone.layer2(0.3 * x + 0.7 * x[swapped])))
    torch.testing.assert_close(mixed, x.mean((2, 3)))


def forward_by_names(state: dict[str, Tensor], x: Tensor, stride: int) -> Tensor:
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
