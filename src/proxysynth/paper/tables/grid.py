"""The grid of Figure A as a table, which claims read: Recall@1 over alpha and mu."""

from __future__ import annotations

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Cell, Column, Line, Table
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import measured, seeded
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.run import Run

ON = "cars196"


def grid_runs(scale: Scale, alpha: float, mu: float) -> tuple[Run, ...]:
    """PS + Norm-softmax with this alpha and mu, one Run per seed."""
    return seeded(scale, ON, ProxySynthesis(NormSoftmax(), alpha=alpha, mu=mu))


def grid_table(scale: Scale, store: Store) -> Table:
    """A row per alpha, a column per mu. The paper's figure prints no numbers."""
    return Table(
        "Figure A",
        "Recall@1 (%) of PS + Norm-softmax over alpha and mu.",
        ("alpha",),
        tuple(Column(f"mu {mu:g}", scale.heading(ON), "", f"{mu:g}") for mu in scale.figure_mus),
        tuple(
            Line(
                (f"{alpha:g}",),
                tuple(
                    Cell(measured(store, grid_runs(scale, alpha, mu))) for mu in scale.figure_mus
                ),
            )
            for alpha in scale.figure_alphas
        ),
    )
