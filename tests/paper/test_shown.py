"""Colours only where the spread supports them, dashes where nothing ran."""

from __future__ import annotations

from statistics import fmean, stdev

import pytest
from scipy import stats

from proxysynth.paper.artifact import Cell
from proxysynth.paper.render.shown import DASH, interval, show, signed, verdict


def test_what_was_not_run_is_a_dash() -> None:
    shown = show(Cell(paper=84.7, baseline=(83.0, 83.2), paper_baseline=83.3))
    assert (shown.ours, shown.change, shown.verdict) == (DASH, "", "")
    assert (shown.paper, shown.paper_change) == ("84.7", "+1.4")
    assert show(Cell()).paper == DASH


def test_numbers_in_words() -> None:
    cell = Cell((84.0, 85.0, 86.0), 65.65, 0.3, baseline=(83.0, 84.5, 84.0), digits=2)
    shown = show(cell)
    assert shown.ours == "85.00 ± 1.00"
    assert shown.paper == "65.65 ± 0.30"
    assert shown.change == "+1.17"
    assert show(Cell((50.0,), chosen=True)).ours == "50.0 *"
    assert show(Cell(text="n/a")).ours == "n/a"
    assert [signed(x, 1) for x in (0.04, -0.04, 0.06, -0.06)] == ["0.0", "0.0", "+0.1", "-0.1"]


PAIRED = Cell((90.0, 80.0, 70.0), baseline=(89.0, 79.1, 68.9))


def test_seeds_that_belong_together_are_compared_one_by_one() -> None:
    assert verdict(PAIRED) == "better"  # each seed gains about 1, however far the seeds lie apart
    apart = Cell(PAIRED.ours, baseline=PAIRED.baseline, paired=False)
    assert verdict(apart) == ""


def test_a_difference_within_the_spread_has_no_colour() -> None:
    noisy = Cell((84.0, 90.0, 80.0), baseline=(83.0, 85.0, 84.0))
    assert show(noisy).change != ""
    assert verdict(noisy) == ""


@pytest.mark.parametrize("ours", [(85.0,), (85.0, 85.1, 85.2)])
def test_one_seed_has_no_spread_and_no_colour(ours: tuple[float, ...]) -> None:
    assert verdict(Cell(ours, baseline=(50.0,))) == ""


def test_smaller_may_be_better() -> None:
    slower = Cell((2.0, 2.1, 2.05), baseline=(1.0, 1.1, 1.05), better=-1)
    assert verdict(slower) == "worse"
    assert verdict(Cell(slower.ours, baseline=slower.baseline, better=0)) == ""


def test_intervals_are_those_of_scipy() -> None:
    a, b = (83.0, 84.5, 84.0, 82.0), (84.0, 85.0, 86.0, 84.1)
    paired = interval(Cell(b, baseline=a))
    d = [y - x for x, y in zip(a, b, strict=True)]
    half = stats.t.ppf(0.975, 3) * stdev(d) / 2
    assert paired == pytest.approx((fmean(d) - half, fmean(d) + half), abs=1e-9)
    welch = interval(Cell(b, baseline=a, paired=False))
    found = stats.ttest_ind(b, a, equal_var=False).confidence_interval()
    assert welch == pytest.approx((found.low, found.high), abs=1e-9)
