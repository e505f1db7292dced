import errno
import itertools
import json
import os
import pickle
import resource
import subprocess
import sys

import pytest
import torch

from proxysynth import files
from proxysynth.training import TrainingFailed, WrongFolder, checkpoint
from proxysynth.training.checkpoint import Checkpoints, Damaged, State, step_name
from training.sameness import assert_same_tensors

RUN = "0123456789ab"


def tensors(step: int) -> dict[str, torch.Tensor]:
    return {
        "net.weight": torch.full((3, 2, 2, 2), float(step)).to(memory_format=torch.channels_last),
        "proxies": torch.arange(6.0).reshape(2, 3) + step,
        "count": torch.tensor(step),
    }


def saved(folder, *steps: int, **fields) -> Checkpoints:
    kept = Checkpoints(folder / "checkpoint")
    for step in steps:
        kept.save(State(RUN, epoch=step, step=step, **fields), tensors(step))
    return kept


def flip_a_bit(path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))


def test_checkpoint_round_trip(tmp_path):
    history = ({"epoch": 1, "loss": 0.1 + 0.2, "recall@1": 1 / 3},)
    state = State(RUN, 3, 2, 17, 1.1, 5, history, 1, 9, {"map@r": 0.7}, {"scale": 2.0}, 1.5)
    kept = Checkpoints(tmp_path / "checkpoint")
    kept.save(state, tensors(17))
    loaded = kept.load(RUN)
    assert loaded.state == state
    assert loaded.faults == ()
    assert_same_tensors(loaded.tensors, tensors(17))


def test_load_without_checkpoint_returns_none(tmp_path):
    assert Checkpoints(tmp_path / "checkpoint").load(RUN) is None
    assert Checkpoints(tmp_path / "checkpoint").steps() == []


def test_last_two_and_best_checkpoints_are_kept(tmp_path):
    kept = saved(tmp_path, 1)
    for step in (2, 3, 4, 5):
        kept.save(State(RUN, epoch=step, step=step, best_epoch=2, best_step=2), tensors(step))
    assert kept.steps() == [2, 4, 5]


def test_best_of_previous_checkpoint_is_kept(tmp_path):
    """If the newest is damaged, the run goes on from the one before, which has its own best."""
    kept = saved(tmp_path, 1)
    kept.save(State(RUN, 2, step=2, best_epoch=1, best_step=1), tensors(2))
    kept.save(State(RUN, 3, step=3, best_epoch=1, best_step=1), tensors(3))
    kept.save(State(RUN, 4, step=4, best_epoch=4, best_step=4), tensors(4))
    assert kept.steps() == [1, 3, 4]


@pytest.mark.parametrize("file", ["tensors.safetensors", "state.json"])
@pytest.mark.parametrize("how", ["flipped", "cut", "empty", "gone"])
def test_damaged_checkpoint_is_skipped(tmp_path, file, how):
    kept = saved(tmp_path, 1, 2)
    path = kept.folder / step_name(2) / file
    if how == "flipped":
        flip_a_bit(path)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-7])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()
    loaded = kept.load(RUN)
    assert loaded.state.step == 1
    assert_same_tensors(loaded.tensors, tensors(1))
    assert len(loaded.faults) == 1
    assert step_name(2) in loaded.faults[0]
    # The next save replaces it.
    kept.save(State(RUN, 2, step=2), tensors(2))
    assert kept.load(RUN).state.step == 2


def test_all_checkpoints_damaged_is_an_error(tmp_path):
    kept = saved(tmp_path, 1, 2)
    for step in (1, 2):
        flip_a_bit(kept.folder / step_name(step) / "tensors.safetensors")
    with pytest.raises(TrainingFailed, match="checkpoint") as caught:
        kept.load(RUN)
    assert "\n" not in str(caught.value)
    assert kept.steps() == [1, 2]


def test_checkpoint_of_different_run_is_rejected(tmp_path):
    kept = saved(tmp_path, 1, 2)
    with pytest.raises(WrongFolder, match="another run"):
        kept.load("ba9876543210")
    assert kept.steps() == [1, 2]


def test_newer_format_is_rejected(tmp_path):
    kept = saved(tmp_path, 1)
    path = kept.folder / step_name(1) / "state.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(WrongFolder, match="newer version"):
        kept.load(RUN)


