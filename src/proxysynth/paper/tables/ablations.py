"""Tables 1 and 2: which parts of Proxy Synthesis matter, and how lam is drawn."""

from __future__ import annotations

from typing import Any

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Artifact, Cell, Column, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import cell, column, flat, ran_on, seeded
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.run import Run

ON = "cars196"
MODELS = {
    "M1": ("original", "original"),
    "M2": ("synthetic", "synthetic"),
    "M3": ("original", "both"),
    "M4": ("synthetic", "both"),
    "PS": ("both", "both"),
}
"""Which embeddings and proxies take part.                                             [Table 1]"""
LABELS = {"M1": "M1 (baseline)", "PS": "Proxy Synthesis"}
LAMS = (0.1, 0.2, 0.3, 0.4, 0.5)
ALPHAS = (0.2, 0.4, 0.8, 1.0, 1.5)


def _models(scale: Scale) -> dict[str, tuple[Run, ...]]:
    """The Runs of Table 1."""
    made: dict[str, tuple[Run, ...]] = {}
    for name, (embeddings, proxies) in MODELS.items():
        parts: Any = {"embeddings": embeddings, "proxies": proxies}
        loss = NormSoftmax() if name == "M1" else ProxySynthesis(NormSoftmax(), **parts)
        made[name] = seeded(scale, ON, loss)
    return made


def _generations(scale: Scale) -> dict[tuple[str, float], tuple[Run, ...]]:
    """The Runs of Table 2."""
    settings = [("lam", lam) for lam in LAMS] + [("alpha", alpha) for alpha in ALPHAS]
    made: dict[tuple[str, float], tuple[Run, ...]] = {}
    for kind, value in settings:
        generation: Any = {kind: value}
        made[kind, value] = seeded(scale, ON, ProxySynthesis(NormSoftmax(), **generation))
    return made


def _cells(
    store: Store, runs: tuple[Run, ...], plain: tuple[Run, ...], paper: float | None
) -> tuple[Cell, Cell]:
    """Recall@1 beside the paper's, and MAP@R; against the plain loss if it is given."""
    paper_plain = number("table1", model="M1") if plain else None
    return (
        cell(store, runs, paper, plain, paper_plain),
        cell(store, runs, plain=plain, metric="map@r"),
    )


def _columns(scale: Scale) -> tuple[Column, Column]:
    return column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R")


def _table1(scale: Scale, store: Store) -> Table:
    runs, rows = _models(scale), []
    for name, parts in MODELS.items():
        labels = [{"both": "original, synthetic"}.get(part, part) for part in parts]
        paper = number("table1", model=name)
        cells = _cells(store, runs[name], () if name == "M1" else runs["M1"], paper)
        rows.append(Row((LABELS.get(name, name), *labels), cells))
    return Table(
        "Table 1",
        "Recall@1 (%) with original and synthetic embeddings and proxies in Norm-softmax.",
        ("model", "embeddings", "proxies"),
        _columns(scale),
        tuple(rows),
        (*ran_on(scale, ON), "Differences are against M1, the plain loss."),
    )


def _table2(scale: Scale, store: Store) -> Table:
    plain, rows = seeded(scale, ON, NormSoftmax()), []
    labels = {"lam": "static lam", "alpha": "drawn, alpha"}
    for (kind, value), runs in _generations(scale).items():
        paper = number("table2", generation=kind, parameter=str(value))
        rows.append(Row((labels[kind], f"{value:g}"), _cells(store, runs, plain, paper)))
    return Table(
        "Table 2",
        "Recall@1 (%) of PS + Norm-softmax with a fixed lam and with lam drawn from "
        "Beta(alpha, alpha).",
        ("generation", "value"),
        _columns(scale),
        tuple(rows),
        (*ran_on(scale, ON), "Differences are against plain Norm-softmax, M1 of Table 1."),
    )


ARTIFACTS = {
    "table1": Artifact(lambda scale: flat(_models(scale).values()), _table1),
    "table2": Artifact(
        lambda scale: flat([seeded(scale, ON, NormSoftmax()), *_generations(scale).values()]),
        _table2,
    ),
}
