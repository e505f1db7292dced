"""The drawings of a study: what its trials gave, and which parameters mattered."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from proxysynth.files import write_bytes

from . import svg

SIZE = (6.2, 3.4)
LETTERS = 11


@dataclass(frozen=True)
class Palette:
    """The colours of a drawing."""

    ink: str
    faint: str
    trial: str
    best: str


ON_PAGE = Palette(svg.INK, svg.FAINT, svg.SERIES[7], svg.SERIES[0])
IN_FILE = Palette("#3c434d", "#e3e6eb", "#8b93a0", "#3f51c7")


def history(search: Sequence[Mapping[str, Any]], colors: Palette) -> Figure:
    """The value of each trial, and the best so far as a line."""
    figure, axes = _empty(colors)
    axes.grid(axis="y", color=colors.faint, linewidth=0.8)
    whole = [trial for trial in search if not trial["pruned"]]
    best, line = -1.0, []
    for trial in whole:
        best = max(best, 100 * trial["value"])
        line.append(best)
    numbers = [trial["index"] + 1 for trial in whole]
    axes.step([*numbers, len(search)], [*line, best], where="post", color=colors.best, linewidth=2)
    for pruned, marker in ((False, "o"), (True, "x")):
        some = [trial for trial in search if trial["pruned"] is pruned]
        axes.scatter(
            [trial["index"] + 1 for trial in some],
            [100 * trial["value"] for trial in some],
            color=colors.trial, marker=marker, s=30, zorder=3,
        )  # fmt: skip
    axes.set_xlabel("trial")
    axes.set_title("validation MAP@R, per cent", loc="left", color=colors.ink, fontsize=LETTERS)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.margins(x=0.04, y=0.1)
    return figure


def importances(shares: Mapping[str, float], colors: Palette) -> Figure:
    """A bar for each parameter."""
    figure, axes = _empty(colors)
    names = list(shares)[::-1]
    axes.barh(names, [100 * shares[name] for name in names], color=colors.best, height=0.55)
    for place, name in enumerate(names):
        axes.annotate(
            f"{100 * shares[name]:.0f}", (100 * shares[name], place), (5, 0),
            textcoords="offset points", va="center", color=colors.ink, fontsize=LETTERS - 1,
        )  # fmt: skip
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.margins(x=0.1)
    axes.set_title(
        "share of what tells better trials from others, per cent",
        loc="left", x=0, color=colors.ink, fontsize=LETTERS,
    )  # fmt: skip
    return figure


def write_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """The drawing as PNG and SVG."""
    paths = []
    with rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        for kind, extra in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
            file = io.BytesIO()
            figure.savefig(file, format=kind, facecolor="white", **extra)
            paths.append(folder / f"{name}.{kind}")
            write_bytes(paths[-1], file.getvalue())
    return paths


def _empty(colors: Palette) -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(colors.faint)
    axes.set_axisbelow(True)
    axes.tick_params(colors=colors.ink, length=0, labelsize=LETTERS - 1)
    axes.xaxis.label.set(color=colors.ink, fontsize=LETTERS)
    return figure, axes
