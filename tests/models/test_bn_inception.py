"""BN-Inception: published names, and values of an independent implementation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from models.randomness import parameters, shaken
from proxysynth.models.backbones import make_embedder
from proxysynth.models.bn_inception import MODULES, BNInception

KEYS = Path(__file__).with_name("bn_inception_keys.txt")
UNITS = dict(
    zip(
        ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"),
        [
            *(f"stage1.unit{i}" for i in (1, 2)),
            *(f"stage2.unit{i}" for i in (1, 2, 3, 4, 5)),
            *(f"stage3.unit{i}" for i in (1, 2, 3)),
        ],
        strict=True,
    )
)
STEM = {
    "conv1_7x7_s2": "features.init_block.conv1",
    "conv2_3x3_reduce": "features.init_block.conv2.conv1",
    "conv2_3x3": "features.init_block.conv2.conv2",
}
BRANCHES = ("3x3_reduce", "3x3", "double_3x3_reduce", "double_3x3_1", "double_3x3_2")


def published() -> dict[str, tuple[int, ...]]:
    """Names and shapes in the published file; its norms may carry a leading dimension of one."""
    lines = [line.split() for line in KEYS.read_text().splitlines()]
    return {key: tuple(int(size) for size in shape) for key, *shape in lines}


def test_names_and_shapes_match_published() -> None:
    ours = {
        key: tuple(value.shape)
        for key, value in BNInception().state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    theirs = {key: s for key, s in published().items() if not key.startswith("last_linear.")}
    assert ours == theirs


def test_published_file_loads(tmp_path: Path) -> None:
    state = {}
    for key, shape in published().items():
        norm = "_bn." in key
        state[key] = torch.rand((1, *shape) if norm else shape) + 0.5
    torch.save(state, tmp_path / "bn_inception.pth")
    with pytest.warns(UserWarning, match="is not a published file"):
        net = make_embedder("bn_inception", dim=8, weights=tmp_path / "bn_inception.pth")
    for key, value in net.backbone.state_dict().items():
        if not key.endswith("num_batches_tracked"):
            torch.testing.assert_close(value, state[key].view(value.shape), rtol=0, atol=0)
    assert net.preprocess == "caffe_bgr"
    assert net.dim == 8


@pytest.mark.parametrize("side", [224, 227])
def test_outputs_match_reference_network(side: int) -> None:
    peer = pytest.importorskip("pytorchcv.models.bninception")
    ours, theirs = shaken(BNInception()), peer.bninception().eval()
    state = {their_name(key): value for key, value in ours.state_dict().items()}
    assert theirs.load_state_dict(state, strict=False).unexpected_keys == []
    assert parameters(ours) + parameters(theirs.output) == parameters(theirs) == 11_295_240
    images = torch.randn(1, 3, side, side)
    with torch.no_grad():
        maps = ours(images)
        expected = theirs.features[:-1](images)
        assert maps.shape == (1, 1024, 7, 7)
        torch.testing.assert_close(maps, expected, rtol=1e-4, atol=1e-4 * maps.max().item())
        pooled = F.linear(maps.mean((2, 3)), theirs.output.weight, theirs.output.bias)
        scale = pooled.abs().max().item()
        torch.testing.assert_close(pooled, theirs(images), rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize("side", [64, 96, 161, 232])
def test_other_image_sizes_are_accepted(side: int) -> None:
    with torch.no_grad():
        assert BNInception().eval()(torch.randn(1, 3, side, side)).shape[1] == 1024


def test_missing_pretrained_weights_are_reported(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(ValueError, match=r"bn_inception-52deb4733\.pth.*weights="):
        make_embedder("bn_inception", pretrained=True)
    with pytest.raises(FileNotFoundError, match=r"no weights file gone\.pth; .*bn_inception-52d"):
        make_embedder("bn_inception", weights="gone.pth")
    make_embedder("bn_inception", pretrained=False)
    assert not recwarn
    with pytest.warns(UserWarning, match=r"random weights; .*bn_inception-52deb4733\.pth"):
        make_embedder("bn_inception")


def their_name(key: str) -> str:
    """`inception_3a_3x3_bn.bias` as `features.stage1.unit1.branches.branch2.conv2.bn.bias`."""
    layer, leaf = key.rsplit(".", 1)
    kind = "bn" if layer.endswith("_bn") else "conv"
    layer = layer.removesuffix("_bn")
    if layer in STEM:
        return f"{STEM[layer]}.{kind}.{leaf}"
    _, name, part = layer.split("_", 2)
    first = 1 if MODULES[name].reduces else 2
    places = dict(
        zip(
            BRANCHES,
            [
                *(f"branch{first}.conv{i}" for i in (1, 2)),
                *(f"branch{first + 1}.conv{i}" for i in (1, 2, 3)),
            ],
            strict=True,
        )
    )
    places |= {"1x1": "branch1", "pool_proj": "branch4.conv"}
    return f"features.{UNITS[name]}.branches.{places[part]}.{kind}.{leaf}"
