"""Figures 5 and A: Recall@1 of mixed embeddings over lam, and scores over alpha and mu."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from proxysynth.formatting import count
from proxysynth.paper.artifact import PaperFigure
from proxysynth.paper.figures import style
from proxysynth.paper.printed import rows_of
from proxysynth.paper.scale import NAMES, Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cars196 import ON, PARTS, Recalls, mixed_recalls
from proxysynth.paper.tables.cells import PAIR, measured, method_name, ran_as
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis

# Figure 5

METHODS = {method_name("norm_softmax", regularizer): regularizer for regularizer in PAIR}
LOOKS: dict[str, dict[str, Any]] = {
    "none": {"color": style.INK, "linestyle": (0, (4, 1.5)), "marker": "s"},
    "proxy_synthesis": {"color": style.GOLD, "linestyle": "-", "marker": "o"},
}


def _papers(part: str, regularizer: str) -> list[tuple[float, float]]:
    """The paper's Recall@1 over lam."""
    rows = rows_of("tableB", loss="norm_softmax", classes=part, regularizer=regularizer)
    return [(float(row["lam"]), float(row["value"])) for row in rows]


@style.styled
def draw_mixtures(found: Mapping[str, Recalls]) -> Figure:
    """Two panels, seen and unseen classes; our lines with bands, the paper's pale behind them."""
    figure, axes = style.panels(list(PARTS.values()), 2, height=3.2, sharey=True)
    handles = {}
    for part, ax in zip(PARTS, axes, strict=True):
        ax.set_xlabel(r"$\lambda$, share of the first class")
        ax.grid(axis="y", color=style.FAINT, linewidth=0.6)
        ax.set_axisbelow(True)
        ax.set_xticks([0.1, 0.3, 0.5, 0.7, 0.9])
        for method, regularizer in METHODS.items():
            name, at = f"{method}, the paper on {NAMES[ON]}", _papers(part, regularizer)
            look = {**LOOKS[regularizer], "marker": "", "alpha": 0.4, "lw": 1}
            handles[name] = ax.plot(*zip(*at, strict=True), label=name, **look)[0]
        for method, recalls in found.items():
            at_lam = recalls.get(part, {})
            lams = sorted(at_lam)
            means = [fmean(at_lam[lam]) for lam in lams]
            look = {**LOOKS[METHODS[method]], "markeredgecolor": "white", "markeredgewidth": 0.4}
            handles[method] = ax.plot(lams, means, label=method, markersize=4, **look)[0]
            if lams and len(at_lam[lams[0]]) > 1:
                middle, wide = np.array(means), np.array([stdev(at_lam[lam]) for lam in lams])
                band = {"color": look["color"], "alpha": 0.3, "linewidth": 0}
                ax.fill_between(lams, middle - wide, middle + wide, **band)
    axes[0].set_ylabel("Recall@1 (%)")
    style.legend_below(figure, list(handles.values()), ncols=2)
    return figure


def _figure5(scale: Scale, store: Store) -> PaperFigure:
    found = {
        method: mixed_recalls(store, cells.seeded(scale, ON, trained_loss("norm_softmax", reg)))
        for method, reg in METHODS.items()
    }
    data = [
        {"method": method, "classes": part, "lam": lam, "mean": fmean(v), "values": _listed(v)}
        for method, recalls in found.items()
        for part, at_lam in recalls.items()
        for lam, v in at_lam.items()
    ]
    lines = "Lines are of one seed."
    if len(scale.seeds) > 1:
        lines = f"Lines are means over {len(scale.seeds)} seeds, bands their standard deviation."
    return PaperFigure(
        "Figure 5",
        "Recall@1 of mixed embeddings searching for others of the same two classes, among these "
        f"and all originals, on {ran_as(scale, ON)}. The numbers are Table B's.",
        partial(draw_mixtures, found),
        data,
        (
            *cells.stands_for(scale, ON),
            lines,
            *cells.scale_notes(scale),
            _beside(found),
            *(f"{method} was not run." for method, recalls in found.items() if not recalls),
        ),
    )


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.6g}" for value in values)


def _beside(found: Mapping[str, Recalls]) -> str:
    """The means over lam, the paper's beside ours."""
    parts = []
    for part, label in PARTS.items():
        theirs = [fmean(value for _, value in _papers(part, reg)) for reg in PAIR]
        ours = [[fmean(v) for v in recalls.get(part, {}).values()] for recalls in found.values()]
        here = " and ".join(f"{fmean(values):.1f}" if values else "–" for values in ours)
        parts.append(f"{label} {theirs[0]:.1f} and {theirs[1]:.1f} in the paper, {here} here")
    return f"Means over lam, without and with Proxy Synthesis: {'; '.join(parts)}."


