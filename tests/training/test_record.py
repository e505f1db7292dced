import json

import pytest
import torch

from proxysynth.tensor_files import read_tensors, write_tensors
from proxysynth.training import Result, TrainingFailed, WrongFolder, read_metrics, read_result
from proxysynth.training.run_folder import (
    METRICS,
    RESULT,
    write_metrics,
    write_result,
)
from training.sameness import assert_same_tensors

BEFORE, AFTER = {"recall@1": 0.5, "map@r": 0.4}, {"recall@1": 0.6, "map@r": 0.3}
RESULT_OF = Result("abc", AFTER, BEFORE, 3, 4, "last", "the last epoch", notes=("a note",))


def test_result_round_trip(tmp_path):
    assert read_result(tmp_path) is None
    write_result(tmp_path, RESULT_OF)
    assert read_result(tmp_path) == RESULT_OF


def test_result_file_records_lowered_metrics(tmp_path):
    write_result(tmp_path, RESULT_OF)
    content = json.loads((tmp_path / RESULT).read_text())
    assert content["made_worse"] is True
    assert content["verdict"] == RESULT_OF.verdict


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '"x"', "{}", '{"format": 1}', '{"format": "1"}', '{"format": 1, "notes": []}'],
)
def test_damaged_result_is_reported(tmp_path, text):
    (tmp_path / RESULT).write_text(text)
    with pytest.raises(TrainingFailed, match="damaged"):
        read_result(tmp_path)


def test_newer_result_format_is_rejected(tmp_path):
    (tmp_path / RESULT).write_text('{"format": 2}')
    with pytest.raises(WrongFolder, match="newer version"):
        read_result(tmp_path)


def test_incomplete_metrics_line_is_ignored(tmp_path):
    assert read_metrics(tmp_path) == []
    write_metrics(tmp_path, [{"epoch": 1, "recall@1": 0.1}, {"epoch": 2, "recall@1": 0.2}])
    with open(tmp_path / METRICS, "a") as file:
        file.write('{"epoch": 3, "reca')  # an earlier version was killed here
    assert [line["epoch"] for line in read_metrics(tmp_path)] == [1, 2]
    write_metrics(tmp_path, [{"epoch": 1}])
    assert (tmp_path / METRICS).read_text() == '{"epoch": 1}\n'


def test_tensors_round_trip(tmp_path):
    held = {"a": torch.arange(6.0).reshape(2, 3).T, "b": torch.tensor([1, 2])}
    write_tensors(tmp_path / "t.safetensors", held, {"names": ("ä", "b"), "epoch": 3})
    tensors, about = read_tensors(tmp_path / "t.safetensors")
    assert_same_tensors(tensors, {name: tensor.contiguous() for name, tensor in held.items()})
    assert about == {"names": ["ä", "b"], "epoch": 3}


def test_damaged_tensor_file_is_reported(tmp_path):
    (tmp_path / "t.safetensors").write_bytes(b"not tensors")
    with pytest.raises(TrainingFailed, match="damaged"):
        read_tensors(tmp_path / "t.safetensors")
