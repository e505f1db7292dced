"""Figure A: scores over alpha and mu."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from proxysynth.formatting import count
from proxysynth.paper.artifact import Artifact, PaperFigure, Table
from proxysynth.paper.figures import style
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import measured, ran_as, scale_notes, seeded, stands_for
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.run import Run

ON = "cars196"
METRICS = {"recall@1": "Recall@1 (%)", "map@r": "MAP@R (%)"}
Grid = dict[tuple[float, float], tuple[float, ...]]
"""The scores of each (alpha, mu), one per seed; empty where it was not run."""


@style.styled
def draw_grids(grids: dict[str, Grid], alphas: Sequence[float], mus: Sequence[float]) -> Figure:
    """A heat map per grid, every cell with its number or a dash."""
    figure, axes = style.panels(1, len(grids), height=0.9 + 0.42 * len(alphas))
    for letter, (name, grid), one in zip("abcd", grids.items(), axes, strict=False):
        _heat_map(one, grid, alphas, mus)
        style.lettered(one, letter, name)
    return figure


def _heat_map(axes: Axes, grid: Grid, alphas: Sequence[float], mus: Sequence[float]) -> None:
    seeds = [[grid.get((alpha, mu), ()) for mu in mus] for alpha in alphas]
    values = np.array([[fmean(cell) if cell else np.nan for cell in row] for row in seeds])
    there = values[~np.isnan(values)]
    low, high = (there.min(), there.max()) if len(there) else (0.0, 1.0)
    room = max(high - low, 1e-9)
    # Keep the palest color off white, and the darkest from hiding its number.
    limits = {"vmin": low - 0.1 * room, "vmax": high + 0.25 * room}
    axes.imshow(values, cmap=style.WARM, aspect="auto", **limits)
    style.without_ticks(axes)
    for (row, column), value in np.ndenumerate(values):
        cell = seeds[row][column]
        text = f"{value:.1f}" if cell else "–"
        text += f"\n±{stdev(cell):.1f}" if len(cell) > 1 else ""
        color = "white" if cell and (value - low) / room > 0.75 else style.INK
        axes.text(column, row, text, ha="center", va="center", color=color, fontsize=8)
    if len(there):
        row, column = np.unravel_index(np.nanargmax(values), values.shape)
        at, look = (column - 0.47, row - 0.47), {"color": style.INK, "linewidth": 1.6}
        axes.add_patch(Rectangle(at, 0.94, 0.94, fill=False, **look))
    axes.set_xticks(range(len(mus)), [f"{mu:g}" for mu in mus])
    axes.set_yticks(range(len(alphas)), [f"{alpha:g}" for alpha in alphas])
    axes.tick_params(length=0)
    axes.set_xlabel(r"$\mu$, synthetics per embedding")
    axes.set_ylabel(r"$\alpha$")
    for line, many in ((axes.axvline, len(mus)), (axes.axhline, len(alphas))):
        for edge in range(1, many):
            line(edge - 0.5, color=style.FAINT, linewidth=0.6)


def runs_of(scale: Scale) -> dict[tuple[float, float], tuple[Run, ...]]:
    """The Runs of each cell, one per seed."""
    plain = trained_loss("norm_softmax")
    return {
        (alpha, mu): seeded(scale, ON, ProxySynthesis(plain, alpha=alpha, mu=mu))
        for alpha in scale.figure_alphas
        for mu in scale.figure_mus
    }


def _spread(name: str, grid: Grid) -> list[str]:
    """How far cells differ, and how far the seeds of one cell do."""
    cells = [values for values in grid.values() if values]
    if not cells:
        return []
    means = [fmean(values) for values in cells]
    note = f"{name} lies between {min(means):.1f} and {max(means):.1f}"
    if len(cells[0]) > 1:
        within = fmean(stdev(values) for values in cells)
        note += f", with a standard deviation of {within:.1f} over the seeds of a cell"
    return [note]


def _make(scale: Scale, store: Store) -> PaperFigure:
    grids: dict[str, Grid] = {}
    data: list[dict[str, Any]] = []
    for metric, name in METRICS.items():
        grids[name] = {at: measured(store, runs, metric) for at, runs in runs_of(scale).items()}
        for (alpha, mu), values in grids[name].items():
            data.append({"metric": metric, "alpha": alpha, "mu": mu, "seeds": len(values),
                         "mean": fmean(values) if values else "",
                         "values": " ".join(f"{value:.6g}" for value in values)})  # fmt: skip
    spread = "; ".join(note for name, grid in grids.items() for note in _spread(name, grid))
    return PaperFigure(
        "Figure A",
        f"Recall@1 and MAP@R of PS + Norm-softmax on {ran_as(scale, ON)} over alpha and mu; the "
        "best cell has a frame.",
        draw_grids(grids, scale.figure_alphas, scale.figure_mus),
        data,
        (
            *stands_for(scale, ON),
            f"Means over {count(len(scale.seeds), 'seed')}. "
            + (f"{spread}. " if spread else "")
            + "The paper draws Recall@1 on CARS196 for alpha in 0.2, 0.4, 0.8, 1.0, 1.5, 2.0 and "
            "mu in 0.2, 0.5, 1.0, 1.5, 2.0 without printing its numbers.",
            *scale_notes(scale),
        ),
        grid_table(scale, store),
    )


def grid_table(scale: Scale, store: Store) -> Table:
    """Recall@1 with a row per alpha and a column per mu. The paper's figure prints no numbers."""
    rows: dict[str, dict[str, tuple[float, ...]]] = {}
    for (alpha, mu), runs in runs_of(scale).items():
        rows.setdefault(f"{alpha:g}", {})[f"{mu:g}"] = measured(store, runs)
    columns = {f"{mu:g}": f"mu {mu:g}" for mu in scale.figure_mus}
    return style.figure_table("Figure A", "alpha", columns, rows)


ARTIFACTS = {
    "figureA": Artifact(
        _make,
        lambda scale, pick: (run for runs in runs_of(scale).values() for run in runs),
        grid_table,
    )
}
