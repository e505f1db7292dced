"""File names cannot send commands to the terminal."""

from __future__ import annotations

import pytest
from PIL import Image

from proxysynth.cli import main

EVIL = "\x1b]0;evil\x07\x1b[2J"


def test_control_characters_of_names_are_escaped(run_folder, tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    photos = tmp_path / f"photos{EVIL}" / f"label{EVIL}"
    photos.mkdir(parents=True)
    for name in ("a", "b"):
        Image.new("RGB", (32, 32), "red").save(photos / f"{name}{EVIL}.png")
    (photos / f"broken{EVIL}.png").write_text("text")
    out = f"shop{EVIL}.index"
    for words in (
        ["index", str(run_folder), str(photos.parent), "-o", out],
        ["index", str(run_folder), f"missing{EVIL}", "-o", out],
        ["search", out, str(photos / f"a{EVIL}.png")],
        ["search", out, f"missing{EVIL}.png"],
        ["search", f"missing{EVIL}.index", "x.png"],
        ["eval", str(run_folder), f"missing{EVIL}"],
        ["serve", f"missing{EVIL}.index"],
    ):
        with pytest.raises(SystemExit):
            main(words)
        printed = capsys.readouterr()
        assert "evil" in printed.out + printed.err
        assert "\x1b" not in printed.out + printed.err
        assert "\x07" not in printed.out + printed.err
