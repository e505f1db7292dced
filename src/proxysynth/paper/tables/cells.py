"""From Runs to the numbers of a cell, and the searches and notes that tables share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from proxysynth.paper.artifact import Cell, Choice, Column
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import KS, NAMES, Scale, trained_loss
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
    "authors' code, which is optimistic; the column `last_epoch` of the CSV has the last epoch."
)
SQUARED_NCA = (
    "Our Proxy-NCA is what the authors' code trains, squared distances with the positive in the "
    "denominator at a scale of 12, which equals Norm-softmax at a scale of 24."
)


def method_name(loss: str, regularizer: str) -> str:
    """ "Softmax" or "PS + Softmax"."""
    return LOSS_NAMES[loss] if regularizer == "none" else f"PS + {LOSS_NAMES[loss]}"


def seeded(scale: Scale, benchmark: str, loss: Any, **changes: Any) -> tuple[Run, ...]:
    """One Run per seed; empty where the scale has no such data."""
    runs = (scale.run(benchmark, loss, seed, **changes) for seed in scale.seeds)
    return tuple(run for run in runs if run is not None)


def measured(store: Store, runs: Iterable[Run], metric: str = "recall@1") -> tuple[float, ...]:
    """A metric of each Run in percent; empty unless all are finished, since a mean over the seeds
    that happen to finish first is a different number."""
    results = [store.result(run) for run in runs]
    if None in results:
        return ()
    return tuple(100 * result.metrics[metric] for result in results if result)


def cell(
    store: Store, runs: Sequence[Run], metric: str, plain: Sequence[Run] = (), **fields: Any
) -> Cell:
    """A metric of some Runs, compared with that of the plain loss's if given; `fields` of Cell."""
    ours = measured(store, runs, metric)
    best = ours and any(run.report_epoch != "last" for run in runs)
    last = tuple(100 * store.last_epoch(run)[metric] for run in runs if best)
    return Cell(ours, baseline=measured(store, plain, metric), last=last, **fields)


def papers(file: str, regularizer: str, **keys: str) -> dict[str, Any]:
    """The paper's numbers of a cell, from `numbers/FILE.csv`: a regularizer's and its baseline."""
    base = number(file, regularizer="none", **keys) if regularizer != "none" else None
    return {"paper": number(file, regularizer=regularizer, **keys), "paper_baseline": base}


def compared(values: Mapping[str, tuple[float, ...]], regularizer: str, **fields: Any) -> Cell:
    """The values of a regularizer against those of the plain loss; `fields` of Cell."""
    plain = values["none"] if regularizer != "none" else ()
    return Cell(values[regularizer], baseline=plain, **fields)


def column(scale: Scale, benchmark: str, name: str, key: str = "") -> Column:
    """A column of what ran beside the paper's."""
    return Column(name, scale.heading(benchmark), NAMES[benchmark], key or name)


def ran_as(scale: Scale, benchmark: str) -> str:
    """What ran in place of a benchmark; its own name if nothing did."""
    return scale.heading(benchmark) or NAMES[benchmark]


# Notes


def ran_on(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """What stands in for what, over how many seeds, at which epoch."""
    seeds = "Ours is one seed: without a spread, no difference is colored."
    if len(scale.seeds) > 1:
        seeds = (
            f"Ours is the mean over {len(scale.seeds)} seeds ± their standard deviation; a "
            "difference is colored where its 95% interval excludes zero."
        )
    best = (BEST_ON_TEST,) if scale.name == "paper" and set(benchmarks) <= set(KS) else ()
    return (*stands_for(scale, *benchmarks), seeds, *best, *scale_notes(scale))


def stands_for(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """What ran in place of each benchmark."""
    notes = []
    for benchmark in benchmarks:
        name, about = NAMES[benchmark], scale.stand_in(benchmark).about
        here = f"The paper uses {name}. Here, {about}."
        notes.append(here if about else f"{name} was not run: its folder was not given.")
    return tuple(notes)


def scale_notes(scale: Scale) -> tuple[str, ...]:
    """What sets every number of this scale and command apart."""
    given = ", ".join(f"{name} {value}" for name, value in scale.settings)
    notes = []
    if given:
        notes.append(f"Every Run differs from the settings above by `--set`: {given}.")
    if scale.name == "smoke":
        few = "At scale `smoke`, training stops after a few steps"
        notes.append(f"{few}: the numbers are meaningless.")
    return tuple(notes)


def paper_notes(file: str, **keys: str) -> tuple[str, ...]:
    """The notes on the printed numbers of `numbers/FILE.csv`."""
    return tuple(f"The paper: {note}." for note in notes_of(file, **keys))


# Searches


def search(scale: Scale, benchmark: str, what: str, losses: Iterable[Any]) -> Choice:
    """Which of some losses is the best on a held-out fifth of the seen classes or images."""
    runs = [scale.run(benchmark, loss, report_epoch="best") for loss in losses]
    by = "map@r" if benchmark in KS else "accuracy"
    return Choice(what, tuple(run for run in runs if run is not None), by)


def synthesis_search(scale: Scale, benchmark: str, loss: str) -> Choice:
    """alpha and mu of Proxy Synthesis for Table 6: for every loss at the paper's scale, with
    Norm-softmax for all losses at the others."""
    what, plain = ran_as(scale, benchmark), trained_loss("norm_softmax")
    if scale.name == "paper":
        what, plain = f"{LOSS_NAMES[loss]} on {what}", trained_loss(loss)
    grid = product(scale.search_alphas, scale.search_mus)
    losses = [ProxySynthesis(plain, alpha=alpha, mu=mu) for alpha, mu in grid]
    return search(scale, benchmark, what, losses)


def search_note(choices: Iterable[Choice], store: Store, what: str) -> str:
    """All searches of a table as one note; `what` says what was chosen and on what."""
    found, choices = [], list(dict.fromkeys(choices))
    for choice in choices:
        loss = store.pick(choice)
        result = "unfinished" if choice.runs else "not searched"
        if loss is not None:
            mu = f" and mu {loss.mu:g}" if isinstance(loss, ProxySynthesis) else ""
            result = f"alpha {loss.alpha:g}{mu}"
        found.append(f"{choice.what}: {result}")
    by = choices[0].by.replace("map@r", "MAP@R")
    tried = " or ".join(dict.fromkeys(str(len(choice.runs)) for choice in choices))
    return f"{what}, by {by}, among {tried} settings. Chosen: {'; '.join(found)}."
