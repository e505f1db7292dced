"""Every method of the benchmark of a step runs and computes a gradient."""

from __future__ import annotations

import pytest

import benchmarks
from benchmarks import step


@pytest.mark.parametrize("name", [*step.methods(), *step.OTHERS])
def test_a_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = step.batch(20)
    monkeypatch.setattr(step, "batch", lambda c: made)
    step.make_step(name, 20)()
    gradient = made[0].grad
    assert gradient.isfinite().all()
    assert gradient.any()


def test_table_a() -> None:
    rows = step.table_a(threads=1, quick=True)
    assert [row["mu"] for row in rows] == [0.0, 0.2, 0.5, 1.0, 1.5, 2.0]
    assert all(row["fused_step_ms"] > 0 for row in rows)


def test_a_quick_run_is_not_compared_with_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"method": "fused", "ms": 1.0}
    judged = {**measured, "target": "2.0 of plain", "reached": False}
    monkeypatch.setattr(step, "run", lambda quick: [judged])
    assert benchmarks.measure("step", quick=True) == [{"bench": "step", **measured}]
    assert benchmarks.measure("step") == [{"bench": "step", **judged}]


@pytest.mark.slow
def test_it_runs_at_a_small_size() -> None:
    tables = {row["table"] for row in step.run(quick=True)}
    assert tables == {"step", "other fused losses", "Table A"}
