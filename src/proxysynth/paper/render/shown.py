"""What is shown of a cell: the words, and whether a difference is more than the seeds' spread."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import sqrt
from statistics import fmean, stdev
from typing import Literal

from proxysynth.paper.artifact import Cell
from proxysynth.report.statistics import Interval, paired_interval, t_quantile, unpaired_interval

DASH = "–"
Verdict = Literal["better", "worse", ""]


@dataclass(frozen=True)
class Shown:
    """A cell in words.

    Args:
        ours: "84.7 ± 0.3", or a dash where nothing was run.
        change: "+1.4" against the baseline, "" where there is nothing to compare.
        verdict: "better" or "worse" where the 95 % interval of the difference leaves out zero, ""
            where it does not or cannot be known.
        paper, paper_change: the same of what the paper prints; it has no interval of a difference.
    """

    ours: str
    change: str
    verdict: Verdict
    paper: str
    paper_change: str


def show(cell: Cell) -> Shown:
    """The cell in words."""
    if cell.text:
        return Shown(cell.text, "", "", cell.text, "")
    change = difference(cell)
    return Shown(
        ours=_ours(cell),
        change="" if change is None or cell.gain else signed(change, cell.digits),
        verdict=verdict(cell),
        paper=_paper(cell),
        paper_change=""
        if cell.paper is None or cell.paper_baseline is None
        else signed(cell.paper - cell.paper_baseline, cell.digits),
    )


def difference(cell: Cell) -> float | None:
    """The mean of ours minus that of the baseline."""
    return fmean(cell.ours) - fmean(cell.against) if cell.ours and cell.against else None


@cache
def interval(cell: Cell) -> Interval | None:
    """The 95 % interval of that difference; None where a spread cannot be known."""
    ours, base = cell.ours, cell.against
    if min(len(ours), len(base)) < 2:
        return None
    if cell.paired and len(ours) == len(base):
        return paired_interval(base, ours)
    return unpaired_interval(base, ours)


def verdict(cell: Cell) -> Verdict:
    """Whether the seeds' spread supports a difference."""
    found = interval(cell)
    if found is None or not cell.better or found[0] <= 0 <= found[1]:
        return ""
    return "better" if (found[0] > 0) == (cell.better > 0) else "worse"


def signed(value: float, digits: int) -> str:
    """+1.4, -0.2, and 0.0 without a sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def _ours(cell: Cell) -> str:
    if not cell.ours:
        return DASH
    mark = " *" if cell.chosen else ""
    mean = _number(fmean(cell.ours), cell)
    if len(cell.ours) < 2:
        return f"{mean}{mark}"
    spread = stdev(cell.ours)
    if cell.of_mean:
        spread *= t_quantile(0.95, len(cell.ours) - 1) / sqrt(len(cell.ours))
    return f"{mean} ± {spread:.{cell.digits}f}{mark}"


def _paper(cell: Cell) -> str:
    if cell.paper is None:
        return DASH
    spread = "" if cell.paper_spread is None else f" ± {cell.paper_spread:.{cell.digits}f}"
    return f"{_number(cell.paper, cell)}{spread}"


def _number(value: float, cell: Cell) -> str:
    return signed(value, cell.digits) if cell.gain else f"{value:.{cell.digits}f}"
