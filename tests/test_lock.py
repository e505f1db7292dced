import subprocess
import sys

import pytest

from proxysynth.files import locked
from proxysynth.training import TrainingFailed, WrongFolder

HOLD = """
import sys
from pathlib import Path
from proxysynth.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_lock_excludes_other_processes(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(WrongFolder, match=rf"process {other.pid}\) is working in"):
            locked(tmp_path).__enter__()
        other.kill()
        other.wait()
    with locked(tmp_path):  # a killed process holds nothing
        pass


def test_lock_is_released(tmp_path):
    for _ in range(2):
        with locked(tmp_path), pytest.raises(WrongFolder, match="another process"):
            locked(tmp_path).__enter__()


def test_failure_removes_a_folder_that_holds_nothing_else(tmp_path):
    empty, full = tmp_path / "empty", tmp_path / "full"
    for folder in (empty, full):
        folder.mkdir()
    (full / "file").write_text("")
    for folder in (empty, full):
        with pytest.raises(ValueError, match="failed"), locked(folder):
            raise ValueError("failed")
    assert not empty.exists()
    assert (full / "file").exists()


def test_unwritable_folder_is_reported(tmp_path, monkeypatch):
    import errno
    import os

    def refuse(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("proxysynth.files.FileLock.acquire", refuse)
    with pytest.raises(TrainingFailed, match="read-only file system") as caught:
        locked(tmp_path).__enter__()
    assert "nothing was changed" in str(caught.value)
