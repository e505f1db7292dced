"""Tables 1 and 2: which parts of Proxy Synthesis matter, and how lam is drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Artifact, Column, Pick, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import cell, column, ran_on, seeded
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.run import Run

ON = "cars196"
PLAIN = NormSoftmax()
MODELS = {
    "M1": ("M1 (baseline)", "original", "original"),
    "M2": ("M2", "synthetic", "synthetic"),
    "M3": ("M3", "original", "both"),
    "M4": ("M4", "synthetic", "both"),
    "PS": ("Proxy Synthesis", "both", "both"),
}
"""Labels, and which embeddings and proxies take part.                                 [Table 1]"""
MODEL_NAMES = tuple(label for label, _, _ in MODELS.values())
GENERATIONS = {
    "lam": ("static lam", (0.1, 0.2, 0.3, 0.4, 0.5)),
    "alpha": ("drawn, alpha", (0.2, 0.4, 0.8, 1.0, 1.5)),
}
"""How lam is fixed or drawn.                                                          [Table 2]"""
Line = tuple[tuple[str, ...], Any, float | None]
"""Labels, the loss, and the paper's Recall@1."""


def _lines1() -> Iterable[Line]:
    for name, (label, *parts) in MODELS.items():
        taking: Any = dict(zip(("embeddings", "proxies"), parts, strict=True))
        shown = ["original, synthetic" if part == "both" else part for part in parts]
        loss = PLAIN if name == "M1" else ProxySynthesis(PLAIN, **taking)
        yield (label, *shown), loss, number("table1", model=name)


def _lines2() -> Iterable[Line]:
    for kind, (label, values) in GENERATIONS.items():
        for value in values:
            given: Any = {kind: value}
            paper = number("table2", generation=kind, parameter=str(value))
            yield (label, f"{value:g}"), ProxySynthesis(PLAIN, **given), paper


def _artifact(
    title: str, caption: str, stubs: tuple[str, ...], lines: Callable[[], Iterable[Line]], base: str
) -> Artifact:
    def needs(scale: Scale, pick: Pick) -> Iterable[Run]:
        losses = (PLAIN, *(loss for _, loss, _ in lines()))
        return (run for loss in losses for run in seeded(scale, ON, loss))

    def make(scale: Scale, store: Store) -> Table:
        rows = []
        for labels, loss, paper in lines():
            runs, plain = seeded(scale, ON, loss), seeded(scale, ON, PLAIN) * (loss != PLAIN)
            paper_plain = number("table1", model="M1") if plain else None
            recall = cell(store, runs, paper, plain, paper_plain)
            rows.append(Row(labels, (recall, cell(store, runs, plain=plain, metric="map@r"))))
        columns = (column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R"))
        notes = (*ran_on(scale, ON), f"Differences are against {base}.")
        return Table(title, caption, stubs, columns, tuple(rows), notes)

    return Artifact(make, needs)


ARTIFACTS = {
    "table1": _artifact(
        "Table 1",
        "Recall@1 (%) with original and synthetic embeddings and proxies in Norm-softmax.",
        ("model", "embeddings", "proxies"),
        _lines1,
        "M1, the plain loss",
    ),
    "table2": _artifact(
        "Table 2",
        "Recall@1 (%) of PS + Norm-softmax with a fixed lam and with lam drawn from "
        "Beta(alpha, alpha).",
        ("generation", "value"),
        _lines2,
        "plain Norm-softmax, M1 of Table 1",
    ),
}
