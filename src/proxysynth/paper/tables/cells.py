"""From Runs to the numbers of a cell, and the notes that tables share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proxysynth.paper.artifact import Cell, Choice, Column, Option
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES, RETRIEVAL
from proxysynth.paper.store import Store
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.run import Run

LOSS_NAMES = {
    "softmax": "Softmax",
    "norm_softmax": "Norm-softmax",
    "sphereface": "SphereFace",
    "cosface": "CosFace",
    "arcface": "ArcFace",
    "proxy_nca": "Proxy-NCA",
    "soft_triple": "SoftTriple",
    "proxy_anchor": "Proxy-anchor",
}
"""As the paper writes them."""
PAIR = ("none", "proxy_synthesis")
BEST_ON_TEST = (
    "Ours is the epoch with the best Recall@1 on the test classes, as in the literature and the "
    "authors' code, which flatters it; the column `last_epoch` of the CSV file has the last epoch."
)
SQUARED_NCA = (
    "Our Proxy-NCA is what the authors' code trains, squared distances with the positive in the "
    "denominator at a scale of 12, which equals Norm-softmax at a scale of 24."
)
METRIC_NAMES = {"map@r": "MAP@R", "recall@1": "Recall@1", "accuracy": "accuracy"}


def method_name(loss: str, regularizer: str) -> str:
    """ "Softmax" or "PS + Softmax"."""
    return LOSS_NAMES[loss] if regularizer == "none" else f"PS + {LOSS_NAMES[loss]}"


def seeded(scale: Scale, benchmark: str, loss: Any, **changes: Any) -> tuple[Run, ...]:
    """One Run per seed; empty where the scale has no such data."""
    runs = (scale.run(benchmark, loss, seed, **changes) for seed in scale.seeds)
    return tuple(run for run in runs if run is not None)


def validated(scale: Scale, benchmark: str, loss: Any) -> tuple[Run, ...]:
    """The Runs that try a setting, judged on a held-out fifth of the seen classes."""
    runs = (scale.run(benchmark, loss, seed, report_epoch="best") for seed in scale.search_seeds)
    return tuple(run for run in runs if run is not None)


def flat(groups: Iterable[Sequence[Run]]) -> tuple[Run, ...]:
    """All Runs of several groups, each once."""
    return tuple(dict.fromkeys(run for group in groups for run in group))


def measured(store: Store, runs: Iterable[Run], metric: str = "recall@1") -> tuple[float, ...]:
    """A metric of each Run in percent; empty unless all are finished, since a mean over the seeds
    that happen to finish first is a different number."""
    results = [store.result(run) for run in runs]
    if not results or any(result is None for result in results):
        return ()
    return tuple(100 * result.metrics[metric] for result in results if result is not None)


def last_epochs(store: Store, runs: Sequence[Run], metric: str = "recall@1") -> tuple[float, ...]:
    """The same at the last epoch; empty where that is the one that is reported."""
    if all(run.report_epoch == "last" for run in runs) or not measured(store, runs, metric):
        return ()
    found = [store.last_epoch(run) for run in runs]
    return tuple(100 * one[metric] for one in found if one is not None)


def cell(
    store: Store,
    runs: Sequence[Run],
    paper: float | None = None,
    plain: Sequence[Run] = (),
    paper_plain: float | None = None,
    metric: str = "recall@1",
    **more: Any,
) -> Cell:
    """A metric of some Runs beside the paper's, compared with that of the plain loss if given."""
    return Cell(
        measured(store, runs, metric),
        paper,
        baseline=measured(store, plain, metric),
        paper_baseline=paper_plain,
        last=last_epochs(store, runs, metric),
        **more,
    )


def column(scale: Scale, benchmark: str, name: str, key: str = "") -> Column:
    """A column of what ran beside the paper's."""
    return Column(name, scale.heading(benchmark), NAMES[benchmark], key or name)


# Notes


def ran_on(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """What stands in for what, over how many seeds, at which epoch."""
    notes = (*stands_for(scale, *benchmarks), over_seeds(scale))
    if scale.name == "paper" and set(benchmarks) <= set(RETRIEVAL):
        notes += (BEST_ON_TEST,)
    return (*notes, *scale_notes(scale))


def stands_for(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """What ran in place of each benchmark."""
    return tuple(
        f"The paper uses {NAMES[benchmark]}. Here, {scale.about(benchmark)}."
        if scale.about(benchmark)
        else f"{NAMES[benchmark]} was not run: its folder was not given."
        for benchmark in benchmarks
    )


def over_seeds(scale: Scale) -> str:
    if len(scale.seeds) == 1:
        return "Ours is one seed: without a spread, no difference is colored."
    return (
        f"Ours is the mean over {len(scale.seeds)} seeds ± their standard deviation; a difference "
        "is colored where its 95 % interval excludes zero."
    )


def scale_notes(scale: Scale) -> tuple[str, ...]:
    """What sets every number of this scale and command apart."""
    notes = []
    if scale.settings:
        given = ", ".join(f"{name} {value}" for name, value in scale.settings)
        notes.append(f"Every Run differs from the settings above by `--set`: {given}.")
    if scale.name == "smoke":
        notes.append(
            "At the scale `smoke`, training stops after a few steps: the numbers mean nothing."
        )
    return tuple(notes)


def paper_notes(notes: Iterable[str]) -> tuple[str, ...]:
    """Notes on the printed numbers."""
    return tuple(f"The paper: {note}." for note in notes)


# Searches


def chosen(choice: Choice, store: Store) -> Option | None:
    """What a search chose; None while it is unfinished."""
    return choice.best(store.result)


def search_note(choices: Sequence[Choice], store: Store, what: str) -> str:
    """All searches of a table as one note; `what` says what was chosen and on what."""
    found = []
    for choice in choices:
        option = chosen(choice, store)
        result = option.label if option else "unfinished" if choice.runs else "not searched"
        found.append(f"{choice.what}: {result}")
    by = " and ".join(dict.fromkeys(METRIC_NAMES[choice.by] for choice in choices))
    tried = " or ".join(dict.fromkeys(str(len(choice.options)) for choice in choices))
    return f"{what}, by {by}, among {tried} settings. Chosen: {'; '.join(found)}."


def synthesis_search(scale: Scale, benchmark: str, loss: str) -> Choice:
    """alpha and mu of Proxy Synthesis for Table 6: for every loss at the paper's scale, with
    Norm-softmax for all losses at the others."""
    loss, where = searched_with(scale, loss), scale.heading(benchmark) or NAMES[benchmark]
    plain = trained_loss(loss)
    options = []
    for alpha in scale.search_alphas:
        for mu in scale.search_mus:
            runs = validated(scale, benchmark, ProxySynthesis(plain, alpha=alpha, mu=mu))
            if runs:
                options.append(Option((alpha, mu), f"alpha {alpha:g} and mu {mu:g}", runs))
    what = f"{LOSS_NAMES[loss]} on {where}" if scale.name == "paper" else where
    return Choice(what, tuple(options))


def searched_with(scale: Scale, loss: str) -> str:
    """The loss whose search decides alpha and mu for this one."""
    return loss if scale.name == "paper" else "norm_softmax"
