"""Figure 5: Recall@1 of embeddings mixed from two classes, over lam."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from proxysynth.paper.artifact import Artifact, PaperFigure
from proxysynth.paper.figures import style
from proxysynth.paper.printed import rows_of
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import PAIR, method_name, ran_as, scale_notes, stands_for
from proxysynth.paper.tables.robustness import ON, mixed_recalls, runs_of

METHODS = {method_name("norm_softmax", regularizer): regularizer for regularizer in PAIR}
LOOKS: dict[str, dict[str, Any]] = {
    "none": {"color": style.INK, "linestyle": (0, (4, 1.5))},
    "proxy_synthesis": {"color": style.GOLD, "linestyle": "-"},
}
MARKS = {"none": "s", "proxy_synthesis": "o"}
PARTS = {"train": "seen classes", "test": "unseen classes"}
Recalls = Mapping[str, Mapping[float, tuple[float, ...]]]
"""Recall@1 (%) by part and lam, a number per seed."""


def _papers(part: str, regularizer: str) -> list[tuple[float, float]]:
    """The paper's Recall@1 over lam."""
    rows = rows_of("tableB", loss="norm_softmax", classes=part, regularizer=regularizer)
    return [(float(row["lam"]), float(row["value"])) for row in rows]


@style.styled
def draw_mixtures(found: Mapping[str, Recalls]) -> Figure:
    """Two panels, seen and unseen classes; our lines with bands, the paper's pale behind them."""
    figure, axes = style.panels(1, 2, height=3.2, sharey=True)
    handles = {}
    for letter, (part, label), one in zip("ab", PARTS.items(), axes, strict=True):
        one.set_xlabel(r"$\lambda$, share of the first class")
        one.grid(axis="y", color=style.FAINT, linewidth=0.6)
        one.set_axisbelow(True)
        one.set_xticks([0.1, 0.3, 0.5, 0.7, 0.9])
        for method, regularizer in METHODS.items():
            name, look = f"{method}, the paper on {NAMES[ON]}", LOOKS[regularizer]
            at = zip(*_papers(part, regularizer), strict=True)
            handles[name] = one.plot(*at, label=name, alpha=0.4, lw=1, **look)[0]
        for method, recalls in found.items():
            at_lam = recalls.get(part, {})
            lams, look = sorted(at_lam), LOOKS[METHODS[method]]
            means = [fmean(at_lam[lam]) for lam in lams]
            handles[method] = one.plot(
                lams, means, label=method, marker=MARKS[METHODS[method]], markersize=4,
                markeredgecolor="white", markeredgewidth=0.4, **look,
            )[0]  # fmt: skip
            if lams and len(at_lam[lams[0]]) > 1:
                middle, wide = np.array(means), np.array([stdev(at_lam[lam]) for lam in lams])
                band = {"color": look["color"], "alpha": 0.3, "linewidth": 0}
                one.fill_between(lams, middle - wide, middle + wide, **band)
        style.lettered(one, letter, label)
    axes[0].set_ylabel("Recall@1 (%)")
    style.legend_below(figure, list(handles.values()), ncols=2)
    return figure


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
    seeds = len(scale.seeds)
    return PaperFigure(
        "Figure 5",
        "Recall@1 of mixed embeddings searching for others of the same two classes, among these "
        f"and all originals, on {ran_as(scale, ON)}. The numbers are Table B's.",
        draw_mixtures(found),
        data,
        (
            *stands_for(scale, ON),
            f"Lines are means over {seeds} seeds, bands their standard deviation."
            if seeds > 1
            else "Lines are of one seed.",
            *scale_notes(scale),
            _beside(found),
            *(f"{method} was not run." for method, recalls in found.items() if not recalls),
        ),
    )


def _beside(found: Mapping[str, Recalls]) -> str:
    """The means over lam, the paper's beside ours."""
    parts = []
    for part, label in PARTS.items():
        theirs = [fmean(value for _, value in _papers(part, reg)) for reg in PAIR]
        ours = [[fmean(v) for v in recalls.get(part, {}).values()] for recalls in found.values()]
        here = " and ".join(f"{fmean(values):.1f}" if values else "–" for values in ours)
        parts.append(f"{label} {theirs[0]:.1f} and {theirs[1]:.1f} in the paper, {here} here")
    return f"Means over lam, without and with Proxy Synthesis: {'; '.join(parts)}."


ARTIFACTS = {
    "figure5": Artifact(
        _make,
        lambda scale, pick: (run for reg in PAIR for run in runs_of(scale, "norm_softmax", reg)),
    )
}
