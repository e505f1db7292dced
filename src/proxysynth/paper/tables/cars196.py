"""Tables 1, 2, 3 and B, on CARS196: which parts of Proxy Synthesis matter and how lam is drawn;
deformed images, and deformed embeddings."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from proxysynth.data.deformations import DEFORMATIONS
from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Artifact, Cell, Column, ContactSheet, Pick, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cells import PAIR, cell, column, compared, method_name, papers, seeded
from proxysynth.protocols.conventional import embeddings_of
from proxysynth.protocols.deformation import UNDEFORMED, Deformation, contact_sheet
from proxysynth.protocols.embedding_deformation import LAMS, EmbeddingDeformation
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

ON = "cars196"

# Tables 1 and 2

PLAIN = NormSoftmax()
MODELS: dict[str, tuple[str, Any, Any]] = {
    "M1": ("M1 (baseline)", "original", "original"),
    "M2": ("M2", "synthetic", "synthetic"),
    "M3": ("M3", "original", "both"),
    "M4": ("M4", "synthetic", "both"),
    "PS": ("Proxy Synthesis", "both", "both"),
}
"""Labels, and which embeddings and proxies take part.                                 [Table 1]"""
Line = tuple[tuple[str, ...], Any, float | None]
"""Labels, the loss, and the paper's Recall@1."""


def _model(name: str) -> Line:
    label, *parts = MODELS[name]
    shown = ["original, synthetic" if part == "both" else part for part in parts]
    loss = PLAIN if name == "M1" else ProxySynthesis(PLAIN, embeddings=parts[0], proxies=parts[1])
    return (label, *shown), loss, number("table1", model=name)


def _generation(label: str, **given: Any) -> Line:
    """A fixed lam, or the alpha that it is drawn with."""
    ((kind, value),) = given.items()
    paper = number("table2", generation=kind, parameter=str(value))
    return (label, f"{value:g}"), ProxySynthesis(PLAIN, **given), paper