# Figure A

METRICS = {"recall@1": "Recall@1 (%)", "map@r": "MAP@R (%)"}
Scores = dict[tuple[float, float], tuple[float, ...]]
"""The scores of each (alpha, mu), one per seed; empty where it was not run."""


@style.styled
def draw_grids(grids: dict[str, Scores], alphas: Sequence[float], mus: Sequence[float]) -> Figure:
    """A heat map per grid, every cell with its number or a dash."""
    figure, axes = style.panels(list(grids), len(grids), height=0.9 + 0.42 * len(alphas))
    for grid, ax in zip(grids.values(), axes, strict=True):
        seeds = [[grid.get((alpha, mu), ()) for mu in mus] for alpha in alphas]
        values = np.array([[fmean(cell) if cell else np.nan for cell in row] for row in seeds])
        there = values[~np.isnan(values)]
        low, high = (there.min(), there.max()) if len(there) else (0.0, 1.0)
        room = max(high - low, 1e-9)
        # Keep the palest color off white, and the darkest from hiding its number.
        pale, dark = low - 0.1 * room, high + 0.25 * room
        ax.imshow(values, cmap=style.WARM, vmin=pale, vmax=dark, aspect="auto")
        style.without_ticks(ax)
        for (row, column), value in np.ndenumerate(values):
            cell = seeds[row][column]
            text = f"{value:.1f}" if cell else "–"
            text += f"\n±{stdev(cell):.1f}" if len(cell) > 1 else ""
            color = "white" if cell and (value - low) / room > 0.75 else style.INK
            ax.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
        if len(there):
            row, column = np.unravel_index(np.nanargmax(values), values.shape)
            at = (column - 0.47, row - 0.47)
            ax.add_patch(Rectangle(at, 0.94, 0.94, fill=False, color=style.INK, linewidth=1.6))
        ax.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
        ax.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
        ax.tick_params(length=0)
        ax.set_xlabel(r"$\mu$, synthetics per embedding")
        ax.set_ylabel(r"$\alpha$")
        for line, many in ((ax.axvline, len(mus)), (ax.axhline, len(alphas))):
            for edge in range(1, many):
                line(edge - 0.5, color=style.FAINT, linewidth=0.6)
    return figure


def _figureA(scale: Scale, store: Store) -> PaperFigure:
    alphas, mus, plain = scale.figure_alphas, scale.figure_mus, trained_loss("norm_softmax")
    runs = {
        (alpha, mu): cells.seeded(scale, ON, ProxySynthesis(plain, alpha=alpha, mu=mu))
        for alpha, mu in product(alphas, mus)
    }
    grids: dict[str, Scores] = {}
    data, spreads = [], []
    for metric, name in METRICS.items():
        grids[name] = {at: measured(store, each, metric) for at, each in runs.items()}
        for (alpha, mu), values in grids[name].items():
            about = {"metric": metric, "alpha": alpha, "mu": mu, "seeds": len(values)}
            data.append(
                {**about, "mean": fmean(values) if values else "", "values": _listed(values)}
            )
        if ran := [values for values in grids[name].values() if values]:
            means = [fmean(values) for values in ran]
            spreads.append(f"{name} lies between {min(means):.1f} and {max(means):.1f}")
            if len(ran[0]) > 1:
                within = f"a standard deviation of {fmean(map(stdev, ran)):.1f}"
                spreads[-1] += f", with {within} over the seeds of a cell"
    recall = grids[METRICS["recall@1"]]
    rows = {f"{alpha:g}": {f"{mu:g}": recall[alpha, mu] for mu in mus} for alpha in alphas}
    columns = {f"{mu:g}": f"mu {mu:g}" for mu in mus}
    return PaperFigure(
        "Figure A",
        f"Recall@1 and MAP@R of PS + Norm-softmax on {ran_as(scale, ON)} over alpha and mu; the "
        "best cell has a frame.",
        partial(draw_grids, grids, alphas, mus),
        data,
        (
            *cells.stands_for(scale, ON),
            f"Means over {count(len(scale.seeds), 'seed')}. "
            + (f"{'; '.join(spreads)}. " if spreads else "")
            + "The paper draws Recall@1 on CARS196 for alpha in 0.2, 0.4, 0.8, 1.0, 1.5, 2.0 and "
            "mu in 0.2, 0.5, 1.0, 1.5, 2.0 without printing its numbers.",
            *cells.scale_notes(scale),
        ),
        style.figure_table("Figure A", "alpha", columns, rows),
    )


ARTIFACTS = {"figure5": _figure5, "figureA": _figureA}
