"""How measures and amounts are named and printed for people."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from proxysynth.training.spoken import listed, name, percent

__all__ = ["count", "duration", "heading", "listed", "measures", "name", "percent", "points"]

COUNTS = frozenset({"queries", "queries_without_positive"})


def measures(*results: Mapping[str, object]) -> list[str]:
    """The measures among the results: accuracy, Recall@k by k, R-precision, MAP@R, others. P@1
    stands in only where Recall@1, which is the same, does not."""
    keys = [
        key
        for key in dict.fromkeys(key for result in results for key in result)
        if key not in COUNTS
        and any(isinstance(result.get(key), (int, float)) for result in results)
    ]
    if "recall@1" in keys:
        keys = [key for key in keys if key != "precision@1"]
    last = ["precision@1", "r_precision", "map@r", "nmi"]

    def place(key: str) -> tuple[int, int]:
        if key == "accuracy":  # measured where it is what the run is about
            return 0, 0
        k = _k(key)
        return (2, last.index(key) if key in last else len(last)) if k is None else (1, k)

    return sorted(keys, key=place)


def heading(measure: str) -> str:
    """The name over a column: its number may go to a second line, Recall over @1."""
    return re.sub(r"(?<=[a-z])(?=@)|(?<=-)(?=precision)", "\n", name(measure))


def points(value: float | None, digits: int = 1) -> str:
    """A difference of two fractions in percentage points, with its sign: 0.012 -> +1.2."""
    if value is None or not math.isfinite(value):
        return "–"
    shown = f"{100 * value:+.{digits}f}".replace("-", "−")
    return shown.lstrip("+−") if float(shown.replace("−", "-")) == 0 else shown


def count(n: int, singular: str, plural: str | None = None) -> str:
    """1 picture, 1,600 pictures."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def duration(seconds: float) -> str:
    """75 -> 1 min 15 s."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _k(measure: str) -> int | None:
    found = re.fullmatch(r"recall@(\d+)", measure)
    return int(found[1]) if found else None
