"""One folder for the whole session: tables at the scale smoke, made once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

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
    out = tmp_path_factory.mktemp("paper") / "out"
    done = paper(*SMOKED, "--scale", "smoke", "--out", str(out), "--threads", "1", "--json")
    told = json.loads(done.stdout.splitlines()[-1])
    return {"out": Path(out), "told": told, "stdout": done.stdout, "stderr": done.stderr}


@pytest.fixture(scope="session")
def smoke_store(smoke: dict[str, Any]) -> Store:
    return Store(smoke["out"])


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    """A store in which nothing was trained."""
    return Store(tmp_path / "empty")
