"""What all tests need: seeds, and a cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# One thread: the suite runs beside other work, and small tensors gain nothing from two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

TESTS = Path(__file__).parent
LONGEST = (
    "documents/test_commands.py",
    "paper/test_tables.py",
    "distributed/test_training.py",
    "protocols/mlrc/test_workers.py",
    "protocols/mlrc/test_study.py",
    "attacks/test_kills.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: one of them at the end would leave the other process idle."""
    items.sort(key=lambda item: item.path.relative_to(TESTS).as_posix() not in LONGEST)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests and processes, so that glyphs are drawn once; never the user's."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # what the processes of pytest-xdist share
        folder = folder.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYSYNTH_CACHE", str(folder / "cache"))
        yield
