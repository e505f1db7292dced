"""Figures, and how they become SVG inside a page.

For a page a figure is drawn with placeholder colors, which become CSS variables: one drawing serves
light and dark mode, and the page's font sets the labels.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from proxysynth.files import write_bytes
from proxysynth.retrieval.calibration import CELLS, PairCounts

SIZE = (5.2, 3.1)  # inches; a phone shows it at two thirds, with letters that are still legible
FONT_SIZE = 11

INK = "#010101"  # text and axes
FAINT = "#010102"  # grid lines
SERIES = tuple(f"#0102{number:02x}" for number in range(8))
"""Placeholders of --series-0 to --series-7."""
SAME = "#010301"  # pairs of the same class
DIFFERENT = "#010302"  # pairs of different classes

VARIABLES = {INK: "muted", FAINT: "line", SAME: "right", DIFFERENT: "wrong"}
VARIABLES |= {color: f"series-{number}" for number, color in enumerate(SERIES)}
"""CSS variables that take the place of these colors."""


@dataclass(frozen=True)
class Curve:
    """One line of a figure."""

    label: str  # in the legend, if not empty
    x: Sequence[float]
    y: Sequence[float]
    color: str = SERIES[0]
    level: float | None = None  # a reference value, drawn as a dashed line
    faint: bool = False  # drawn thin and without a label, as one of several seeds


def curves(
    lines: Sequence[Curve], y_label: str, mark: float | None = None, x_label: str = "epoch"
) -> Figure:
    """Lines over epochs or another x. `mark` is the x that is reported."""
    figure, axes = _empty(y_label)
    for line in lines:
        marker = "o" if len(line.x) == 1 else None  # one point makes no line
        width, alpha = (1.0, 0.45) if line.faint else (2.0, 1.0)
        axes.plot(
            line.x, line.y, color=line.color, linewidth=width, alpha=alpha, marker=marker,
            label=line.label or None,
        )  # fmt: skip
        if line.level is not None:
            axes.update_datalim([(line.x[0], line.level)])
            axes.axhline(line.level, color=line.color, linewidth=1, linestyle=(0, (5, 3)))
    if mark is not None:
        axes.axvline(mark, color=INK, linewidth=0.8, linestyle=(0, (1, 3)))
    axes.set_xlabel(x_label)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=x_label == "epoch"))
    if x_label == "epoch" and len(seen := {x for line in lines for x in line.x}) == 1:
        axes.set_xticks([*seen])  # around a single epoch, matplotlib would show fractions
    axes.margins(x=0.02, y=0.07)
    if any(line.label for line in lines):
        figure.legend(
            loc="outside upper right", ncols=len(lines), frameon=False, labelcolor="linecolor",
            fontsize=FONT_SIZE, handlelength=1, columnspacing=1,
        )  # fmt: skip
    return figure


def histogram(pairs: PairCounts, threshold: float | None = None) -> Figure:
    """Similarities of same-class and of different-class pairs, each as shares of its kind, and the
    threshold as a dotted line."""
    figure, axes = _empty()
    at = np.linspace(-1, 1, CELLS)
    low = min(at[np.flatnonzero(pairs.same + pairs.different)[0]], 0.9)
    edges = np.linspace(np.floor(low * 10) / 10, 1.0, 61)
    for counts, color in ((pairs.different, DIFFERENT), (pairs.same, SAME)):
        share = np.histogram(at, edges, weights=counts / counts.sum())[0]
        axes.stairs(share, edges, fill=True, color=color, alpha=0.3, linewidth=0)
        axes.stairs(share, edges, color=color, linewidth=1.6)
    if threshold is not None:
        axes.axvline(threshold, color=INK, linewidth=1, linestyle=(0, (1, 2)))
    # Labels above, left and right: at their peaks the two could overlap.
    axes.set_title("different class", loc="left", color=DIFFERENT, fontsize=FONT_SIZE)
    axes.set_title("same class", loc="right", color=SAME, fontsize=FONT_SIZE)
    axes.set_xlabel("cosine similarity")
    axes.set_ylim(0)
    axes.set_yticks([])
    return figure


def roc(points: Sequence[Sequence[float]]) -> Figure:
    """True accept rate over false accept rate, which is on a logarithmic scale; in percent."""
    figure, axes = _empty("true accepts, %")
    far, tar = ([100 * point[i] for point in points if point[0] > 0] for i in (0, 1))
    axes.plot(far, tar, color=SAME, linewidth=2, marker="o" if len(far) == 1 else None)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set_xlabel("false accepts, %")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(0, 102)
    return figure


def trial_history(search: Sequence[Mapping[str, Any]]) -> Figure:
    """The value of each trial of a study, and the best so far as a line."""
    figure, axes = _empty("validation MAP@R, %")
    complete = [trial for trial in search if not trial["pruned"]]
    best = np.maximum.accumulate([100 * trial["value"] for trial in complete]).tolist()
    numbers = [trial["index"] + 1 for trial in complete]
    axes.step(
        [*numbers, len(search)], [*best, best[-1]], where="post", color=SERIES[0], linewidth=2
    )
    for pruned, marker in ((False, "o"), (True, "x")):
        some = [trial for trial in search if trial["pruned"] is pruned]
        x = [trial["index"] + 1 for trial in some]
        y = [100 * trial["value"] for trial in some]
        axes.scatter(x, y, color=SERIES[7], marker=marker, s=30, zorder=3)
    axes.set_xlabel("trial")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axes.margins(x=0.04, y=0.1)
    return figure


def inline_svg(figure: Figure, name: str, description: str) -> Markup:
    """The figure, drawn with the placeholder colors of this module, as an <svg> element.

    The name is unique in the page and prefixes the ids inside; screen readers read the description.
    """
    file = io.StringIO()
    # A fixed salt and no date make the output deterministic.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        metadata = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=metadata)
    head, _, body = file.getvalue().partition("<svg")[2].partition(">")
    box = re.findall(r'viewBox="[^"]+"', head)[0]
    # A <style> here would apply to the whole page.
    for foreign in (r"<!--.*?-->\s*", r"<style.*?</style>\s*", r" font-family: [^;\"]*;"):
        body = re.sub(foreign, "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r'xlink:href="#', f'href="#{name}-', body)
    body = body.replace("url(#", f"url(#{name}-")
    body = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?px)[^;\"]*", r"font-size: \1", body)
    for color, variable in VARIABLES.items():
        body = re.sub(f"(fill|stroke): {color}", rf"\1: var(--{variable})", body)
    start = f'<svg class="figure" {box} role="img" aria-label="{escape(description)}">'
    return Markup(start + body.strip())


NO_DATES = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}


def write_figure(
    figure: Figure,
    folder: Path,
    name: str,
    kinds: Sequence[str] = ("png", "svg"),
    fonts: str = "none",
    **options: Any,
) -> list[Path]:
    """Write the figure as NAME in each format; the same figure always gives the same files. `fonts`
    is matplotlib's `svg.fonttype`; `options` of `savefig`."""
    paths = []
    with rc_context({"svg.hashsalt": name, "svg.fonttype": fonts}):
        for kind in kinds:
            file = io.BytesIO()
            look = {"dpi": 160, "facecolor": "white", "metadata": NO_DATES[kind], **options}
            figure.savefig(file, format=kind, **look)
            paths.append(folder / f"{name}.{kind}")
            write_bytes(paths[-1], file.getvalue())
    return paths


def _empty(title: str = "") -> tuple[Figure, Axes]:
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.add_subplot()
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(FAINT)
    axes.grid(axis="y", color=FAINT, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, length=0, labelsize=FONT_SIZE - 1)
    axes.xaxis.label.set(color=INK, fontsize=FONT_SIZE)
    axes.set_title(title, loc="left", color=INK, fontsize=FONT_SIZE)
    return figure, axes
