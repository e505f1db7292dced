"""Tables C and D: classification with PreActResNet18."""

from __future__ import annotations

from typing import Any

from proxysynth.losses import Softmax
from proxysynth.paper.artifact import Artifact, Cell, Line, Pick, Table
from proxysynth.paper.choice import Choice, Option
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import CLASSIFICATION, NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import (
    chosen,
    column,
    few_steps,
    flat,
    measured,
    ran_on,
    searched,
    stands_for,
)
from proxysynth.regularizers import InputMixup, ManifoldMixup, ProxySynthesis, VirtualSoftmax
from proxysynth.training.run import Run

NAMES_OF = {
    "none": "Baseline",
    "virtual_softmax": "Virtual Softmax",
    "input_mixup": "Input Mixup",
    "manifold_mixup": "Manifold Mixup",
    "proxy_synthesis": "Proxy Synthesis",
}
SEARCH = (
    "Alpha and mu of Proxy Synthesis are those of Table C's best cell, chosen on a fifth of the "
    "training pictures held out"
)
INPUT_ALPHA, MANIFOLD_ALPHA, MANIFOLD_ALPHA_TINY = 1.0, 2.0, 0.2
"""The best that the two papers of Mixup report; this one says that it uses them."""


def _loss(regularizer: str, name: str) -> Any:
    """The loss of Table D, but for Proxy Synthesis, whose alpha and mu Table C chooses."""
    if regularizer == "virtual_softmax":
        return VirtualSoftmax(Softmax(), clip=None)
    if regularizer == "input_mixup":
        return InputMixup(Softmax(), alpha=INPUT_ALPHA)
    if regularizer == "manifold_mixup":
        tiny = name == "tiny_imagenet"
        return ManifoldMixup(Softmax(), alpha=MANIFOLD_ALPHA_TINY if tiny else MANIFOLD_ALPHA)
    return Softmax()


def _seeded(scale: Scale, name: str, loss: Any) -> tuple[Run, ...]:
    made = (scale.classification(name, loss, seed) for seed in scale.seeds)
    return tuple(run for run in made if run is not None)


def grid_search(scale: Scale, name: str) -> Choice:
    """The cells of Table C: alpha and mu of Proxy Synthesis on one set."""
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


def _tableC(scale: Scale, store: Store) -> Table:
    searches = {name: grid_search(scale, name) for name in CLASSIFICATION}
    found = {name: chosen(search, store) for name, search in searches.items()}
    rows = []
    for alpha in scale.class_alphas:
        for mu in scale.class_mus:
            cells = []
            for name in CLASSIFICATION:
                options = searches[name].options
                option = next((o for o in options if o.value == (alpha, mu)), None)
                keys = {"benchmark": name, "alpha": f"{alpha:.1f}", "mu": f"{mu:.2f}"}
                cells.append(
                    Cell(
                        measured(store, option.runs, "accuracy") if option else (),
                        number("tableC", **keys),
                        chosen=option is not None and option == found[name],
                    )
                )
            rows.append(Line((f"{alpha:g}", f"{mu:g}"), tuple(cells)))
    many = len(scale.search_seeds)
    return Table(
        "Table C",
        "Accuracy (%) over alpha and mu of Proxy Synthesis in image classification.",
        ("alpha", "mu"),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        tuple(rows),
        (
            *stands_for(scale, *CLASSIFICATION),
            f"Ours is the test accuracy over {many} seed{'s' if many > 1 else ''} of models "
            "trained on four fifths of the training pictures; the other fifth chooses the cell "
            "(marked *).",
            *few_steps(scale),
        ),
    )


def _chosen_runs(scale: Scale, name: str, found: tuple[float, float]) -> tuple[Run, ...]:
    return _seeded(scale, name, ProxySynthesis(Softmax(), alpha=found[0], mu=found[1]))


def _runsD(scale: Scale) -> tuple[Run, ...]:
    fixed = [
        _seeded(scale, name, _loss(regularizer, name))
        for name in CLASSIFICATION
        for regularizer in NAMES_OF
        if regularizer != "proxy_synthesis"
    ]
    return flat([*fixed, *(grid_search(scale, name).runs for name in CLASSIFICATION)])


def _laterD(scale: Scale, pick: Pick) -> tuple[Run, ...]:
    made = []
    for name in CLASSIFICATION:
        search = grid_search(scale, name)
        found = pick(search) if search.options else None
        made += [_chosen_runs(scale, name, found)] if found else []
    return flat(made)


def _accuracy(scale: Scale, store: Store, name: str, regularizer: str) -> tuple[float, ...]:
    if regularizer != "proxy_synthesis":
        return measured(store, _seeded(scale, name, _loss(regularizer, name)), "accuracy")
    search = grid_search(scale, name)
    found = chosen(search, store) if search.options else None
    return measured(store, _chosen_runs(scale, name, found.value), "accuracy") if found else ()


def _tableD(scale: Scale, store: Store) -> Table:
    rows = []
    for regularizer, words in NAMES_OF.items():
        cells = []
        for name in CLASSIFICATION:
            base = regularizer != "none"
            plain = number("tableD", benchmark=name, regularizer="none")
            cells.append(
                Cell(
                    _accuracy(scale, store, name, regularizer),
                    number("tableD", benchmark=name, regularizer=regularizer),
                    baseline=_accuracy(scale, store, name, "none") if base else (),
                    paper_baseline=plain if base else None,
                )
            )
        rows.append(Line((words,), tuple(cells)))
    ran = [name for name in CLASSIFICATION if scale.heading(name)]
    searches = [grid_search(scale, name) for name in ran]
    return Table(
        "Table D",
        "Accuracy (%) of regularisers of the Softmax loss in image classification.",
        ("regularizer",),
        tuple(column(scale, name, NAMES[name], name) for name in CLASSIFICATION),
        tuple(rows),
        (
            *ran_on(scale, *CLASSIFICATION),
            *([searched(searches, store, SEARCH)] if searches else []),
            f"Mixup's alphas are the best of their own papers: {INPUT_ALPHA:g} for Input Mixup, "
            f"{MANIFOLD_ALPHA:g} for Manifold Mixup ({MANIFOLD_ALPHA_TINY:g} on TinyImageNet). "
            "Virtual Softmax is not clipped here.",
            *(f"The paper: {note}." for note in notes_of("tableD")),
        ),
    )


TABLES = (
    Artifact(
        "tableC",
        "classification: alpha and mu of Proxy Synthesis",
        lambda scale: flat(grid_search(scale, name).runs for name in CLASSIFICATION),
        _tableC,
    ),
    Artifact("tableD", "classification: regularisers compared", _runsD, _tableD, _laterD),
)
