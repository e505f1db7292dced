"""Tables 5, C, D and E: Proxy Synthesis beside other regularizers, in retrieval and
classification, and how their parameters were chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from proxysynth.losses import Softmax
from proxysynth.paper.artifact import Artifact, Cell, Choice, Option, Pick, Row, Table
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import CLASS_ALPHAS, CLASS_MUS, MIXUP_ALPHAS, Scale, trained_loss
from proxysynth.paper.settings import INPUT_MIXUP_ALPHA, MANIFOLD_MIXUP_ALPHA
from proxysynth.paper.stand_ins import CLASSIFICATION, NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import (
    LOSS_NAMES,
    cell,
    chosen,
    column,
    flat,
    paper_notes,
    ran_on,
    scale_notes,
    search_note,
    seeded,
    stands_for,
    validated,
)
from proxysynth.regularizers import (
    REGULARIZERS,
    InputMixup,
    ManifoldMixup,
    ProxySynthesis,
    VirtualSoftmax,
)
from proxysynth.training.run import Run

MIXUPS = {"input_mixup": "Input Mixup", "manifold_mixup": "Manifold Mixup"}
REGULARIZER_NAMES = {
    "none": "Baseline",
    "virtual_softmax": "Virtual Softmax",
    **MIXUPS,
    "proxy_synthesis": "Proxy Synthesis",
}
RunsOf = Callable[[str], tuple[Run, ...]]
"""The Runs of a regularizer; none while a search decides its settings."""

# Retrieval: Tables 5 and E

ON = ("cars196", "sop")
WITH = ("softmax", "norm_softmax")
COLUMNS = tuple((loss, benchmark) for loss in WITH for benchmark in ON)


def _mixed(regularizer: str, loss: str, alpha: float) -> Any:
    kind: Any = REGULARIZERS[regularizer]
    return kind(trained_loss(loss), alpha=alpha)


def mixup_search(scale: Scale, benchmark: str, loss: str, regularizer: str) -> Choice:
    """The alpha of a Mixup, for one loss on one data set.                             [Table E]"""
    options = []
    for alpha in scale.mixup_alphas:
        runs = validated(scale, benchmark, _mixed(regularizer, loss, alpha))
        if runs:
            options.append(Option(alpha, f"alpha {alpha:g}", runs))
    where = scale.heading(benchmark) or NAMES[benchmark]
    return Choice(f"{MIXUPS[regularizer]} with {LOSS_NAMES[loss]} on {where}", tuple(options))


def _mixup_searches(scale: Scale) -> list[Choice]:
    return [mixup_search(scale, b, loss, reg) for loss, b in COLUMNS for reg in MIXUPS]


def _applicable(regularizer: str, loss: str) -> bool:
    """Virtual Softmax needs a loss of raw dot products."""
    return regularizer != "virtual_softmax" or not trained_loss(loss).normalized


def _fixed5(scale: Scale, benchmark: str, loss: str, regularizer: str) -> tuple[Run, ...]:
    """The Runs of a regularizer that needs no search."""
    if not _applicable(regularizer, loss):
        return ()
    plain, kind = trained_loss(loss), REGULARIZERS[regularizer]
    return seeded(scale, benchmark, plain if kind is None else kind(plain))


def _runs5(scale: Scale) -> tuple[Run, ...]:
    fixed = [
        _fixed5(scale, benchmark, loss, regularizer)
        for loss, benchmark in COLUMNS
        for regularizer in REGULARIZER_NAMES
        if regularizer not in MIXUPS
    ]
    return flat([*fixed, *(search.runs for search in _mixup_searches(scale))])


def _later5(scale: Scale, pick: Pick) -> tuple[Run, ...]:
    groups = []
    for loss, benchmark in COLUMNS:
        for regularizer in MIXUPS:
            alpha = pick(mixup_search(scale, benchmark, loss, regularizer))
            if alpha is not None:
                groups.append(seeded(scale, benchmark, _mixed(regularizer, loss, alpha)))
    return flat(groups)


def _regularized5(scale: Scale, store: Store, benchmark: str, loss: str) -> RunsOf:
    def runs(regularizer: str) -> tuple[Run, ...]:
        if regularizer not in MIXUPS:
            return _fixed5(scale, benchmark, loss, regularizer)
        found = chosen(mixup_search(scale, benchmark, loss, regularizer), store)
        mixed = None if found is None else _mixed(regularizer, loss, found.value)
        return () if mixed is None else seeded(scale, benchmark, mixed)

    return runs


def _cell(
    store: Store, runs: RunsOf, metric: str, regularizer: str, table: str, **keys: str
) -> Cell:
    """A regularizer against the baseline of its column."""
    base = regularizer != "none"
    return cell(
        store,
        runs(regularizer),
        number(table, regularizer=regularizer, **keys),
        runs("none") if base else (),
        number(table, regularizer="none", **keys) if base else None,
        metric,
    )


def _table5(scale: Scale, store: Store) -> Table:
    rows = []
    for regularizer, name in REGULARIZER_NAMES.items():
        cells = [
            _cell(store, _regularized5(scale, store, b, loss), "recall@1", regularizer, "table5",
                  loss=loss, benchmark=b)
            if _applicable(regularizer, loss)
            else Cell(text="n/a")
            for loss, b in COLUMNS
        ]  # fmt: skip
        rows.append(Row((name,), tuple(cells)))
    return Table(
        "Table 5",
        "Recall@1 (%) of Proxy Synthesis and other regularizers in image retrieval.",
        ("regularizer",),
        tuple(
            column(scale, b, f"{LOSS_NAMES[loss]}, {NAMES[b]}", f"{loss} {b}")
            for loss, b in COLUMNS
        ),
        tuple(rows),
        (
            *ran_on(scale, *ON),
            search_note(
                _mixup_searches(scale),
                store,
                "Mixup's alphas are those of Table E, chosen on a held-out fifth of the seen "
                "classes",
            ),
            "Virtual Softmax is not applicable (n/a) to Norm-softmax: its logit would be the "
            "constant 1. With Softmax its logit is clipped at 10, as in the paper.",
            *paper_notes(notes_of("table5")),
        ),
    )


def _tableE(scale: Scale, store: Store) -> Table:
    rows = []
    for loss in WITH:
        for alpha in MIXUP_ALPHAS:
            cells = [
                _option_cell(
                    mixup_search(scale, benchmark, loss, reg),
                    alpha,
                    store,
                    "recall@1",
                    number("tableE", regularizer=reg, loss=loss, benchmark=benchmark,
                           alpha=str(alpha)),
                )
                for benchmark in ON
                for reg in MIXUPS
            ]  # fmt: skip
            rows.append(Row((LOSS_NAMES[loss], f"{alpha:g}"), tuple(cells)))
    count = len(scale.search_seeds)
    seeds = "over one seed" if count == 1 else f"the mean over {count} seeds"
    return Table(
        "Table E",
        "Recall@1 (%) over the alpha of Input and Manifold Mixup in image retrieval.",
        ("loss", "alpha"),
        tuple(column(scale, b, f"{MIXUPS[r]}, {NAMES[b]}", f"{r} {b}") for b in ON for r in MIXUPS),
        tuple(rows),
        (
            *stands_for(scale, *ON),
            f"Ours is Recall@1 on the unseen classes, {seeds}, of models trained on four fifths of "
            "the seen ones. The other fifth chooses the alpha (marked *) by MAP@R, so the test "
            "classes have no influence. The paper does not say how it chose.",
            *_tried(len(scale.mixup_alphas), len(MIXUP_ALPHAS)),
            *scale_notes(scale),
        ),
    )


def _tried(ours: int, theirs: int) -> tuple[str, ...]:
    return (f"At this scale {ours} of the paper's {theirs} settings are tried.",) * (ours < theirs)


def _option_cell(
    search: Choice, value: Any, store: Store, metric: str, paper: float | None
) -> Cell:
    """One setting of a search."""
    option = next((option for option in search.options if option.value == value), None)
    found = option is not None and option == chosen(search, store)
    return cell(store, option.runs if option else (), paper, metric=metric, chosen=found)


# Classification: Tables C and D


def _class_runs(scale: Scale, name: str, loss: Any) -> tuple[Run, ...]:
    runs = (scale.classification(name, loss, seed) for seed in scale.seeds)
    return tuple(run for run in runs if run is not None)


def _class_loss(regularizer: str, name: str) -> Any:
    """The losses of Table D, except Proxy Synthesis, whose alpha and mu Table C chooses."""
    if regularizer == "virtual_softmax":
        return VirtualSoftmax(Softmax(), clip=None)
    if regularizer == "input_mixup":
        return InputMixup(Softmax(), alpha=INPUT_MIXUP_ALPHA.value)
    if regularizer == "manifold_mixup":
        return ManifoldMixup(Softmax(), alpha=MANIFOLD_MIXUP_ALPHA[name].value)
    return Softmax()


def grid_search(scale: Scale, name: str) -> Choice:
    """alpha and mu of Proxy Synthesis on one data set: the cells of Table C."""
    options = []
    for alpha in scale.class_alphas:
        for mu in scale.class_mus:
            loss = ProxySynthesis(Softmax(), alpha=alpha, mu=mu)
            made = (
                scale.classification(name, loss, seed, report_epoch="best", best_by="accuracy")
                for seed in scale.search_seeds
            )
            runs = tuple(run for run in made if run is not None)
            if runs:
                options.append(Option((alpha, mu), f"alpha {alpha:g} and mu {mu:g}", runs))
    return Choice(scale.heading(name) or NAMES[name], tuple(options), by="accuracy")


def _chosen_runs(scale: Scale, name: str, found: tuple[float, float]) -> tuple[Run, ...]:
    return _class_runs(scale, name, ProxySynthesis(Softmax(), alpha=found[0], mu=found[1]))


def _runsD(scale: Scale) -> tuple[Run, ...]:
    fixed = [
        _class_runs(scale, name, _class_loss(regularizer, name))
        for name in CLASSIFICATION
        for regularizer in REGULARIZER_NAMES
        if regularizer != "proxy_synthesis"
    ]
    return flat([*fixed, *(grid_search(scale, name).runs for name in CLASSIFICATION)])


def _laterD(scale: Scale, pick: Pick) -> tuple[Run, ...]:
    searches = {name: grid_search(scale, name) for name in CLASSIFICATION}
    found = {name: pick(search) for name, search in searches.items() if search.options}
    return flat(_chosen_runs(scale, name, best) for name, best in found.items() if best)


def _regularizedD(scale: Scale, store: Store, name: str) -> RunsOf:
    def runs(regularizer: str) -> tuple[Run, ...]:
        if regularizer != "proxy_synthesis":
            return _class_runs(scale, name, _class_loss(regularizer, name))
        found = chosen(grid_search(scale, name), store)
        return _chosen_runs(scale, name, found.value) if found else ()

    return runs


def _tableC(scale: Scale, store: Store) -> Table:
    searches = {name: grid_search(scale, name) for name in CLASSIFICATION}
    rows = []
    for alpha in CLASS_ALPHAS:
        for mu in CLASS_MUS:
            cells = [
                _option_cell(
                    searches[name],
                    (alpha, mu),
                    store,
                    "accuracy",
                    number("tableC", benchmark=name, alpha=f"{alpha:.1f}", mu=f"{mu:.2f}"),
                )
                for name in CLASSIFICATION
            ]
            rows.append(Row((f"{alpha:g}", f"{mu:g}"), tuple(cells)))
    count = len(scale.search_seeds)
    return Table(
        "Table C",
        "Accuracy (%) over alpha and mu of Proxy Synthesis in image classification.",
        ("alpha", "mu"),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        tuple(rows),
        (
            *stands_for(scale, *CLASSIFICATION),
            f"Ours is the test accuracy over {count} seed{'s' if count > 1 else ''} of models "
            "trained on four fifths of the training images; the other fifth chooses the cell "
            "(marked *).",
            *_tried(len(scale.class_alphas) * len(scale.class_mus), len(rows)),
            *scale_notes(scale),
        ),
    )


def _tableD(scale: Scale, store: Store) -> Table:
    rows = tuple(
        Row(
            (label,),
            tuple(
                _cell(store, _regularizedD(scale, store, name), "accuracy", regularizer, "tableD",
                      benchmark=name)
                for name in CLASSIFICATION
            ),
        )
        for regularizer, label in REGULARIZER_NAMES.items()
    )  # fmt: skip
    searches = [grid_search(scale, name) for name in CLASSIFICATION if scale.heading(name)]
    search = (
        "Alpha and mu of Proxy Synthesis are those of Table C's best cell, chosen on a held-out "
        "fifth of the training images"
    )
    manifold = {name: f"{MANIFOLD_MIXUP_ALPHA[name].value:g}" for name in CLASSIFICATION}
    return Table(
        "Table D",
        "Accuracy (%) of regularizers of the Softmax loss in image classification.",
        ("regularizer",),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        rows,
        (
            *ran_on(scale, *CLASSIFICATION),
            *([search_note(searches, store, search)] if searches else []),
            f"Mixup's alphas are the best of their own papers: {INPUT_MIXUP_ALPHA.value:g} for "
            f"Input Mixup, {manifold['cifar10']} for Manifold Mixup ({manifold['tiny_imagenet']} "
            "on TinyImageNet). Virtual Softmax is not clipped here.",
            *paper_notes(notes_of("tableD")),
        ),
    )


ARTIFACTS = {
    "table5": Artifact(_runs5, _table5, _later5),
    "tableC": Artifact(
        lambda scale: flat(grid_search(scale, name).runs for name in CLASSIFICATION), _tableC
    ),
    "tableD": Artifact(_runsD, _tableD, _laterD),
    "tableE": Artifact(
        lambda scale: flat(search.runs for search in _mixup_searches(scale)), _tableE
    ),
}
