"""One folder for the whole session: tables at the scale smoke, made once for all processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from proxysynth.paper.store import Store

TABLES = [f"table{name}" for name in "123456ABCDEFGHIJKL"]
STUDIED = ("table4", "tableG", "tableI", "tableK")  # need MLRC studies, which take longer
SMOKED = [name for name in TABLES if name not in STUDIED]


def paper(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, on one thread."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "proxysynth", "paper", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=600)
    assert not check or done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="session")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The folder, what the command printed, and its JSON."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # what the processes of pytest-xdist share
        folder = folder.parent
    out, said = folder / "smoke", folder / "smoke.json"
    with FileLock(folder / "smoke.lock"):
        if not said.exists():
            done = paper(*SMOKED, "--scale", "smoke", "--out", str(out), "--threads", "1", "--json")
            said.write_text(json.dumps({"stdout": done.stdout, "stderr": done.stderr}))
    printed = json.loads(said.read_text())
    return {"out": out, "result": json.loads(printed["stdout"].splitlines()[-1]), **printed}


@pytest.fixture(scope="session")
def smoke_store(smoke: dict[str, Any]) -> Store:
    return Store(smoke["out"])


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    """A store in which nothing was trained."""
    return Store(tmp_path / "empty")


@pytest.fixture
def estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without timed steps, and without drawing glyphs to count them."""
    monkeypatch.setattr("proxysynth.protocols.estimates.time_steps", lambda *_: 100.0)
    monkeypatch.setattr("proxysynth.protocols.estimates.count_images", lambda *_: (3000, 1000))
