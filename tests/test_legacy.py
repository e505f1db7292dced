"""A run folder and an index written by version 0.1.0 still load, evaluate, search and serve."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import proxysynth as ps
from proxysynth.cli import main

LEGACY = Path(__file__).parent / "legacy"
EXPECTED = json.loads((LEGACY / "expected.json").read_text())


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LEGACY, tmp_path / "shop"))


def test_run_loads_and_embeds(shop: Path) -> None:
    embeddings = torch.as_tensor(ps.load(shop / "run").embed([shop / EXPECTED["query"]]))
    assert embeddings.shape == (1, 16)
    assert torch.linalg.vector_norm(embeddings).item() == pytest.approx(1.0, abs=1e-5)


def test_run_is_evaluated(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _command("eval", shop / "run", shop / "photos", "--json", capsys=capsys)
    assert found["metrics"]["map@r"] == pytest.approx(EXPECTED["map@r"])


def test_index_is_searched(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = _command(
        *("search", shop / "photos.index", shop / EXPECTED["query"]),
        *("--run", shop / "run", "-k", "4", "--json"),
        capsys=capsys,
    )
    others = [hit for hit in found["hits"] if hit["path"] != "class0/0.jpg"]
    for hit, expected in zip(others[:3], EXPECTED["hits"], strict=True):
        assert (hit["path"], hit["label"]) == (expected["path"], expected["label"])
        assert hit["similarity"] == pytest.approx(expected["similarity"], abs=1e-6)


def test_index_is_served(shop: Path) -> None:
    testclient = pytest.importorskip("fastapi.testclient")
    from proxysynth.web import create_app

    app = create_app(ps.Index.open(shop / "photos.index"), run=shop / "run")
    with testclient.TestClient(app, "http://localhost") as client:
        upload = {"file": (shop / EXPECTED["query"]).read_bytes()}
        found = client.post("/api/search", files=upload, data={"k": 4}).json()["hits"]
    others = [hit for hit in found if hit["path"] != "class0/0.jpg"]
    assert [hit["path"] for hit in others[:3]] == [hit["path"] for hit in EXPECTED["hits"]]


def _command(*words: object, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command prints with --json."""
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    assert not end.value.code
    return json.loads(capsys.readouterr().out)
