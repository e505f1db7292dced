"""Tables 5, C, D and E: Proxy Synthesis beside other regularizers, in retrieval and
classification, and how their parameters were chosen."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

from proxysynth.losses import Softmax
from proxysynth.paper.artifact import Cell, Choice, Column, Grid, Table, grid
from proxysynth.paper.printed import number
from proxysynth.paper.scale import CLASSIFICATION, NAMES, SCALES, Scale, trained_loss
from proxysynth.paper.settings import INPUT_MIXUP_ALPHA, MANIFOLD_MIXUP_ALPHA, classified_loss
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cells import LOSS_NAMES, column, ran_as, seeded
from proxysynth.regularizers import ProxySynthesis
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
"""The benchmarks and losses of Tables 5 and E."""


# Searches


def mixup_search(scale: Scale, benchmark: str, loss: str, regularizer: str) -> Choice:
    """The alpha of a Mixup, for one loss on one dataset.                             [Table E]"""
    what = f"{MIXUPS[regularizer]} with {LOSS_NAMES[loss]} on {ran_as(scale, benchmark)}"
    losses = [trained_loss(loss, regularizer, alpha=alpha) for alpha in scale.mixup_alphas]
    return cells.search(scale, benchmark, what, losses)


def grid_search(scale: Scale, name: str) -> Choice:
    """alpha and mu of Proxy Synthesis on one dataset: the cells of Table C."""
    grid = product(scale.class_alphas, scale.class_mus)
    losses = [ProxySynthesis(Softmax(), alpha=alpha, mu=mu) for alpha, mu in grid]
    return cells.search(scale, name, ran_as(scale, name), losses)


def _tried(store: Store, search: Choice, loss: Any, metric: str, paper: float | None) -> Cell:
    """One of the losses of a search."""
    runs = [run for run in search.runs if run.loss == loss]
    chosen = bool(runs) and store.pick(search) == loss
    return cells.cell(store, runs, metric, paper=paper, chosen=chosen)


def _fewer(ours: int, theirs: int) -> list[str]:
    note = f"At this scale {ours} of the paper's {theirs} settings are tried."
    return [note] if ours < theirs else []


def _tableE(scale: Scale, store: Store) -> Table:
    def one(loss: str, alpha: float, benchmark: str, reg: str) -> Cell:
        keys = {"regularizer": reg, "loss": loss, "benchmark": benchmark, "alpha": str(alpha)}
        search, paper = mixup_search(scale, benchmark, loss, reg), number("tableE", **keys)
        return _tried(store, search, trained_loss(loss, reg, alpha=alpha), "recall@1", paper)

    columns = {
        column(scale, b, f"{name}, {NAMES[b]}", f"{reg} {b}"): (b, reg)
        for b, (reg, name) in product(ON, MIXUPS.items())
    }
    settings = product(WITH, PAPER.mixup_alphas)
    rows = {(LOSS_NAMES[loss], f"{alpha:g}"): (loss, alpha) for loss, alpha in settings}
    return Table(
        "Table E",
        "Recall@1 (%) over the alpha of Input and Manifold Mixup in image retrieval.",
        ("loss", "alpha"),
        *grid(columns, rows, one),
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

    def one(alpha: float, mu: float, name: str) -> Cell:
        paper = number("tableC", benchmark=name, alpha=f"{alpha:.1f}", mu=f"{mu:.2f}")
        loss = ProxySynthesis(Softmax(), alpha=alpha, mu=mu)
        return _tried(store, searches[name], loss, "accuracy", paper)

    columns = {column(scale, name, NAMES[name], name): (name,) for name in CLASSIFICATION}
    settings = product(PAPER.class_alphas, PAPER.class_mus)
    rows = {(f"{alpha:g}", f"{mu:g}"): (alpha, mu) for alpha, mu in settings}
    return Table(
        "Table C",
        "Accuracy (%) over alpha and mu of Proxy Synthesis in image classification.",
        ("alpha", "mu"),
        *grid(columns, rows, one),
        (
            *cells.stands_for(scale, *CLASSIFICATION),
            "Ours is the test accuracy over 1 seed of models trained on four fifths of the "
            "training images; the other fifth chooses the cell (marked *).",
            *_fewer(len(scale.class_alphas) * len(scale.class_mus), len(rows)),
            *cells.scale_notes(scale),
        ),
    )


# Regularizers side by side


def runs_of(
    scale: Scale, store: Store, loss: str, benchmark: str, regularizer: str
) -> tuple[Run, ...]:
    """The Runs of a regularizer; none while a search decides its settings: in retrieval Mixup's
    alpha, in classification alpha and mu of Proxy Synthesis."""
    if benchmark not in CLASSIFICATION:
        searched = regularizer in MIXUPS and mixup_search(scale, benchmark, loss, regularizer)
        wanted = store.pick(searched) if searched else trained_loss(loss, regularizer)
    elif regularizer == "proxy_synthesis":
        wanted = store.pick(grid_search(scale, benchmark))
    else:
        wanted = classified_loss(benchmark, regularizer)
    return seeded(scale, benchmark, wanted) if wanted else ()


def _compared(
    scale: Scale, store: Store, file: str, columns: dict[Column, tuple[str, str]]
) -> Grid:
    """A row per regularizer, a column per loss and benchmark; the paper's are in FILE.csv."""

    def one(regularizer: str, loss: str, benchmark: str) -> Cell:
        if regularizer == "virtual_softmax" and loss == "norm_softmax":
            return Cell(text="n/a")  # it needs a loss of raw dot products
        runs = partial(runs_of, scale, store, loss, benchmark)
        plain = runs("none") if regularizer != "none" else ()
        keys, metric = {"benchmark": benchmark}, "accuracy"
        if benchmark not in CLASSIFICATION:
            keys, metric = {"benchmark": benchmark, "loss": loss}, "recall@1"
        paper = cells.papers(file, regularizer, **keys)
        return cells.cell(store, runs(regularizer), metric, plain, **paper)

    return grid(columns, {(name,): (reg,) for reg, name in REGULARIZER_NAMES.items()}, one)


