"""Tables 5, C, D and E: Proxy Synthesis beside other regularizers, in retrieval and
classification, and how their parameters were chosen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from proxysynth.losses import Softmax
from proxysynth.paper.artifact import Artifact, Cell, Choice, Pick, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import CLASSIFICATION, NAMES, SCALES, Scale, trained_loss
from proxysynth.paper.settings import INPUT_MIXUP_ALPHA, MANIFOLD_MIXUP_ALPHA, classified_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cells import LOSS_NAMES, column, ran_as, seeded
from proxysynth.regularizers import REGULARIZERS, ProxySynthesis
from proxysynth.training.run import Run

PAPER = SCALES["paper"]
MIXUPS = {"input_mixup": "Input Mixup", "manifold_mixup": "Manifold Mixup"}
REGULARIZER_NAMES = {
    "none": "Baseline",
    "virtual_softmax": "Virtual Softmax",
    **MIXUPS,
    "proxy_synthesis": "Proxy Synthesis",
}
ON, WITH = ("cars196", "sop"), ("softmax", "norm_softmax")
RETRIEVED = tuple((loss, benchmark) for loss in WITH for benchmark in ON)
CLASSIFIED = tuple(("softmax", benchmark) for benchmark in CLASSIFICATION)
"""The columns of Tables 5 and D: a loss on a benchmark."""


# Searches


def _mixed(regularizer: str, loss: str, alpha: float) -> Any:
    kind: Any = REGULARIZERS[regularizer]
    return kind(trained_loss(loss), alpha=alpha)


def _synthesis(alpha: float, mu: float) -> ProxySynthesis:
    return ProxySynthesis(Softmax(), alpha=alpha, mu=mu)


def mixup_search(scale: Scale, benchmark: str, loss: str, regularizer: str) -> Choice:
    """The alpha of a Mixup, for one loss on one data set.                             [Table E]"""
    what = f"{MIXUPS[regularizer]} with {LOSS_NAMES[loss]} on {ran_as(scale, benchmark)}"
    losses = [_mixed(regularizer, loss, alpha) for alpha in scale.mixup_alphas]
    return cells.search(scale, benchmark, what, losses)


def grid_search(scale: Scale, name: str) -> Choice:
    """alpha and mu of Proxy Synthesis on one data set: the cells of Table C."""
    losses = [_synthesis(alpha, mu) for alpha in scale.class_alphas for mu in scale.class_mus]
    return cells.search(scale, name, ran_as(scale, name), losses, by="accuracy")


def _mixup_searches(scale: Scale) -> list[Choice]:
    return [mixup_search(scale, b, loss, reg) for loss, b in RETRIEVED for reg in MIXUPS]


def _tried(search: Choice, value: Any, store: Store, metric: str, paper: float | None) -> Cell:
    """One setting of a search."""
    runs = next((option.runs for option in search.options if option.value == value), ())
    chosen = bool(runs) and store.pick(search) == value
    return cells.cell(store, runs, metric, paper=paper, chosen=chosen)


def _fewer(ours: int, theirs: int) -> list[str]:
    return [f"At this scale {ours} of the paper's {theirs} settings are tried."] * (ours < theirs)


def _tableE(scale: Scale, store: Store) -> Table:
    columns = [(benchmark, reg) for benchmark in ON for reg in MIXUPS]

    def one(loss: str, alpha: float, benchmark: str, reg: str) -> Cell:
        keys = {"regularizer": reg, "loss": loss, "benchmark": benchmark, "alpha": str(alpha)}
        search, mixed = mixup_search(scale, benchmark, loss, reg), _mixed(reg, loss, alpha)
        return _tried(search, mixed, store, "recall@1", number("tableE", **keys))

    return Table(
        "Table E",
        "Recall@1 (%) over the alpha of Input and Manifold Mixup in image retrieval.",
        ("loss", "alpha"),
        tuple(column(scale, b, f"{MIXUPS[r]}, {NAMES[b]}", f"{r} {b}") for b, r in columns),
        tuple(
            Row((LOSS_NAMES[loss], f"{alpha:g}"), tuple(one(loss, alpha, *c) for c in columns))
            for loss in WITH
            for alpha in PAPER.mixup_alphas
        ),
        (
            *cells.stands_for(scale, *ON),
            "Ours is Recall@1 on the unseen classes, over one seed, of models trained on four "
            "fifths of the seen ones. The other fifth chooses the alpha (marked *) by MAP@R, so "
            "the test classes have no influence. The paper does not say how it chose.",
            *_fewer(len(scale.mixup_alphas), len(PAPER.mixup_alphas)),
            *cells.scale_notes(scale),
        ),
    )


def _tableC(scale: Scale, store: Store) -> Table:
    searches = {name: grid_search(scale, name) for name in CLASSIFICATION}

    def one(name: str, alpha: float, mu: float) -> Cell:
        paper = number("tableC", benchmark=name, alpha=f"{alpha:.1f}", mu=f"{mu:.2f}")
        return _tried(searches[name], _synthesis(alpha, mu), store, "accuracy", paper)

    rows = tuple(
        Row((f"{alpha:g}", f"{mu:g}"), tuple(one(name, alpha, mu) for name in CLASSIFICATION))
        for alpha in PAPER.class_alphas
        for mu in PAPER.class_mus
    )
    return Table(
        "Table C",
        "Accuracy (%) over alpha and mu of Proxy Synthesis in image classification.",
        ("alpha", "mu"),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        rows,
        (
            *cells.stands_for(scale, *CLASSIFICATION),
            "Ours is the test accuracy over 1 seed of models trained on four fifths of the "
            "training images; the other fifth chooses the cell (marked *).",
            *_fewer(len(scale.class_alphas) * len(scale.class_mus), len(rows)),
            *cells.scale_notes(scale),
        ),
    )


# Regularizers side by side


def _applicable(regularizer: str, loss: str) -> bool:
    """Virtual Softmax needs a loss of raw dot products."""
    return regularizer != "virtual_softmax" or not trained_loss(loss).normalized


def runs_of(
    scale: Scale, pick: Pick, loss: str, benchmark: str, regularizer: str
) -> tuple[Run, ...]:
    """The Runs of a regularizer; none while a search decides its settings: in retrieval Mixup's
    alpha, in classification alpha and mu of Proxy Synthesis."""
    if not _applicable(regularizer, loss):
        return ()
    if benchmark not in CLASSIFICATION:
        searched = regularizer in MIXUPS and mixup_search(scale, benchmark, loss, regularizer)
        wanted = pick(searched) if searched else trained_loss(loss, regularizer)
    elif regularizer == "proxy_synthesis":
        wanted = pick(grid_search(scale, benchmark))
    else:
        wanted = classified_loss(benchmark, regularizer)
    return seeded(scale, benchmark, wanted) if wanted else ()


def _needs(columns: Iterable[tuple[str, str]], scale: Scale, pick: Pick) -> Iterable[Run]:
    for loss, benchmark in columns:
        for regularizer in REGULARIZER_NAMES:
            yield from runs_of(scale, pick, loss, benchmark, regularizer)


def _rows(
    columns: Iterable[tuple[str, str]], scale: Scale, store: Store, file: str
) -> tuple[Row, ...]:
    """A row per regularizer, beside the paper's numbers of `numbers/FILE.csv`."""

    def one(regularizer: str, loss: str, benchmark: str) -> Cell:
        if not _applicable(regularizer, loss):
            return Cell(text="n/a")
        runs = partial(runs_of, scale, store.pick, loss, benchmark)
        plain = runs("none") if regularizer != "none" else ()
        keys, metric = {"benchmark": benchmark}, "accuracy"
        if benchmark not in CLASSIFICATION:
            keys, metric = {"benchmark": benchmark, "loss": loss}, "recall@1"
        paper = cells.papers(file, regularizer, **keys)
        return cells.cell(store, runs(regularizer), metric, plain, **paper)

    return tuple(
        Row((name,), tuple(one(regularizer, *column) for column in columns))
        for regularizer, name in REGULARIZER_NAMES.items()
    )


