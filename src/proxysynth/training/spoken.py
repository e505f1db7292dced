"""How measures are called and printed for people."""

from __future__ import annotations

import math
from collections.abc import Iterable

NAMES = {
    "precision@1": "P@1",
    "r_precision": "R-precision",
    "map@r": "MAP@R",
    "nmi": "NMI",
}


def name(measure: str) -> str:
    """recall@1 -> Recall@1."""
    return NAMES.get(measure, measure[:1].upper() + measure[1:])


def percent(value: float | None, digits: int = 1) -> str:
    """0.9583 -> 95.8; a dash for what was not measured."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f}"


def listed(words: Iterable[str]) -> str:
    """a, b and c."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
