"""Tables 3 and B: deformed pictures, and deformed embeddings."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any

from proxysynth.data.deformations import DEFORMATIONS
from proxysynth.paper.artifact import Artifact, Cell, Column, Line, Sheet, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import LOSS_NAMES, column, flat, ran_on, seeded
from proxysynth.protocols.conventional import embeddings_of
from proxysynth.protocols.deformation import UNDEFORMED, Deformation, contact_sheet
from proxysynth.protocols.embedding_deformation import LAMS, EmbeddingDeformation
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run
from proxysynth.values import encode

ON = "cars196"
REGULARIZERS = ("none", "proxy_synthesis")
PARTS = ("train", "test")
LOSSES = ("norm_softmax", "proxy_nca")


def runs_of(scale: Scale, loss: str, regularizer: str) -> tuple[Run, ...]:
    """A loss as it is, or under Proxy Synthesis with the paper's alpha and mu."""
    plain = trained_loss(loss)
    return seeded(scale, ON, plain if regularizer == "none" else ProxySynthesis(plain))


def deformed_recalls(store: Store, runs: Iterable[Run]) -> dict[str, tuple[float, ...]]:
    """Recall@1 (%) of each Run on deformed pictures, by deformation; measured once."""
    protocol, told = Deformation(ks=(1,)), []
    for run in runs:
        if store.result(run) is None:
            return {}

        def compute(run: Run = run) -> dict[str, float]:
            model, splits = store.model(run), open_splits(run)
            assert model is not None
            found = protocol(model, splits.query, splits.gallery)
            return {name: metrics["recall@1"] for name, metrics in found.items()}

        told.append(store.kept("deformation", [run, encode(protocol)], compute))
    if not told or any(one is None for one in told):
        return {}
    return {name: tuple(100 * one[name] for one in told) for name in (UNDEFORMED, *DEFORMATIONS)}


def mixed_recalls(
    store: Store, runs: Iterable[Run], protocol: EmbeddingDeformation | None = None
) -> dict[str, dict[float, tuple[float, ...]]]:
    """Recall@1 (%) of mixed embeddings: part ("train", "test") -> lam -> one number per Run.

    Empty unless every Run is finished; measured once.                       [Table B, Figure 5]
    """
    protocol, told = protocol or EmbeddingDeformation(), []
    for run in runs:
        if store.result(run) is None:
            return {}

        def compute(run: Run = run) -> dict[str, list[float]]:
            return _mixed(store, run, protocol)

        told.append(store.kept("embedding_deformation", [run, encode(protocol)], compute))
    if not told or any(one is None for one in told):
        return {}
    return {
        part: {
            lam: tuple(100 * one[part][i] for one in told) for i, lam in enumerate(protocol.lams)
        }
        for part in PARTS
    }


def _mixed(store: Store, run: Run, protocol: EmbeddingDeformation) -> dict[str, list[float]]:
    model, splits = store.model(run), open_splits(run)
    assert model is not None
    found = {}
    for part, listing in zip(PARTS, (splits.train, splits.query), strict=True):
        recalls = protocol(embeddings_of(model, listing), listing.labels)
        found[part] = [recalls[lam] for lam in protocol.lams]
    return found


def _table3(scale: Scale, store: Store) -> Table:
    found = {reg: deformed_recalls(store, runs_of(scale, "norm_softmax", reg))
             for reg in REGULARIZERS}  # fmt: skip
    rows = []
    for name in (UNDEFORMED, *DEFORMATIONS):
        plain = number("table3", deformation=name, regularizer="none")
        cells = []
        for reg in REGULARIZERS:
            base = reg != "none"
            cells.append(
                Cell(
                    found[reg].get(name, ()),
                    number("table3", deformation=name, regularizer=reg),
                    baseline=found["none"].get(name, ()) if base else (),
                    paper_baseline=plain if base else None,
                )
            )
        rows.append(Line((name.replace("_", " "),), tuple(cells)))
    return Table(
        "Table 3",
        "Recall@1 (%) where query and gallery are deformed in ways that training never showed.",
        ("deformation",),
        (
            column(scale, ON, "Norm-softmax", "none"),
            column(scale, ON, "PS + Norm-softmax", "proxy_synthesis"),
        ),
        tuple(rows),
        (
            *ran_on(scale, ON),
            "The deformations are those of section C.3, our own code. Zoom in shows the middle "
            "half of each side, zoom out one and a half times it with black around; the paper's "
            "wording also allows the opposite.",
        ),
        _sheet(scale, store),
    )


def _sheet(scale: Scale, store: Store) -> Sheet | None:
    """Some test pictures as the network sees them, deformed in each way; made once."""
    runs = [run for run in runs_of(scale, "norm_softmax", "none") if store.result(run)]
    if not runs:
        return None
    protocol = Deformation(ks=(1,))

    def compute() -> str:
        model = store.model(runs[0])
        assert model is not None
        made = contact_sheet(model, open_splits(runs[0]).query, protocol)
        return base64.b64encode(made).decode()

    found = store.kept("contact_sheet", [runs[0], encode(protocol)], compute)
    words = "Test pictures as the network is given them: as they are, and in each deformation."
    return None if found is None else Sheet(base64.b64decode(found), words)


def _tableB(scale: Scale, store: Store) -> Table:
    found = {(loss, reg): mixed_recalls(store, runs_of(scale, loss, reg))
             for loss in LOSSES for reg in REGULARIZERS}  # fmt: skip
    rows = []
    for lam in LAMS:
        cells = []
        for loss in LOSSES:
            for part in PARTS:
                keys = {"loss": loss, "classes": part, "lam": f"{lam:.2f}"}
                for reg in REGULARIZERS:
                    base = reg != "none"
                    cells.append(
                        Cell(
                            _at(found[loss, reg], part, lam),
                            number("tableB", regularizer=reg, **keys),
                            baseline=_at(found[loss, "none"], part, lam) if base else (),
                            paper_baseline=number("tableB", regularizer="none", **keys)
                            if base
                            else None,
                        )
                    )
        rows.append(Line((f"{lam:.2f}",), tuple(cells)))
    heads = []
    for loss in LOSSES:
        for part in PARTS:
            for reg in REGULARIZERS:
                name = LOSS_NAMES[loss] if reg == "none" else f"PS + {LOSS_NAMES[loss]}"
                key = f"{loss} {part} {reg}"
                heads.append(Column(f"{name}, {part}", scale.heading(ON), NAMES[ON], key))
    return Table(
        "Table B",
        "Recall@1 (%) of mixed embeddings that look for others of the same two classes, over lam.",
        ("lam",),
        tuple(heads),
        tuple(rows),
        (
            *ran_on(scale, ON),
            "The paper does not say how pairs are drawn: here 100 pairs of classes by seed, both "
            "orders, 8 synthetics of each; gallery are all originals and the other synthetics.",
            "Proxy-NCA is the authors' squared form, which is Norm-softmax with another scale.",
        ),
    )


def _at(found: dict[str, Any], part: str, lam: float) -> tuple[float, ...]:
    values: tuple[float, ...] = found.get(part, {}).get(lam, ())
    return values


TABLES = (
    Artifact(
        "table3",
        "robustness to deformed pictures",
        lambda scale: flat(runs_of(scale, "norm_softmax", reg) for reg in REGULARIZERS),
        _table3,
    ),
    Artifact(
        "tableB",
        "robustness to deformed embeddings, over lam",
        lambda scale: flat(runs_of(scale, loss, reg) for loss in LOSSES for reg in REGULARIZERS),
        _tableB,
    ),
)
