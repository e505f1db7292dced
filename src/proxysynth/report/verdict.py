"""Whether a difference is more than the luck of seeds, in words."""

from __future__ import annotations

from .comparison import Comparison
from .groups import Contrast, Spread
from .numbers import name, percent, points

MAIN = ("accuracy", "recall@1", "map@r")  # a sentence for each; the table has them all


def with_spread(spread: Spread | None) -> str:
    """95.80 ± 0.21 of several runs, 95.80 of one."""
    if spread is None:
        return "–"
    middle = percent(spread.mean, 2)
    return middle if spread.deviation is None else f"{middle} ± {percent(spread.deviation, 2)}"


def between(contrast: Contrast) -> str:
    """The interval of a difference, +0.61 to +1.80."""
    if contrast.interval is None:
        return "–"
    low, high = contrast.interval
    return f"{points(low, 2)} to {points(high, 2)}"


def short(contrast: Contrast) -> str:
    """A few words for a cell."""
    if contrast.within_spread is None:
        return "one run each"
    if contrast.within_spread:
        return "within the spread"
    if contrast.interval is not None and contrast.interval[0] <= 0 <= contrast.interval[1]:
        return "beyond the spread, but the interval includes zero"
    return "beyond the spread"


def no_difference(comparison: Comparison) -> str:
    """What to say where no setting tells the groups apart."""
    if len(comparison.groups) == 1:
        return "They differ in the seed alone."
    return "They differ in none: the same was trained more than once."


def verdicts(comparison: Comparison) -> list[str]:
    """A sentence for each group and each of the main measures."""
    return [
        sentence(contrast, comparison)
        for contrast in comparison.contrasts
        if contrast.measure in MAIN and contrast.within_spread is not None
    ]


def sentence(contrast: Contrast, comparison: Comparison) -> str:
    """B is 1.20 points above A in Recall@1, ..."""
    first = comparison.groups[0]
    other = comparison.group(contrast.letter)
    size = points(abs(contrast.difference), 2).lstrip("+")
    place = "above" if contrast.difference > 0 else "below"
    told = f"{other.letter} is {size} points {place} {first.letter} in {name(contrast.measure)}"
    if contrast.difference == 0:
        told = f"{other.letter} and {first.letter} have the same {name(contrast.measure)}"
    spreads = [
        f"{group.letter} ± {percent(spread.deviation, 2)} over {spread.n} seeds"
        for group in (first, other)
        if (spread := group.spread(contrast.measure)) and spread.deviation is not None
    ]
    within = "within" if contrast.within_spread else "more than"
    told += f", {within} the spread of seeds ({', '.join(spreads)})"
    if contrast.interval is None:
        return f"{told}; with two seeds each there would be an interval too."
    how = "seed by seed" if contrast.paired else "as unpaired groups"
    low, high = contrast.interval
    zero = "which includes zero" if low <= 0 <= high else "which leaves out zero"
    return (
        f"{told}; compared {how}, the 95 per cent interval of the difference is "
        f"{between(contrast)}, {zero}."
    )
