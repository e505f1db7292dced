import errno
import os
from pathlib import Path

import pytest

from proxysynth.data.cache_folder import cache_folder, keep


def test_the_variable_names_the_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "here"))
    assert cache_folder() == tmp_path / "here"


def test_without_the_variable_it_lies_in_the_home(monkeypatch, tmp_path):
    monkeypatch.delenv("PROXYSYNTH_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache_folder() == tmp_path / ".cache" / "proxysynth"


def test_an_account_without_a_home_still_has_a_folder(monkeypatch):
    def no_home():
        raise RuntimeError("no home")

    monkeypatch.delenv("PROXYSYNTH_CACHE")
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_folder().name == "proxysynth"


def test_keep_writes_all_parts_and_leaves_nothing_else(tmp_path):
    assert keep(tmp_path / "new" / "file", [b"ab", memoryview(b"cd")])
    assert (tmp_path / "new" / "file").read_bytes() == b"abcd"
    assert os.listdir(tmp_path / "new") == ["file"]


def test_keep_says_no_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert not keep(tmp_path / "file" / "inside", [b"x"])


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS])
def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch, fault):
    (tmp_path / "file").write_bytes(b"old")

    def fail(*_):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "replace", fail)
    assert not keep(tmp_path / "file", [b"new"])
    assert os.listdir(tmp_path) == ["file"]
    assert (tmp_path / "file").read_bytes() == b"old"
