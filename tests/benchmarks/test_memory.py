"""The blocked path's memory does not grow with the classes, as the system counts it."""

from __future__ import annotations

import pytest

from benchmarks import memory
from benchmarks.step import D
from benchmarks.timing import in_own_process


def test_blocked_memory_is_close_to_the_gradient_alone() -> None:
    c = 60_000
    gradient = 4 * c * D / 2**20
    taken = in_own_process("memory", "blocked", str(c))["extra_mb"]
    # Two n x c matrices would already be too much.
    assert gradient - 10 < taken < gradient + memory.FLAT


def test_all_paths_are_measured() -> None:
    assert {"plain", "reference", "fused", "blocked"} <= set(memory.METHODS)


@pytest.mark.slow
def test_it_runs_at_a_small_size() -> None:
    rows = memory.run(quick=True)
    assert {row["method"] for row in rows} == set(memory.QUICK)
