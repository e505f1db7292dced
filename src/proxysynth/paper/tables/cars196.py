"""Tables 1, 2, 3 and B, on CARS196: which parts of Proxy Synthesis matter and how lam is drawn;
deformed images, and deformed embeddings."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from itertools import product
from typing import Any

from proxysynth.data.deformations import DEFORMATIONS
from proxysynth.losses import NormSoftmax
from proxysynth.paper.artifact import Cell, Column, Table, grid
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
BOTH = "original, synthetic"
MODELS = {
    ("M1 (baseline)", "original", "original"): "M1",
    ("M2", "synthetic", "synthetic"): "M2",
    ("M3", "original", BOTH): "M3",
    ("M4", "synthetic", BOTH): "M4",
    ("Proxy Synthesis", BOTH, BOTH): "PS",
}
"""Labels, with the embeddings and proxies that take part, and the model in numbers/table1.csv."""
GENERATIONS: dict[str, Any] = {
    "lam": ("static lam", (0.1, 0.2, 0.3, 0.4, 0.5)),
    "alpha": ("drawn, alpha", (0.2, 0.4, 0.8, 1.0, 1.5)),
}
"""A fixed lam, or the alpha that it is drawn with.                                    [Table 2]"""


def _table1(scale: Scale, store: Store) -> Table:
    lines: Lines = {}
    for labels, model in MODELS.items():
        parts: Any = ["both" if part == BOTH else part for part in labels[1:]]
        mixed = ProxySynthesis(PLAIN, embeddings=parts[0], proxies=parts[1])
        lines[labels] = (PLAIN if model == "M1" else mixed, number("table1", model=model))
    caption = "Recall@1 (%) with original and synthetic embeddings and proxies in Norm-softmax."
    stubs, base = ("model", "embeddings", "proxies"), "M1, the plain loss"
    return _ablation(scale, store, "Table 1", caption, stubs, lines, base)


def _table2(scale: Scale, store: Store) -> Table:
    lines: Lines = {}
    for kind, (label, values) in GENERATIONS.items():
        for value in values:
            paper = number("table2", generation=kind, parameter=str(value))
            lines[label, f"{value:g}"] = (ProxySynthesis(PLAIN, **{kind: value}), paper)
    caption = (
        "Recall@1 (%) of PS + Norm-softmax with a fixed lam and with lam drawn from "
        "Beta(alpha, alpha)."
    )
    stubs, base = ("generation", "value"), "plain Norm-softmax, M1 of Table 1"
    return _ablation(scale, store, "Table 2", caption, stubs, lines, base)


Lines = dict[tuple[str, ...], tuple[Any, float | None]]
"""By labels: the loss, and the paper's Recall@1."""


def _ablation(
    scale: Scale, store: Store, title: str, caption: str, stubs: Any, lines: Lines, base: str
) -> Table:
    """Recall@1 beside the paper's, and MAP@R, against the plain loss, which is called `base`."""

    def of(loss: Any, paper: float | None, metric: str) -> Cell:
        plain = () if loss == PLAIN else seeded(scale, ON, PLAIN)
        printed = {}
        if metric == "recall@1":  # the paper has no other
            base = number("table1", model="M1") if plain else None
            printed = {"paper": paper, "paper_baseline": base}
        return cell(store, seeded(scale, ON, loss), metric, plain, **printed)

    recall, map_r = column(scale, ON, "R@1"), Column("MAP@R", scale.heading(ON), "", "MAP@R")
    made = grid({recall: ("recall@1",), map_r: ("map@r",)}, lines, of)
    notes = (*cells.ran_on(scale, ON), f"Differences are against {base}.")
    return Table(title, caption, stubs, *made, notes)


# Tables 3 and B

PARTS = {"train": "seen classes", "test": "unseen classes"}
LOSSES = ("norm_softmax", "proxy_nca")
Recalls = dict[str, dict[float, tuple[float, ...]]]
"""Recall@1 (%) by part and lam, a number per seed."""


def mixed_recalls(store: Store, runs: Iterable[Run]) -> Recalls:
    """The recalls of mixed embeddings; empty unless every Run is finished.   [Table B, Figure 5]"""
    protocol = EmbeddingDeformation()

    def measure(model: Trained) -> dict[str, list[float]]:
        splits, found = open_splits(model.run), {}
        for part, listing in zip(PARTS, (splits.train, splits.query), strict=True):
            recalls = protocol(embeddings_of(model, listing), listing.labels)
            found[part] = [recalls[lam] for lam in LAMS]
        return found

    found = store.on_models("embedding_deformation", runs, protocol, measure)
    return {
        part: {lam: tuple(100 * one[part][i] for one in found) for i, lam in enumerate(LAMS)}
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

    runs = {reg: seeded(scale, ON, trained_loss("norm_softmax", reg)) for reg in PAIR}
    found = {reg: store.on_models("deformation_2", runs[reg], protocol, deformed) for reg in PAIR}

    def of(name: str, regularizer: str) -> Cell:
        values = {reg: tuple(100 * one[name] for one in found[reg]) for reg in PAIR}
        return compared(values, regularizer, **papers("table3", regularizer, deformation=name))

    finished = [run for run in runs["none"] if store.result(run)]
    png = store.on_models("contact_sheet_2", finished[:1], protocol, pictures)
    columns = {column(scale, ON, method_name("norm_softmax", reg), reg): (reg,) for reg in PAIR}
    rows = {(name.replace("_", " "),): (name,) for name in (UNDEFORMED, *DEFORMATIONS)}
    return Table(
        "Table 3",
        "Recall@1 (%) where query and gallery are deformed in ways not seen in training.",
        ("deformation",),
        *grid(columns, rows, of),
        (
            *cells.ran_on(scale, ON),
            "The deformations follow section C.3, in our own code. Zoom in shows the middle half "
            "of each side, zoom out one and a half times it with a black border; the paper's "
            "wording also allows the opposite.",
        ),
        base64.b64decode(png[0]) if png else b"",
        "Test images as the network sees them: undeformed, and in each deformation.",
    )


def _tableB(scale: Scale, store: Store) -> Table:
    methods = {method: trained_loss(*method) for method in product(LOSSES, PAIR)}
    found = {key: mixed_recalls(store, seeded(scale, ON, loss)) for key, loss in methods.items()}

    def of(lam: float, loss: str, part: str, regularizer: str) -> Cell:
        values = {reg: found[loss, reg].get(part, {}).get(lam, ()) for reg in PAIR}
        keys = {"loss": loss, "classes": part, "lam": f"{lam:.2f}"}
        return compared(values, regularizer, **papers("tableB", regularizer, **keys))

    columns = {}
    for loss, part, reg in product(LOSSES, PARTS, PAIR):
        name = f"{method_name(loss, reg)}, {part}"
        columns[column(scale, ON, name, f"{loss} {part} {reg}")] = (loss, part, reg)
    return Table(
        "Table B",
        "Recall@1 (%) of mixed embeddings searching for others of the same two classes, over lam.",
        ("lam",),
        *grid(columns, {(f"{lam:.2f}",): (lam,) for lam in LAMS}, of),
        (
            *cells.ran_on(scale, ON),
            "The paper does not say how pairs are drawn: here 100 seeded pairs of classes, both "
            "orders, 8 synthetics of each; the gallery holds all originals and the other "
            "synthetics.",
            cells.SQUARED_NCA,
        ),
    )


ARTIFACTS = {"table1": _table1, "table2": _table2, "table3": _table3, "tableB": _tableB}