def _table5(scale: Scale, store: Store) -> Table:
    how = "Mixup's alphas are those of Table E, chosen on a held-out fifth of the seen classes"
    return Table(
        "Table 5",
        "Recall@1 (%) of Proxy Synthesis and other regularizers in image retrieval.",
        ("regularizer",),
        tuple(
            column(scale, b, f"{LOSS_NAMES[loss]}, {NAMES[b]}", f"{loss} {b}")
            for loss, b in RETRIEVED
        ),
        _rows(RETRIEVED, scale, store, "table5"),
        (
            *cells.ran_on(scale, *ON),
            cells.search_note(_mixup_searches(scale), store, how),
            "Virtual Softmax is not applicable (n/a) to Norm-softmax: its logit would be the "
            "constant 1. With Softmax its logit is clipped at 10, as in the paper.",
            *cells.paper_notes("table5"),
        ),
    )


def _tableD(scale: Scale, store: Store) -> Table:
    searches = [grid_search(scale, name) for name in CLASSIFICATION if scale.heading(name)]
    how = (
        "Alpha and mu of Proxy Synthesis are those of Table C's best cell, chosen on a held-out "
        "fifth of the training images"
    )
    manifold = {name: f"{MANIFOLD_MIXUP_ALPHA[name].value:g}" for name in CLASSIFICATION}
    return Table(
        "Table D",
        "Accuracy (%) of regularizers of the Softmax loss in image classification.",
        ("regularizer",),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        _rows(CLASSIFIED, scale, store, "tableD"),
        (
            *cells.ran_on(scale, *CLASSIFICATION),
            *([cells.search_note(searches, store, how)] if searches else []),
            f"Mixup's alphas are the best of their own papers: {INPUT_MIXUP_ALPHA.value:g} for "
            f"Input Mixup, {manifold['cifar10']} for Manifold Mixup ({manifold['tiny_imagenet']} "
            "on TinyImageNet). Virtual Softmax is not clipped here.",
            *cells.paper_notes("tableD"),
        ),
    )


def _searched(searches: Iterable[Choice]) -> Iterable[Run]:
    return (run for search in searches for run in search.runs)


ARTIFACTS = {
    "table5": Artifact(_table5, partial(_needs, RETRIEVED)),
    "tableC": Artifact(
        _tableC,
        lambda scale, pick: _searched(grid_search(scale, name) for name in CLASSIFICATION),
    ),
    "tableD": Artifact(_tableD, partial(_needs, CLASSIFIED)),
    "tableE": Artifact(_tableE, lambda scale, pick: _searched(_mixup_searches(scale))),
}
