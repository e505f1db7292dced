"""The look of all figures: one color per thing throughout, text that is legible at half size.

    red, blue   seen classes, where there are two            blue   seen classes, where many
    gray        unseen classes                               gold   synthetic
    ink         Norm-softmax, and all text                   gold   with Proxy Synthesis

Red, blue, gold and gray differ in lightness as well as hue, so they stay distinct for color-blind
readers and in gray print; marks differ in shape too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike

from proxysynth.paper.artifact import Cell, Column, Table, grid

INK = "#22272e"
FAINT = "#d5d9de"
RED = "#c8321f"
BLUE = "#1f6fb4"
GRAY = "#8d939b"
GOLD = "#e09000"
DARK_GOLD = "#9a5d00"  # edges of gold marks, and gold letters
DARK_BLUE = "#0d3a63"

PAGE = 7.0  # inches: the width of a page

RED_TO_BLUE = LinearSegmentedColormap.from_list(
    "red_to_blue", ["#e0796b", "#f0b0a6", "#ffffff", "#a9cbea", "#6ba3d6"]
)
"""Confidence: red at 0 (certainly red), white at 1/2, blue at 1."""
WARM = "YlOrBr"
"""Of a grid of scores; light to dark, so that it works in gray print."""
COLD_TO_HOT = "RdYlBu_r"
"""Of cosines: blue is low, red is high, as the paper describes its Figure 4."""

styled = rc_context(fname=Path(__file__).with_name("paper.mplstyle"))
"""Decorator of every drawing function; the reader's own matplotlib settings do not matter."""


def panels(
    titles: Sequence[str],
    columns: int,
    *,
    width: float = PAGE,
    height: float,
    pad: float | None = None,
    **options: Any,
) -> tuple[Figure, list[Axes]]:
    """A figure with its size in inches, and a panel for each title, row by row: "(a) title". `pad`
    is between title and panel, in points; `options` of `subplots`."""
    layout = ConstrainedLayoutEngine(w_pad=0.05, h_pad=0.05, wspace=0.03, hspace=0.05)
    figure = Figure(figsize=(width, height), layout=layout, dpi=200)
    axes = figure.subplots(len(titles) // columns, columns, squeeze=False, **options)
    for letter, title, ax in zip(ascii_lowercase, titles, axes.flat, strict=False):
        text = rf"$\bf{{({letter})}}$ {title}" if title else ""
        ax.set_title(text, loc="left", fontsize=9.5, color=INK, pad=pad)
    return figure, list(axes.flat)


def dots(axes: Axes, points: ArrayLike, size: float, color: str, **options: Any) -> None:
    """Points (n, 2) with a thin white edge."""
    x, y = np.asarray(points, float).reshape(-1, 2).T
    axes.scatter(x, y, s=size, color=color, **{"edgecolor": "white", "linewidth": 0.6, **options})


def mark(shape: str, color: str, label: str, size: float, edge: str, **options: Any) -> Line2D:
    """A mark of the legend."""
    return Line2D(
        [], [], linestyle="none", marker=shape, color=color, markeredgecolor=edge,
        markersize=size, label=label, **options,
    )  # fmt: skip


def legend_below(figure: Figure, handles: Sequence[Artist], ncols: int | None = None) -> None:
    """One legend for all panels, under them."""
    figure.legend(handles=handles, loc="outside lower center", ncols=ncols or len(handles))


def without_ticks(axes: Axes) -> None:
    """A frame without ticks, for axes without a unit."""
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color(FAINT)


@styled
def not_run(message: str) -> Figure:
    """A placeholder for a figure whose Runs are missing: a dash and the reason."""
    figure, (axes,) = panels([""], 1, height=1.2)
    without_ticks(axes)
    axes.text(0.5, 0.5, f"–   {message}", ha="center", va="center", wrap=True, fontsize=9)
    return figure


Numbers = dict[str, dict[str, tuple[float, ...]]]
"""By row and column, one per seed."""


def figure_table(
    title: str, stub: str, columns: dict[str, str], rows: Numbers, base: str = "", digits: int = 1
) -> Table:
    """The numbers behind a figure, which claims read; differences are against the row `base`."""

    def cell(row: str, key: str) -> Cell:
        baseline = rows[base].get(key, ()) if base not in ("", row) else ()
        return Cell(rows[row].get(key, ()), baseline=baseline, digits=digits, better=0)

    heads = {Column(name or key, "here", "", key): (key,) for key, name in columns.items()}
    return Table(title, "", (stub,), *grid(heads, {(row,): (row,) for row in rows}, cell))
