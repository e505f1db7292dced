"""The bench of scale runs, and what it reports of work and traffic is what the algebra says."""

from __future__ import annotations

import pytest

from benchmarks import scale


def test_a_step_on_two_processes_is_measured() -> None:
    row = scale.growth(600, 2, quick=True)
    n, d, each = row["batch"], row["dim"], 300
    assert row["gigaflops"] * 1e9 == 4 * 2 * n * each * d
    # The batch's own proxies and logits, the gradient of the embeddings, and five numbers a row.
    assert row["travelled_mb"] * 2**20 == 4 * (n * n + 2 * n * d + 5 * n)
    assert row["step_s"] == pytest.approx(row["loss_s"] + row["network_s"] + row["optimizer_s"])
    assert row["peak_mb"] > 100


def test_the_slope_is_the_exponent() -> None:
    rows = [
        {"classes": c, "processes": 3, "loss_s": 2e-6 * c**0.8, "step_s": 1e-3 * c**0.5}
        for c in (1_000, 10_000, 100_000)
    ]
    rows[-1]["step_s"] *= 10.0
    made = scale.slope(rows)
    assert made["loss_slope"] == pytest.approx(0.8)
    assert made["loss_slope_last"] == pytest.approx(0.8)
    assert made["step_slope_last"] == pytest.approx(1.5)
    assert made["step_slope"] == pytest.approx(1.0)
    assert (made["processes"], made["from_classes"], made["to_classes"]) == (3, 1_000, 100_000)


@pytest.mark.slow
def test_a_failing_process_ends_all_with_its_message() -> None:
    with pytest.raises(RuntimeError, match="cannot be divided over 2 processes"):
        scale.growth(1, 2, quick=True)


@pytest.mark.slow
def test_it_runs_at_a_small_size() -> None:
    rows = scale.run(quick=True)
    tables = [row["table"] for row in rows]
    assert tables == ["scale", "scale", "slope"] * 2 + ["million"] * 3
    million = {row["optimizer"]: row for row in rows[-3:]}
    c, d = 2_000, 256
    assert million["sgd"]["state_mb_each"] == 0
    assert million["rowwise"]["state_mb_each"] * 2**20 == 4 * (c / 2 + 1)
    assert million["adam"]["state_mb_each"] * 2**20 == 4 * (2 * c / 2 * d + 1)
    assert all(row["reached"] for row in million.values())
