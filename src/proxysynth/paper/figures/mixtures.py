"""Figure 5: Recall@1 of embeddings mixed from two classes, over lam."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from proxysynth.paper.artifact import Artifact, PaperFigure
from proxysynth.paper.figures.style import (
    FAINT,
    GOLD,
    INK,
    PAGE,
    legend_below,
    lettered,
    panels,
    styled,
)
from proxysynth.paper.printed import rows_of
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import scale_notes, stands_for
from proxysynth.paper.tables.robustness import ON, mixed_recalls, runs_of

METHODS = {"Norm-softmax": "none", "PS + Norm-softmax": "proxy_synthesis"}
LINES: dict[str, dict[str, Any]] = {
    "Norm-softmax": {"color": INK, "marker": "s", "linestyle": (0, (4, 1.5))},
    "PS + Norm-softmax": {"color": GOLD, "marker": "o", "linestyle": "-"},
}
for _line in LINES.values():
    _line |= {"markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.4}
PARTS = {"train": "seen classes", "test": "unseen classes"}
Recalls = Mapping[str, Mapping[float, tuple[float, ...]]]
"""Recall@1 (%) by part and lam, a number per seed."""


@styled
def draw_mixtures(found: Mapping[str, Recalls]) -> Figure:
    """Two panels, seen and unseen classes; our lines with bands, the paper's pale behind them."""
    figure, axes = panels(1, 2, width=PAGE, height=3.2, sharey=True)
    handles = {}
    for letter, (part, label), one in zip("ab", PARTS.items(), axes, strict=True):
        _frame(one)
        for method, regularizer in METHODS.items():
            theirs = rows_of("tableB", loss="norm_softmax", classes=part, regularizer=regularizer)
            at = [(float(row["lam"]), float(row["value"])) for row in theirs]
            line = {key: LINES[method][key] for key in ("color", "linestyle")}
            name = f"{method}, the paper on {NAMES[ON]}"
            handles[name] = one.plot(*zip(*at, strict=True), label=name, alpha=0.4, lw=1, **line)[0]
        for method, recalls in found.items():
            at_lam = recalls.get(part, {})
            lams = sorted(at_lam)
            means = [fmean(at_lam[lam]) for lam in lams]
            handles[method] = one.plot(lams, means, label=method, **LINES[method])[0]
            if lams and len(at_lam[lams[0]]) > 1:
                wide = [stdev(at_lam[lam]) for lam in lams]
                low = [a - b for a, b in zip(means, wide, strict=True)]
                high = [a + b for a, b in zip(means, wide, strict=True)]
                color = LINES[method]["color"]
                one.fill_between(lams, low, high, color=color, alpha=0.3, linewidth=0)
        lettered(one, letter, label)
    axes[0].set_ylabel("Recall@1 (%)")
    legend_below(figure, list(handles.values()), ncols=2)
    return figure


def _frame(axes: Axes) -> None:
    axes.set_xlabel(r"$\lambda$, share of the first class")
    axes.grid(axis="y", color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xticks([0.1, 0.3, 0.5, 0.7, 0.9])


def _make(scale: Scale, store: Store) -> PaperFigure:
    found = {
        method: mixed_recalls(store, runs_of(scale, "norm_softmax", regularizer))
        for method, regularizer in METHODS.items()
    }
    data = [
        {"method": method, "classes": part, "lam": lam, "mean": fmean(values),
         "values": " ".join(f"{value:.6g}" for value in values)}
        for method, recalls in found.items()
        for part, at_lam in recalls.items()
        for lam, values in at_lam.items()
    ]  # fmt: skip
    missing = [method for method, recalls in found.items() if not recalls]
    return PaperFigure(
        "Figure 5",
        "Recall@1 of mixed embeddings searching for others of the same two classes, among these "
        f"and all originals, on {scale.heading(ON) or NAMES[ON]}. The numbers are Table B's.",
        draw_mixtures(found),
        data,
        (
            *stands_for(scale, ON),
            _seeds(scale),
            *scale_notes(scale),
            _beside(found),
            *(f"{method} was not run." for method in missing),
        ),
    )


def _seeds(scale: Scale) -> str:
    if len(scale.seeds) == 1:
        return "Lines are of one seed."
    return f"Lines are means over {len(scale.seeds)} seeds, bands their standard deviation."


def _beside(found: Mapping[str, Recalls]) -> str:
    """The means over lam, the paper's beside ours."""
    parts = []
    for part, label in PARTS.items():
        theirs, ours = [], []
        for method, regularizer in METHODS.items():
            keys = {"loss": "norm_softmax", "classes": part, "regularizer": regularizer}
            theirs.append(f"{fmean(float(row['value']) for row in rows_of('tableB', **keys)):.1f}")
            at_lam = found[method].get(part, {})
            ours.append(f"{fmean(fmean(v) for v in at_lam.values()):.1f}" if at_lam else "–")
        parts.append(
            f"{label} {theirs[0]} and {theirs[1]} in the paper, {ours[0]} and {ours[1]} here"
        )
    return f"Means over lam, without and with Proxy Synthesis: {'; '.join(parts)}."


ARTIFACTS = {
    "figure5": Artifact(
        _make,
        lambda scale, pick: (
            run for reg in METHODS.values() for run in runs_of(scale, "norm_softmax", reg)
        ),
    )
}
