"""Cells as values and as text."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean, stdev

import pytest
from scipy import stats

from proxysynth.formatting import DASH
from proxysynth.paper.artifact import Cell
from proxysynth.paper.render import cell_text, signed

PAIRED = Cell((90.0, 80.0, 70.0), baseline=(89.0, 79.1, 68.9))


def test_missing_result_is_a_dash() -> None:
    text = cell_text(Cell(paper=84.7, baseline=(83.0, 83.2), paper_baseline=83.3))
    assert (text.ours, text.change, text.verdict) == (DASH, "", "")
    assert (text.paper, text.paper_change) == ("84.7", "+1.4")
    assert cell_text(Cell()).paper == DASH


def test_cell_text_formatting() -> None:
    cell = Cell((84.0, 85.0, 86.0), 65.65, 0.3, baseline=(83.0, 84.5, 84.0), digits=2)
    text = cell_text(cell)
    assert text.ours == "85.00 ± 1.00"
    assert text.paper == "65.65 ± 0.30"
    assert text.change == "+1.17"
    assert cell_text(Cell((50.0,), chosen=True)).ours == "50.0 *"
    assert cell_text(Cell(text="n/a")).ours == "n/a"
    assert [signed(x, 1) for x in (0.04, -0.04, 0.06, -0.06)] == ["0.0", "0.0", "+0.1", "-0.1"]


def test_paired_seeds_are_compared_pairwise() -> None:
    assert PAIRED.verdict == "better"  # each seed gains about 1, however far apart the seeds are
    assert replace(PAIRED, paired=False).verdict == ""


def test_difference_within_the_spread_has_no_verdict() -> None:
    noisy = Cell((84.0, 90.0, 80.0), baseline=(83.0, 85.0, 84.0))
    assert cell_text(noisy).change != ""
    assert noisy.verdict == ""


@pytest.mark.parametrize("ours", [(85.0,), (85.0, 85.1, 85.2)])
def test_one_seed_has_no_spread_and_no_verdict(ours: tuple[float, ...]) -> None:
    assert Cell(ours, baseline=(50.0,)).verdict == ""


def test_smaller_can_be_better() -> None:
    slower = Cell((2.0, 2.1, 2.05), baseline=(1.0, 1.1, 1.05), better=-1)
    assert slower.verdict == "worse"
    assert replace(slower, better=0).verdict == ""


def test_intervals_match_scipy() -> None:
    a, b = (83.0, 84.5, 84.0, 82.0), (84.0, 85.0, 86.0, 84.1)
    d = [y - x for x, y in zip(a, b, strict=True)]
    half = stats.t.ppf(0.975, 3) * stdev(d) / 2
    paired = Cell(b, baseline=a)
    assert paired.interval == pytest.approx((fmean(d) - half, fmean(d) + half), abs=1e-9)
    found = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    welch = replace(paired, paired=False)
    assert welch.interval == pytest.approx((found.low, found.high), abs=1e-9)