def test_malicious_pickle_is_not_executed(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "executed"),)

    trap = pickle.dumps(Trap())
    pickle.loads(trap)  # it does run code when it is unpickled
    os.rmdir(tmp_path / "executed")
    kept = saved(tmp_path, 1)
    for file in ("tensors.safetensors", "state.json"):
        kept = saved(tmp_path, 1)
        (kept.folder / step_name(1) / file).write_bytes(trap)
        with pytest.raises(TrainingFailed, match="checkpoint"):
            kept.load(RUN)
    torch.save(Trap(), kept.folder / step_name(1) / "tensors.safetensors")
    with pytest.raises(TrainingFailed, match="checkpoint"):
        kept.load(RUN)
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("module", "call"),
    [(files.os, "fsync"), (checkpoint.os, "rename"), (checkpoint, "sync_folder")],
)
def test_full_disk_keeps_previous_checkpoint(tmp_path, monkeypatch, module, call):
    kept = saved(tmp_path, 1)

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(module, call, fail)
        with pytest.raises(TrainingFailed, match="no space left on device") as caught:
            kept.save(State(RUN, 2, step=2), tensors(2))
    sentence = str(caught.value)
    assert f"the last good checkpoint is {kept.folder / step_name(1)}" in sentence
    assert "free some space" in sentence
    assert kept.load(RUN).state.step == 1
    assert os.listdir(kept.folder) == [step_name(1)]


def test_file_size_limit_keeps_previous_checkpoint(tmp_path):
    """The same with a real fault: files of this process may not grow past 2,000 bytes."""
    kept = saved(tmp_path, 1)
    code = f"""
import resource, torch
from pathlib import Path
from proxysynth.training import TrainingFailed
from proxysynth.training.checkpoint import Checkpoints, State
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    kept = Checkpoints(Path({str(kept.folder)!r}))
    kept.save(State({RUN!r}, 2, step=2), {{"x": torch.ones(9999)}})
except TrainingFailed as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "file too large" in done.stdout
    assert step_name(1) in done.stdout
    assert os.listdir(kept.folder) == [step_name(1)]
    assert kept.load(RUN).state.step == 1
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000


class Killed(BaseException):
    """A stand-in for a kill: nothing in the package catches it."""


CALLS = (
    (files.os, "fsync"),
    (checkpoint.os, "rename"),
    (checkpoint, "write_new"),
    (checkpoint, "sync_folder"),
    (checkpoint.shutil, "rmtree"),
    (checkpoint.os, "listdir"),
)


def kill_at(patch, number: int, when: str) -> None:
    """From now on, the system call with this number does not return."""
    count = 0

    def counted(call):
        def stop(*args, **kwargs):
            nonlocal count
            count += 1
            last = count == number
            if last and when == "before":
                raise Killed
            value = call(*args, **kwargs)
            if last:
                raise Killed
            return value

        return stop

    for module, name in CALLS:
        patch.setattr(module, name, counted(getattr(module, name)))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("broken", [False, True])
def test_kill_during_save_leaves_a_complete_checkpoint(tmp_path, monkeypatch, when, broken):
    """Saving step 4 beside 2 and 3 is killed at the first, second, ... system call."""
    for number in itertools.count(1):
        kept = saved(tmp_path / f"{number}", 1, 2, 3)
        if broken:
            (kept.folder / step_name(4)).mkdir()
        with monkeypatch.context() as patch:
            kill_at(patch, number, when)
            try:
                kept.save(State(RUN, 4, step=4), tensors(4))
            except Killed:
                pass
            else:
                break
        loaded = kept.load(RUN)
        assert loaded.state.step in (3, 4)
        assert_same_tensors(loaded.tensors, tensors(loaded.state.step))
        kept.save(State(RUN, 5, step=5), tensors(5))
        assert kept.load(RUN).state.step == 5
        assert not [name for name in os.listdir(kept.folder) if not name.startswith("step-")]
    assert number > 8


def test_reading_missing_checkpoint_is_an_error(tmp_path):
    with pytest.raises(Damaged):
        saved(tmp_path, 1).read(7, RUN)