def _table5(scale: Scale, store: Store) -> Table:
    how = "Mixup's alphas are those of Table E, chosen on a held-out fifth of the seen classes"
    on = list(product(WITH, ON))
    searches = [mixup_search(scale, b, loss, reg) for loss, b in on for reg in MIXUPS]
    columns = {
        column(scale, b, f"{LOSS_NAMES[loss]}, {NAMES[b]}", f"{loss} {b}"): (loss, b)
        for loss, b in on
    }
    return Table(
        "Table 5",
        "Recall@1 (%) of Proxy Synthesis and other regularizers in image retrieval.",
        ("regularizer",),
        *_compared(scale, store, "table5", columns),
        (
            *cells.ran_on(scale, *ON),
            cells.search_note(searches, store, how),
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
    columns = {column(scale, b, NAMES[b], b): ("softmax", b) for b in CLASSIFICATION}
    manifold = {name: f"{MANIFOLD_MIXUP_ALPHA[name]:g}" for name in CLASSIFICATION}
    return Table(
        "Table D",
        "Accuracy (%) of regularizers of the Softmax loss in image classification.",
        ("regularizer",),
        *_compared(scale, store, "tableD", columns),
        (
            *cells.ran_on(scale, *CLASSIFICATION),
            *([cells.search_note(searches, store, how)] if searches else []),
            f"Mixup's alphas are the best of their own papers: {INPUT_MIXUP_ALPHA:g} for "
            f"Input Mixup, {manifold['cifar10']} for Manifold Mixup ({manifold['tiny_imagenet']} "
            "on TinyImageNet). Virtual Softmax is not clipped here.",
            *cells.paper_notes("tableD"),
        ),
    )


ARTIFACTS = {"table5": _table5, "tableC": _tableC, "tableD": _tableD, "tableE": _tableE}
