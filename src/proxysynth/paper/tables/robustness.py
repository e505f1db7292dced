"""Tables 3 and B: deformed images, and deformed embeddings."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from functools import partial

from proxysynth.data.deformations import DEFORMATIONS
from proxysynth.paper.artifact import Artifact, Cell, ContactSheet, Pick, Row, Table
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import (
    PAIR,
    SQUARED_NCA,
    column,
    compared,
    method_name,
    ran_on,
    seeded,
)
from proxysynth.protocols.conventional import embeddings_of
from proxysynth.protocols.deformation import UNDEFORMED, Deformation, contact_sheet
from proxysynth.protocols.embedding_deformation import LAMS, EmbeddingDeformation
from proxysynth.training.inference import Trained
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

ON = "cars196"
PARTS = ("train", "test")
LOSSES = ("norm_softmax", "proxy_nca")


def runs_of(scale: Scale, loss: str, regularizer: str) -> tuple[Run, ...]:
    """A plain loss, or the loss under Proxy Synthesis with the paper's alpha and mu."""
    return seeded(scale, ON, trained_loss(loss, regularizer))


def deformed_recalls(store: Store, runs: Iterable[Run]) -> dict[str, tuple[float, ...]]:
    """Recall@1 (%) of each Run on deformed images, by deformation."""
    protocol = Deformation(ks=(1,))

    def measure(model: Trained) -> dict[str, float]:
        splits = open_splits(model.run)
        found = protocol(model, splits.query, splits.gallery)
        return {name: metrics["recall@1"] for name, metrics in found.items()}

    found = store.on_models("deformation_2", runs, protocol, measure)
    names = (UNDEFORMED, *DEFORMATIONS) if found else ()
    return {name: tuple(100 * one[name] for one in found) for name in names}


def mixed_recalls(store: Store, runs: Iterable[Run]) -> dict[str, dict[float, tuple[float, ...]]]:
    """Recall@1 (%) of mixed embeddings: part ("train", "test") -> lam -> one number per Run.

    Empty unless every Run is finished.                                      [Table B, Figure 5]
    """
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
    found = {reg: deformed_recalls(store, runs_of(scale, "norm_softmax", reg)) for reg in PAIR}

    def cell(name: str, regularizer: str) -> Cell:
        return compared(
            lambda reg: found[reg].get(name, ()), regularizer, "table3", deformation=name
        )

    return Table(
        "Table 3",
        "Recall@1 (%) where query and gallery are deformed in ways not seen in training.",
        ("deformation",),
        tuple(column(scale, ON, method_name("norm_softmax", reg), reg) for reg in PAIR),
        tuple(
            Row((name.replace("_", " "),), tuple(cell(name, reg) for reg in PAIR))
            for name in (UNDEFORMED, *DEFORMATIONS)
        ),
        (
            *ran_on(scale, ON),
            "The deformations follow section C.3, in our own code. Zoom in shows the middle half "
            "of each side, zoom out one and a half times it with a black border; the paper's "
            "wording also allows the opposite.",
        ),
        _sheet(scale, store),
    )


def _sheet(scale: Scale, store: Store) -> ContactSheet | None:
    """Some test images as the network sees them, in each deformation."""
    runs = [run for run in runs_of(scale, "norm_softmax", "none") if store.result(run)]
    protocol = Deformation(ks=(1,))

    def measure(model: Trained) -> str:
        png = contact_sheet(model, open_splits(model.run).query, protocol)
        return base64.b64encode(png).decode()

    found = store.on_models("contact_sheet_2", runs[:1], protocol, measure)
    caption = "Test images as the network sees them: undeformed, and in each deformation."
    return ContactSheet(base64.b64decode(found[0]), caption) if found else None


def _tableB(scale: Scale, store: Store) -> Table:
    groups = [(loss, part, reg) for loss in LOSSES for part in PARTS for reg in PAIR]
    found = {
        (loss, reg): mixed_recalls(store, runs_of(scale, loss, reg))
        for loss in LOSSES
        for reg in PAIR
    }

    def cell(lam: float, loss: str, part: str, regularizer: str) -> Cell:
        return compared(
            lambda reg: found[loss, reg].get(part, {}).get(lam, ()),
            regularizer, "tableB", loss=loss, classes=part, lam=f"{lam:.2f}",
        )  # fmt: skip

    return Table(
        "Table B",
        "Recall@1 (%) of mixed embeddings searching for others of the same two classes, over lam.",
        ("lam",),
        tuple(
            column(scale, ON, f"{method_name(loss, reg)}, {part}", f"{loss} {part} {reg}")
            for loss, part, reg in groups
        ),
        tuple(Row((f"{lam:.2f}",), tuple(cell(lam, *group) for group in groups)) for lam in LAMS),
        (
            *ran_on(scale, ON),
            "The paper does not say how pairs are drawn: here 100 seeded pairs of classes, both "
            "orders, 8 synthetics of each; the gallery holds all originals and the other "
            "synthetics.",
            SQUARED_NCA,
        ),
    )


def _needs(losses: Iterable[str], scale: Scale, pick: Pick) -> Iterable[Run]:
    return (run for loss in losses for reg in PAIR for run in runs_of(scale, loss, reg))


ARTIFACTS = {
    "table3": Artifact(_table3, partial(_needs, LOSSES[:1])),
    "tableB": Artifact(_tableB, partial(_needs, LOSSES)),
}
