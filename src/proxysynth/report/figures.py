"""The drawings: curves over epochs, and the similarities of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from .svg import ALIKE, FAINT, INK, SERIES, UNLIKE

SIZE = (5.2, 3.1)  # inches; a phone shows it at two thirds, with letters that can still be read
LETTERS = 11


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Args:
        label: what stands at its end.
        x, y: its points.
        color: one of svg.SERIES.
        level: a value that stood before training, drawn as a dashed line; None for none.
        faint: drawn thin and without a label, as one of several seeds.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str = SERIES[0]
    level: float | None = None
    faint: bool = False


def curves(lines: Sequence[Curve], y_label: str, mark: float | None = None) -> Figure:
    """Lines over epochs, each named where it ends. `mark` is the epoch that is reported."""
    figure, axes = _empty()
    for line in lines:
        dots = "o" if len(line.x) == 1 else None  # one point makes no line
        width = 1.0 if line.faint else 2.0
        alpha = 0.45 if line.faint else 1.0
        axes.plot(line.x, line.y, color=line.color, linewidth=width, alpha=alpha, marker=dots)
        if line.level is not None:
            axes.update_datalim([(line.x[0], line.level)])
            axes.axhline(line.level, color=line.color, linewidth=1, linestyle=(0, (2, 3)))
    if mark is not None:
        axes.axvline(mark, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
    axes.set_xlabel("epoch")
    axes.set_title(y_label, loc="left", color=INK, fontsize=LETTERS)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.margins(x=0.02, y=0.07)
    _name_ends(axes, [line for line in lines if line.x and not line.faint])
    return figure


def histogram(alike: NDArray[np.float32], unlike: NDArray[np.float32]) -> Figure:
    """How similar pairs of one class are, and pairs of two, each as shares of its own kind."""
    figure, axes = _empty()
    low = min(float(alike.min()), float(unlike.min()), 0.9)
    edges = np.linspace(np.floor(low * 10) / 10, 1.0, 61)
    for values, color in ((unlike, UNLIKE), (alike, ALIKE)):
        share = np.histogram(np.clip(values, edges[0], 1.0), edges)[0] / len(values)
        axes.stairs(share, edges, fill=True, color=color, alpha=0.3, linewidth=0)
        axes.stairs(share, edges, color=color, linewidth=1.6)
    # Named at the ends towards which they lie: at their peaks the two names could meet.
    axes.set_title("different class", loc="left", color=UNLIKE, fontsize=LETTERS)
    axes.set_title("same class", loc="right", color=ALIKE, fontsize=LETTERS)
    axes.set_xlabel("cosine similarity")
    axes.set_ylim(0)
    axes.set_yticks([])
    return figure


def _empty() -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=LETTERS - 1)
    axes.xaxis.label.set(color=INK, fontsize=LETTERS)
    return figure, axes


def _name_ends(axes: Axes, lines: Sequence[Curve]) -> None:
    """The label of each line right of its end, moved apart where two would overlap."""
    if not lines:
        return
    low, high = axes.get_ylim()
    gap = (high - low) * 0.085
    places: dict[int, float] = {}
    floor = -np.inf
    for number in sorted(range(len(lines)), key=lambda i: lines[i].y[-1]):
        floor = max(lines[number].y[-1], floor + gap)
        places[number] = floor
    over = max(0.0, floor - high)  # pushed out at the top: all move down together
    right = max(line.x[-1] for line in lines)
    for number, line in enumerate(lines):
        axes.annotate(
            line.label, (right, places[number] - over), (6, 0), textcoords="offset points",
            color=line.color, va="center", fontsize=LETTERS, annotation_clip=False,
        )  # fmt: skip
