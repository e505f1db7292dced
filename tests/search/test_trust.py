"""A run or an index of somebody else is data: the code that it names runs only on request."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

import proxysynth as ps
from proxysynth.cli import main
from proxysynth.report.run_report import read_finished
from training.tiny_pictures import pictures

SPEC = "somebodys_net:make"
CODE = """
from pathlib import Path
from torch import nn

Path("imported").touch()

def make():
    return nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU())
"""


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder with a run of somebody's own backbone, an index made by it, and the module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "somebodys_net", raising=False)
    (tmp_path / "somebodys_net.py").write_text(CODE)
    photos = pictures(tmp_path / "photos")
    run = ps.Run(data=str(photos), backbone=SPEC, epochs=1, dim=4, batch_size=4, image_size=32)
    ps.train(run, tmp_path / "run")
    model = ps.load(tmp_path / "run", backbone=SPEC)
    ps.build_index(model, photos, tmp_path / "shop.index")
    (tmp_path / "query.png").write_bytes((photos / "class0" / "0.png").read_bytes())
    del sys.modules["somebodys_net"]
    (tmp_path / "imported").unlink()
    return tmp_path


COMMANDS = [
    ["eval", "run", "photos"],
    ["index", "run", "photos", "-o", "other.index"],
    ["export", "run", "--to", "torch", "-o", "model.pt2"],
    ["search", "shop.index", "query.png"],
    ["search", "shop.index", "query.png", "--run", "run"],
    ["train", "--resume", "--out", "run"],
    ["train", "--config", "run/run.json", "--out", "again"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2]))
def test_commands_reject_untrusted_code_and_name_it(shared, capsys, command) -> None:
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert "import the module somebodys_net and call make" in message
    assert f"--backbone {SPEC} or --trust" in message
    assert not (shared / "imported").exists()


@pytest.mark.parametrize("word", [["--trust"], ["--backbone", SPEC]])
def test_commands_run_code_the_user_trusts(shared, word) -> None:
    with pytest.raises(SystemExit) as end:
        main(["search", "shop.index", "query.png", *word])
    assert not end.value.code
    assert (shared / "imported").exists()


def test_printed_commands_name_the_backbone(shared, capsys) -> None:
    with pytest.raises(SystemExit) as end:
        main(["index", "run", "photos", "-o", "other.index", "--trust"])
    assert not end.value.code
    out = capsys.readouterr().out
    assert f"search other.index IMAGE --backbone {SPEC}, or" in out
    assert out.endswith(f"serve other.index --backbone {SPEC}\n")

    with pytest.raises(SystemExit) as end:
        main(["train", "--config", "run/run.json", "--trust", "--out", "again"])
    assert not end.value.code
    assert f"-o again.index --backbone {SPEC}\n" in capsys.readouterr().out
    report = (shared / "again" / "report.html").read_text()
    assert f"FOLDER -o FILE --backbone {SPEC}" in report
    assert f"serve FILE --backbone {SPEC}" in report

    command = shlex.split(read_finished(shared / "again").command)[1:]
    assert main_status(command) == 0
    again = shared / "again-again" / "run.json"
    assert json.loads(again.read_text()) == json.loads((shared / "again/run.json").read_text())


def main_status(command: list[str]) -> int:
    with pytest.raises(SystemExit) as end:
        main(command)
    return int(end.value.code or 0)


def test_python_api_rejects_untrusted_code(shared) -> None:
    with pytest.raises(ValueError, match="somebodys_net"):
        ps.load("run")
    index = ps.Index.open("shop.index")
    with pytest.raises(ValueError, match="somebodys_net"):
        index.search("query.png")
    assert index.search("class0/0.png")  # of the index: nothing is embedded
    assert not (shared / "imported").exists()
    assert ps.load("run", trust=True).embed("query.png").shape == (1, 4)


def test_web_service_rejects_untrusted_code(shared) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    from proxysynth.web import create_app

    app = create_app(ps.Index.open("shop.index"))
    with testclient.TestClient(app, "http://localhost") as client:
        data = (shared / "query.png").read_bytes()
        assert client.post("/api/search", files={"file": data}).status_code == 503
        assert client.get("/api/items/0/search").status_code == 200
    assert not (shared / "imported").exists()
