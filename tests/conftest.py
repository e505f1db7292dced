"""What all tests need: seeds, and a cache."""

from __future__ import annotations

import os
from collections.abc import Iterator

# One thread: the suite runs beside other work, and small tensors gain nothing from two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file run in one process, and so do those that share the paper's smoke runs."""
    for item in items:
        shared = "smoke" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("smoke" if shared else str(item.path)))


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One cache for all tests, so that glyphs are drawn once; never that of the user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYSYNTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
