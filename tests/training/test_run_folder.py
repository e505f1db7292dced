import json
from dataclasses import replace

import pytest

import proxysynth as ps
from proxysynth.training import Run, WrongFolder, read_run
from proxysynth.training.run_folder import RUN, Recorded, claim, find_run, write_run
from proxysynth.values import describe_differences

RECORDED = Recorded(Run(epochs=7), Run(epochs=7).identity, {"fingerprint": "f"}, ("a", "b"), 32, 37)


def test_run_file_round_trip(tmp_path):
    write_run(tmp_path, RECORDED)
    assert read_run(tmp_path) == RECORDED


def test_run_file_records_provenance(tmp_path):
    write_run(tmp_path, RECORDED)
    recorded = json.loads((tmp_path / RUN).read_text())
    assert recorded["format"] == 1
    assert recorded["identity"] == RECORDED.run.identity
    assert {"torch", "python", "proxysynth"} <= recorded["provenance"].keys()


def test_folder_without_run_is_rejected(tmp_path):
    assert find_run(tmp_path) is None
    assert find_run(tmp_path / "nowhere") is None
    with pytest.raises(WrongFolder, match="not the folder of a run"):
        read_run(tmp_path)


def test_newer_format_is_rejected(tmp_path):
    write_run(tmp_path, RECORDED)
    recorded = json.loads((tmp_path / RUN).read_text())
    (tmp_path / RUN).write_text(json.dumps({**recorded, "format": 2, "run": {"kind": "NewRun"}}))
    with pytest.raises(WrongFolder, match="newer version") as caught:
        claim(tmp_path, RECORDED.run)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"format": 1}', '{"format": 1, "run": 3}'])
def test_damaged_run_file_is_rejected(tmp_path, text):
    (tmp_path / RUN).write_text(text)
    with pytest.raises(WrongFolder, match=RUN):
        claim(tmp_path, RECORDED.run)


def test_unknown_kinds_are_rejected(tmp_path):
    write_run(tmp_path, RECORDED)
    recorded = json.loads((tmp_path / RUN).read_text())
    recorded["run"]["loss"] = {"kind": "Popen", "args": "true"}
    del recorded["crc32"]
    (tmp_path / RUN).write_text(json.dumps(recorded))
    with pytest.raises(WrongFolder, match="unknown kind of value 'Popen'"):
        read_run(tmp_path)


@pytest.fixture(params=["checkpoint/step-000000003", "model.safetensors", "result.json"])
def learned(request, tmp_path):
    """The folder of a run with something that must not be lost."""
    write_run(tmp_path, RECORDED)
    (tmp_path / request.param).mkdir(parents=True)
    return tmp_path


def test_home_directory_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    write_run(tmp_path, RECORDED)
    assert read_run("~") == RECORDED


def test_same_run_can_resume(learned, tmp_path):
    assert claim(tmp_path, Run(epochs=7)) == RECORDED
    assert claim(tmp_path / "new", Run()) is None


def test_run_without_checkpoint_can_be_replaced(tmp_path):
    write_run(tmp_path, RECORDED)
    (tmp_path / "checkpoint" / ".unfinished-step-000000003").mkdir(parents=True)
    assert claim(tmp_path, Run(epochs=8)) is None


def test_different_run_is_rejected_with_differences(learned, tmp_path):
    other = replace(RECORDED.run, epochs=8, loss=ps.ProxySynthesis(ps.NormSoftmax(scale=9.0)))
    with pytest.raises(WrongFolder, match="another run") as caught:
        claim(tmp_path, other)
    assert "epochs 7 there, 8 here" in str(caught.value)
    assert "loss.loss.scale 23.0 there, 9.0 here" in str(caught.value)


def test_differences_between_loss_kinds():
    shown = describe_differences(Run(), Run(loss=ps.NormSoftmax()))
    assert "loss 'ProxySynthesis' there, 'NormSoftmax' here" in shown
    assert "more" in shown


def test_folder_with_other_files_is_rejected(tmp_path):
    (tmp_path / "holiday.jpg").write_bytes(b"")
    with pytest.raises(WrongFolder, match=r"holiday\.jpg"):
        claim(tmp_path, Run())
