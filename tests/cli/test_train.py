"""`proxysynth train` from its words to its report."""

from __future__ import annotations

import json
import shutil

import pytest

from cli.running import run
from training.tiny_pictures import pictures


@pytest.fixture
def words(tmp_path, monkeypatch):
    root = pictures(tmp_path / "set", classes=6, each=4)
    sets = ["image_size=32", "width=0.25", "dim=8", "batch_size=4"]
    return ["train", root, "--from-scratch", "--backbone", "conv4", "--epochs", 1,
            *(word for text in sets for word in ("--set", text))]  # fmt: skip


def test_a_finished_run_keeps_its_report(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    report = place / "report.html"
    before = report.read_bytes()
    shutil.rmtree(tmp_path / "set")  # the pictures could not be shown any more
    code, out, _ = run(capsys, "train", "--resume", "--out", place, "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(report)
    assert report.read_bytes() == before


def test_a_report_that_a_kill_prevented_is_made(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    (place / "report.html").unlink()
    assert run(capsys, "train", "--resume", "--out", place)[0] == 0
    assert (place / "report.html").is_file()


def test_every_unreadable_picture_is_told_with_its_reason(words, capsys, tmp_path) -> None:
    bad = [tmp_path / "set" / "class0" / f"bad{i}.png" for i in range(12)]
    for path in bad:
        path.write_bytes(b"")
    code, out, err = run(capsys, *words, "--out", tmp_path / "run")
    assert (code, out) == (1, "")
    assert all(f"{path}: the file is empty\n" in err for path in bad)
    code, _, err = run(capsys, *words, "--out", tmp_path / "run", "--skip-bad")
    assert code == 0
    assert all(f"{path}: the file is empty\n" in err for path in bad)


def test_going_on_without_bad_pictures_is_not_the_run_that_was_begun(words, capsys, tmp_path):
    assert run(capsys, *words, "--out", tmp_path / "run")[0] == 0
    code, out, err = run(capsys, "train", "--resume", "--skip-bad", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "skip_bad False there, True here" in err


def test_an_empty_word_is_not_the_default(capsys) -> None:
    code, out, err = run(capsys, "train", "")
    assert (code, out) == (2, "")
    assert "there is no folder or CSV ''" in err
