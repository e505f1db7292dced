"""Draws docs/when_it_helps.svg and .png from results/study_glyph_classes.csv and _scales.csv.

python docs/make_when.py [FOLDER OF RESULTS] [FOLDER]
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxysynth.paper.figures.style import BLUE, FAINT, GOLD, INK, panels, styled
from proxysynth.report.figures import write_figure
from proxysynth.report.statistics import paired_interval

DOCS = Path(__file__).parent
KINDS = {"none": ("Norm-softmax", INK, "o"), "proxy_synthesis": ("with Proxy Synthesis", GOLD, "D")}
LINES = ((BLUE, "o", 0.97), (INK, "s", 1.03))
"""Color, marker, and a step aside, so that intervals do not cover each other."""

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """The rows of a study; none if it was never made."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def by_seed(rows: list[Row], kind: str) -> dict[int, float]:
    return {int(r["seed"]): 100 * float(r["map@r"]) for r in rows if r["regularizer"] == kind}


def gain_by_classes(axes: Axes, rows: list[Row], letter: str) -> None:
    """The change of MAP@R over the number of seen classes, one line per number of images."""
    _titled(axes, letter, "Gain by the number of seen classes")
    axes.axhline(0, color=FAINT, zorder=0)
    kinds = sorted({int(r["per_class"]) for r in rows})
    for (color, mark, aside), faces in zip(LINES, kinds, strict=False):
        xs, middle, low, high = [], [], [], []
        for classes in sorted({int(r["classes"]) for r in rows}):
            here = [r for r in rows if (int(r["classes"]), int(r["per_class"])) == (classes, faces)]
            plain, mixed = by_seed(here, "none"), by_seed(here, "proxy_synthesis")
            seeds = sorted(plain.keys() & mixed.keys())
            if len(seeds) < 2:
                continue
            a, b = [plain[s] for s in seeds], [mixed[s] for s in seeds]
            gain, (bottom, top) = fmean(b) - fmean(a), paired_interval(a, b)
            xs.append(aside * classes)
            middle.append(gain)
            low.append(gain - bottom)
            high.append(top - gain)
        axes.errorbar(
            xs, middle, yerr=(low, high), color=color, marker=mark, markersize=4.5, capsize=2.5,
            elinewidth=0.9, label=f"{faces} images per class",
        )  # fmt: skip
    _numbered(axes, sorted({int(r["classes"]) for r in rows}))
    axes.set_xlabel("seen classes")
    axes.set_ylabel("change of MAP@R, points")
    axes.legend()


def level_by_scale(axes: Axes, rows: list[Row], letter: str) -> None:
    """MAP@R over the scale of Norm-softmax; bars are intervals of the difference, by seed."""
    _titled(axes, letter, "MAP@R by the scale of the loss")
    scales = sorted({float(r["scale"]) for r in rows})
    levels: dict[str, list[float]] = {kind: [] for kind in KINDS}
    low, high = [], []
    for scale in scales:
        here = [r for r in rows if float(r["scale"]) == scale]
        plain, mixed = (by_seed(here, kind) for kind in KINDS)
        seeds = sorted(plain.keys() & mixed.keys())
        a, b = [plain[s] for s in seeds], [mixed[s] for s in seeds]
        for kind, values in zip(KINDS, (a, b), strict=True):
            levels[kind].append(fmean(values))
        bottom, top = paired_interval(a, b)
        low.append(fmean(b) - fmean(a) - bottom)
        high.append(top - (fmean(b) - fmean(a)))
    for kind, (label, color, mark) in KINDS.items():
        bars = None if kind == "none" else (low, high)
        axes.errorbar(
            scales, levels[kind], yerr=bars, color=color, marker=mark, markersize=4.5,
            capsize=2.5, elinewidth=0.9, label=label,
        )  # fmt: skip
    _numbered(axes, scales)
    axes.set_xlabel("scale")
    axes.set_ylabel("MAP@R, held-out seen classes")
    axes.legend()


def _titled(axes: Axes, letter: str, text: str) -> None:
    shown = rf"$\bf{{({letter})}}$ {text}" if letter else text  # no letter: the only panel
    axes.set_title(shown, loc="left", fontsize=9.5, color=INK)


def _numbered(axes: Axes, values: list[int] | list[float]) -> None:
    axes.set_xscale("log")
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()


@styled
def draw(results: Path) -> Figure:
    parts = {"glyph_classes": gain_by_classes, "glyph_scales": level_by_scale}
    made = {name: rows for name in parts if (rows := read(results / f"study_{name}.csv"))}
    figure, axes = panels([""] * len(made), len(made), width=3.6 * len(made), height=3.0)
    for letter, place, (name, rows) in zip("ab", axes, made.items(), strict=False):
        parts[name](place, rows, letter if len(made) > 1 else "")
    return figure


def main(results: Path, folder: Path) -> None:
    look = {"fonts": "path", "dpi": 200, "bbox_inches": "tight"}
    write_figure(draw(results), folder, "when_it_helps", **look)


if __name__ == "__main__":
    given = [Path(word) for word in sys.argv[1:]]
    main(given[0] if given else DOCS.parent / "results", given[1] if given[1:] else DOCS)
