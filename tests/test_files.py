import errno
import json
import os

import pytest

from proxysynth import files
from proxysynth.files import CannotWrite, write_bytes, write_json


def test_existing_file_is_replaced(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": [1, "é"]})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": [1, "é"]}
    assert path.read_text(encoding="utf-8").endswith("\n")
    assert os.listdir(tmp_path) == ["a.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_failed_write_keeps_old_file(tmp_path, monkeypatch, broken):
    path = tmp_path / "a.txt"
    write_bytes(path, b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, broken, fail)
    with pytest.raises(CannotWrite) as caught:
        write_bytes(path, b"new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_killed_write_keeps_old_file(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(*_):
        raise Killed

    path = tmp_path / "a.txt"
    write_bytes(path, b"old")
    monkeypatch.setattr(files.os, "replace", kill)
    with pytest.raises(Killed):
        write_bytes(path, b"new")
    assert path.read_bytes() == b"old"


def test_nan_is_rejected_in_json(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", float("nan"))
    assert not (tmp_path / "a.json").exists()
