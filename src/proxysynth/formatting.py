"""Metric names, numbers and durations as shown in messages, tables and reports."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

METRIC_NAMES = {"precision@1": "P@1", "r_precision": "R-precision", "map@r": "MAP@R", "nmi": "NMI"}
NOT_METRICS = {"epoch", "step", "loss", "queries", "queries_without_positive"}
ORDER = {metric: i for i, metric in enumerate(METRIC_NAMES)}  # after accuracy and Recall@k
DASH = "–"  # not run, not measured


def metric_name(metric: str) -> str:
    """recall@1 -> Recall@1."""
    return METRIC_NAMES.get(metric, metric[:1].upper() + metric[1:])


def metric_heading(metric: str) -> str:
    """A metric's name for a narrow column: R@1, R-prec."""
    return metric_name(metric).replace("Recall@", "R@").replace("R-precision", "R-prec")


def metric_keys(*results: Mapping[str, object]) -> list[str]:
    """The metrics of some results in the usual order: accuracy, Recall@k by k, R-precision, MAP@R,
    others. P@1 is listed only where Recall@1, which is the same, is not."""
    numbers = [k for result in results for k, v in result.items() if isinstance(v, (int, float))]
    hidden = NOT_METRICS | {"precision@1"} if "recall@1" in numbers else NOT_METRICS

    def position(key: str) -> tuple[int, int]:
        if recall := re.fullmatch(r"recall@(\d+)", key):
            return 1, int(recall[1])
        return (0, 0) if key == "accuracy" else (2, ORDER.get(key, len(ORDER)))

    return sorted((key for key in dict.fromkeys(numbers) if key not in hidden), key=position)


def percent(value: float | None, digits: int = 1) -> str:
    """0.9583 -> 95.8; a dash if not measured."""
    return DASH if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f}"


def points(value: float | None, digits: int = 1) -> str:
    """A difference of two fractions in percentage points, with its sign: 0.012 -> +1.2."""
    if value is None or not math.isfinite(value):
        return DASH
    return signed(100 * value, digits).replace("-", "−")


def signed(value: float, digits: int) -> str:
    """+1.4, -0.2, and 0.0 without a sign."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def change(before: float, after: float, digits: int = 2) -> float:
    """The difference of two fractions as `percent` shows them, so that it matches them."""
    return (round(100 * after, digits) - round(100 * before, digits)) / 100


def count(n: int, singular: str, plural: str | None = None) -> str:
    """1 picture, 1,600 pictures."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def and_join(items: Iterable[str]) -> str:
    """a, b and c."""
    return _join(items, " and ")


def or_join(items: Iterable[str]) -> str:
    """a, b or c."""
    return _join(items, " or ")


def _join(items: Iterable[str], word: str) -> str:
    items = list(items)
    return word.join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)


def duration(seconds: float, rough: bool = False) -> str:
    """75 -> 1 min 15 s; with `rough`, for estimates, 1 min."""
    if seconds < 59.5:
        return f"{seconds:.{0 if rough else 1}f} s"
    minutes = round(seconds / 60) if rough else round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min" if rough else f"{minutes} min {round(seconds) % 60} s"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{round(minutes / 60 / 24)} days"


def distinct_captions(labels: Iterable[str], width: int = 30) -> dict[str, str]:
    """Each label shortened to `width` characters, such that different labels stay different.

    Keeps the beginning if that tells the labels apart, else the end, else both, else all of it.
    """
    tail = (width - 1) // 2
    captions: dict[str, str] = {}
    waiting = list(dict.fromkeys(labels))
    for shorten in (
        lambda label: f"{label[: width - 1]}…",
        lambda label: f"…{label[1 - width :]}",
        lambda label: f"{label[: width - 1 - tail]}…{label[-tail:]}",
        lambda label: label,
    ):
        made = {label: label if len(label) <= width else shorten(label) for label in waiting}
        uses = Counter([*made.values(), *captions.values()])
        captions |= {label: text for label, text in made.items() if uses[text] == 1}
        waiting = [label for label in waiting if label not in captions]
    return captions


def printable(text: object) -> str:
    """A file name as shown in a message: control characters are escaped, so that a name cannot
    move the cursor or change the title of a terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))
