"""The curves of several runs in one figure for each measure."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from .comparison import Comparison
from .figures import Curve, curves
from .finished_run import Evaluation, FinishedRun
from .markup import Html, tag
from .numbers import name
from .svg import SERIES, inline_svg

DRAWN = ("recall@1", "map@r")
Value = Callable[[Evaluation], float | None]


def comparison_curves(comparison: Comparison, legend: Html) -> Html | None:
    """Recall@1, MAP@R and the loss over epochs; None where nothing was evaluated on the way."""
    figures = [_figure(comparison, key, f"{name(key)}, per cent", _percent(key)) for key in DRAWN]
    figures.append(_figure(comparison, "loss", "loss", lambda line: line.loss))
    drawn = [figure for figure in figures if figure is not None]
    if not drawn:
        return None
    return tag("section", tag("h2", "Training"), legend, tag("div", drawn, class_="figures"))


def _percent(key: str) -> Value:
    return lambda line: 100 * line.metrics[key] if key in line.metrics else None


def _figure(comparison: Comparison, key: str, title: str, value: Value) -> Html | None:
    lines = [
        curve for place in range(len(comparison.groups)) for curve in _of(comparison, place, value)
    ]
    if not lines:
        return None
    named = f"curve-{key.replace('@', '-')}"
    return tag("figure", inline_svg(curves(lines, title), named, f"{title} over epochs"))


def _of(comparison: Comparison, place: int, value: Value) -> list[Curve]:
    """A group's only run, or the mean of its runs with these behind it, faint."""
    group, color = comparison.groups[place], SERIES[place % len(SERIES)]
    each = [found for run in group.runs if (found := _points(run, value))]
    if not each:
        return []
    epochs = sorted(set.intersection(*map(set, each)))
    means = [fmean(found[epoch] for found in each) for epoch in epochs]
    behind = [Curve("", list(p), list(p.values()), color, faint=True) for p in each]
    return [*(behind if len(each) > 1 else ()), Curve(group.letter, epochs, means, color)]


def _points(run: FinishedRun, value: Value) -> dict[float, float]:
    return {line.epoch: found for line in run.history if (found := value(line)) is not None}