def _ablation(
    title: str, caption: str, stubs: tuple[str, ...], lines: Sequence[Line], base: str
) -> Artifact:
    def needs(scale: Scale, pick: Pick) -> Iterable[Run]:
        losses = (PLAIN, *(loss for _, loss, _ in lines))
        return (run for loss in losses for run in seeded(scale, ON, loss))

    def make(scale: Scale, store: Store) -> Table:
        rows = []
        for labels, loss, paper in lines:
            runs, plain = seeded(scale, ON, loss), seeded(scale, ON, PLAIN) * (loss != PLAIN)
            paper_plain = number("table1", model="M1") if plain else None
            recall = cell(store, runs, plain=plain, paper=paper, paper_baseline=paper_plain)
            rows.append(Row(labels, (recall, cell(store, runs, "map@r", plain))))
        columns = (column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R"))
        notes = (*cells.ran_on(scale, ON), f"Differences are against {base}.")
        return Table(title, caption, stubs, columns, tuple(rows), notes)

    return Artifact(make, needs)


# Tables 3 and B

PARTS = ("train", "test")
LOSSES = ("norm_softmax", "proxy_nca")


def runs_of(scale: Scale, loss: str, regularizer: str) -> tuple[Run, ...]:
    """A plain loss, or the loss under Proxy Synthesis with the paper's alpha and mu."""
    return seeded(scale, ON, trained_loss(loss, regularizer))


def mixed_recalls(store: Store, runs: Iterable[Run]) -> dict[str, dict[float, tuple[float, ...]]]:
    """Recall@1 (%) of mixed embeddings: part ("train", "test") -> lam -> one number per Run; empty
    unless every Run is finished.                                            [Table B, Figure 5]"""
    protocol = EmbeddingDeformation()

    def measure(model: Trained) -> dict[str, list[float]]:
        splits, found = open_splits(model.run), {}
        for part, listing in zip(PARTS, (splits.train, splits.query), strict=True):
            recalls = protocol(embeddings_of(model, listing), listing.labels)
            found[part] = [recalls[lam] for lam in protocol.lams]
        return found

    found = store.on_models("embedding_deformation", runs, protocol, measure)
    lams = list(enumerate(protocol.lams))
    return {
        part: {lam: tuple(100 * one[part][i] for one in found) for i, lam in lams}
        for part in (PARTS if found else ())
    }


def _table3(scale: Scale, store: Store) -> Table:
    protocol = Deformation(ks=(1,))

    def deformed(model: Trained) -> dict[str, float]:
        splits = open_splits(model.run)
        found = protocol(model, splits.query, splits.gallery)
        return {name: metrics["recall@1"] for name, metrics in found.items()}

    def pictures(model: Trained) -> str:
        png = contact_sheet(model, open_splits(model.run).query, protocol)
        return base64.b64encode(png).decode()

    runs = {reg: runs_of(scale, "norm_softmax", reg) for reg in PAIR}
    found = {reg: store.on_models("deformation_2", runs[reg], protocol, deformed) for reg in PAIR}

    def of(name: str, regularizer: str) -> Cell:
        def values(reg: str) -> tuple[float, ...]:
            return tuple(100 * one[name] for one in found[reg])

        return compared(values, regularizer, **papers("table3", regularizer, deformation=name))

    finished = [run for run in runs["none"] if store.result(run)]
    png = store.on_models("contact_sheet_2", finished[:1], protocol, pictures)
    caption = "Test images as the network sees them: undeformed, and in each deformation."
    return Table(
        "Table 3",
        "Recall@1 (%) where query and gallery are deformed in ways not seen in training.",
        ("deformation",),
        tuple(column(scale, ON, method_name("norm_softmax", reg), reg) for reg in PAIR),
        tuple(
            Row((name.replace("_", " "),), tuple(of(name, reg) for reg in PAIR))
            for name in (UNDEFORMED, *DEFORMATIONS)
        ),
        (
            *cells.ran_on(scale, ON),
            "The deformations follow section C.3, in our own code. Zoom in shows the middle half "
            "of each side, zoom out one and a half times it with a black border; the paper's "
            "wording also allows the opposite.",
        ),
        ContactSheet(base64.b64decode(png[0]), caption) if png else None,
    )


def _tableB(scale: Scale, store: Store) -> Table:
    groups = [(loss, part, reg) for loss in LOSSES for part in PARTS for reg in PAIR]
    found = {
        (loss, reg): mixed_recalls(store, runs_of(scale, loss, reg))
        for loss in LOSSES
        for reg in PAIR
    }

    def of(lam: float, loss: str, part: str, regularizer: str) -> Cell:
        def values(reg: str) -> tuple[float, ...]:
            return found[loss, reg].get(part, {}).get(lam, ())

        keys = {"loss": loss, "classes": part, "lam": f"{lam:.2f}"}
        return compared(values, regularizer, **papers("tableB", regularizer, **keys))

    return Table(
        "Table B",
        "Recall@1 (%) of mixed embeddings searching for others of the same two classes, over lam.",
        ("lam",),
        tuple(
            column(scale, ON, f"{method_name(loss, reg)}, {part}", f"{loss} {part} {reg}")
            for loss, part, reg in groups
        ),
        tuple(Row((f"{lam:.2f}",), tuple(of(lam, *group) for group in groups)) for lam in LAMS),
        (
            *cells.ran_on(scale, ON),
            "The paper does not say how pairs are drawn: here 100 seeded pairs of classes, both "
            "orders, 8 synthetics of each; the gallery holds all originals and the other "
            "synthetics.",
            cells.SQUARED_NCA,
        ),
    )


def needs(losses: Iterable[str], scale: Scale, pick: Pick) -> Iterable[Run]:
    """The Runs of these losses, without and with Proxy Synthesis."""
    return (run for loss in losses for reg in PAIR for run in runs_of(scale, loss, reg))


ARTIFACTS = {
    "table1": _ablation(
        "Table 1",
        "Recall@1 (%) with original and synthetic embeddings and proxies in Norm-softmax.",
        ("model", "embeddings", "proxies"),
        [_model(name) for name in MODELS],
        "M1, the plain loss",
    ),
    "table2": _ablation(
        "Table 2",
        "Recall@1 (%) of PS + Norm-softmax with a fixed lam and with lam drawn from "
        "Beta(alpha, alpha).",
        ("generation", "value"),
        [
            *(_generation("static lam", lam=lam) for lam in (0.1, 0.2, 0.3, 0.4, 0.5)),
            *(_generation("drawn, alpha", alpha=alpha) for alpha in (0.2, 0.4, 0.8, 1.0, 1.5)),
        ],
        "plain Norm-softmax, M1 of Table 1",
    ),
    "table3": Artifact(_table3, partial(needs, LOSSES[:1])),
    "tableB": Artifact(_tableB, partial(needs, LOSSES)),
}
