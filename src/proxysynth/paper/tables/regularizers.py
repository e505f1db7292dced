"""Tables 5 and E: Proxy Synthesis beside other regularisers, and their alpha."""

from __future__ import annotations

from typing import Any

from proxysynth.paper.artifact import Artifact, Cell, Line, Pick, Table
from proxysynth.paper.choice import Choice, Option
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import (
    LOSS_NAMES,
    chosen,
    column,
    few_steps,
    flat,
    measured,
    ran_on,
    searched,
    seeded,
    stands_for,
    validated,
)
from proxysynth.regularizers import REGULARIZERS, InputMixup, ManifoldMixup
from proxysynth.training.run import Run

ON = ("cars196", "sop")
WITH = ("softmax", "norm_softmax")
MIXUPS = {"input_mixup": "Input Mixup", "manifold_mixup": "Manifold Mixup"}
MIXUP_KINDS: dict[str, Any] = {"input_mixup": InputMixup, "manifold_mixup": ManifoldMixup}
NAMES_OF = {
    "none": "Baseline",
    "virtual_softmax": "Virtual Softmax",
    **MIXUPS,
    "proxy_synthesis": "Proxy Synthesis",
}
COLUMNS = tuple((loss, benchmark) for loss in WITH for benchmark in ON)


def _mixed(regularizer: str, loss: str, alpha: float) -> Any:
    return MIXUP_KINDS[regularizer](trained_loss(loss), alpha=alpha)


def mixup_search(scale: Scale, benchmark: str, loss: str, regularizer: str) -> Choice:
    """The alpha of a Mixup, for one loss on one set.                                  [Table E]"""
    options = []
    for alpha in scale.mixup_alphas:
        runs = validated(scale, benchmark, _mixed(regularizer, loss, alpha))
        if runs:
            options.append(Option(alpha, f"alpha {alpha:g}", runs))
    where = scale.heading(benchmark) or NAMES[benchmark]
    return Choice(f"{MIXUPS[regularizer]} with {LOSS_NAMES[loss]} on {where}", tuple(options))


def _searches(scale: Scale) -> list[Choice]:
    return [mixup_search(scale, b, loss, reg) for loss, b in COLUMNS for reg in MIXUPS]


def _admitted(regularizer: str, loss: str) -> bool:
    """Virtual Softmax needs a loss of raw dot products."""
    return regularizer != "virtual_softmax" or not trained_loss(loss).normalized


def _fixed(scale: Scale, benchmark: str, loss: str, regularizer: str) -> tuple[Run, ...]:
    """The Runs of a regulariser that needs no search."""
    if not _admitted(regularizer, loss):
        return ()
    kind: Any = REGULARIZERS[regularizer]
    return seeded(
        scale, benchmark, trained_loss(loss) if kind is None else kind(trained_loss(loss))
    )


def _runs5(scale: Scale) -> tuple[Run, ...]:
    fixed = [
        _fixed(scale, benchmark, loss, regularizer)
        for loss, benchmark in COLUMNS
        for regularizer in NAMES_OF
        if regularizer not in MIXUPS
    ]
    return flat([*fixed, *(search.runs for search in _searches(scale))])


def _later5(scale: Scale, pick: Pick) -> tuple[Run, ...]:
    made = []
    for loss, benchmark in COLUMNS:
        for regularizer in MIXUPS:
            alpha = pick(mixup_search(scale, benchmark, loss, regularizer))
            if alpha is not None:
                made.append(seeded(scale, benchmark, _mixed(regularizer, loss, alpha)))
    return flat(made)


def _values(
    scale: Scale, store: Store, benchmark: str, loss: str, regularizer: str
) -> tuple[float, ...]:
    if regularizer not in MIXUPS:
        return measured(store, _fixed(scale, benchmark, loss, regularizer))
    found = chosen(mixup_search(scale, benchmark, loss, regularizer), store)
    if found is None:
        return ()
    return measured(store, seeded(scale, benchmark, _mixed(regularizer, loss, found.value)))


def _table5(scale: Scale, store: Store) -> Table:
    rows = []
    for regularizer, name in NAMES_OF.items():
        cells = []
        for loss, benchmark in COLUMNS:
            if not _admitted(regularizer, loss):
                cells.append(Cell(text="n/a"))
                continue
            keys = {"loss": loss, "benchmark": benchmark}
            base = regularizer != "none"
            cells.append(
                Cell(
                    _values(scale, store, benchmark, loss, regularizer),
                    number("table5", regularizer=regularizer, **keys),
                    baseline=_values(scale, store, benchmark, loss, "none") if base else (),
                    paper_baseline=number("table5", regularizer="none", **keys) if base else None,
                )
            )
        rows.append(Line((name,), tuple(cells)))
    heads = tuple(
        column(scale, b, f"{LOSS_NAMES[loss]}, {NAMES[b]}", f"{loss} {b}") for loss, b in COLUMNS
    )
    return Table(
        "Table 5",
        "Recall@1 (%) of Proxy Synthesis and other regularisers in image retrieval.",
        ("regularizer",),
        heads,
        tuple(rows),
        (
            *ran_on(scale, *ON),
            searched(
                _searches(scale),
                store,
                "Mixup's alphas are Table E's, chosen on a fifth of the seen classes held out",
            ),
            "Virtual Softmax is not applicable (n/a) to Norm-softmax: its logit would be the "
            "constant 1. With Softmax its logit is clipped at 10, as in the paper.",
            *(f"The paper: {note}." for note in notes_of("table5")),
        ),
    )


def _tableE(scale: Scale, store: Store) -> Table:
    rows = []
    for loss in WITH:
        for alpha in scale.mixup_alphas:
            cells = []
            for benchmark in ON:
                for reg in MIXUPS:
                    search = mixup_search(scale, benchmark, loss, reg)
                    option = next((o for o in search.options if o.value == alpha), None)
                    keys = {"loss": loss, "benchmark": benchmark, "alpha": str(alpha)}
                    cells.append(
                        Cell(
                            measured(store, option.runs) if option else (),
                            number("tableE", regularizer=reg, **keys),
                            chosen=option is not None and option == chosen(search, store),
                        )
                    )
            rows.append(Line((LOSS_NAMES[loss], f"{alpha:g}"), tuple(cells)))
    many = len(scale.search_seeds)
    seeds = "over one seed" if many == 1 else f"the mean over {many} seeds"
    return Table(
        "Table E",
        "Recall@1 (%) over the alpha of Input and Manifold Mixup in image retrieval.",
        ("loss", "alpha"),
        tuple(column(scale, b, f"{MIXUPS[r]}, {NAMES[b]}", f"{r} {b}") for b in ON for r in MIXUPS),
        tuple(rows),
        (
            *stands_for(scale, *ON),
            f"Ours is Recall@1 on the unseen classes, {seeds}, of models trained on four fifths of "
            "the seen ones; the other fifth chooses the alpha (marked *) by MAP@R, so that the "
            "test has no say in it. The paper does not say what it chose by.",
            *few_steps(scale),
        ),
    )


TABLES = (
    Artifact("table5", "comparison with other regularisers", _runs5, _table5, _later5),
    Artifact(
        "tableE",
        "the alpha of Input and Manifold Mixup",
        lambda scale: flat(search.runs for search in _searches(scale)),
        _tableE,
    ),
)
