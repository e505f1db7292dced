"""From Runs to the numbers of a cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from proxysynth.paper.artifact import Column
from proxysynth.paper.choice import Choice, Option, pick
from proxysynth.paper.scale import Scale, trained_loss
from proxysynth.paper.stand_ins import NAMES
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
MEASURES = {"map@r": "MAP@R", "recall@1": "Recall@1", "accuracy": "accuracy"}


def seeded(scale: Scale, benchmark: str, loss: Any, **changes: Any) -> tuple[Run, ...]:
    """One Run per seed; none where the scale has no such data."""
    made = (scale.run(benchmark, loss, seed, **changes) for seed in scale.seeds)
    return tuple(run for run in made if run is not None)


def measured(store: Store, runs: Iterable[Run], metric: str = "recall@1") -> tuple[float, ...]:
    """A metric of each Run in per cent; empty unless every one is finished, since a mean over the
    seeds that happen to be done first is another number."""
    results = [store.result(run) for run in runs]
    if not results or any(result is None for result in results):
        return ()
    return tuple(100 * result.metrics[metric] for result in results if result is not None)


def column(scale: Scale, benchmark: str, name: str, key: str = "") -> Column:
    """A column headed by what ran, beside the paper's."""
    return Column(name, scale.heading(benchmark), NAMES[benchmark], key or name)


def ran_on(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """Notes: what stands for what, over how many seeds."""
    return (*stands_for(scale, *benchmarks), over_seeds(scale), *few_steps(scale))


def stands_for(scale: Scale, *benchmarks: str) -> tuple[str, ...]:
    """What ran in place of each benchmark."""
    return tuple(
        f"{NAMES[benchmark]} is the paper's. Here, {scale.about(benchmark)}."
        if scale.about(benchmark)
        else f"{NAMES[benchmark]} was not run: no folder of it was given."
        for benchmark in benchmarks
    )


def over_seeds(scale: Scale) -> str:
    """How the spread is told."""
    if len(scale.seeds) == 1:
        return "Ours is one seed: no spread is known, so no difference is coloured."
    return (
        f"Ours is the mean over {len(scale.seeds)} seeds ± their standard deviation; a difference "
        "is coloured where its 95 % interval leaves out zero."
    )


def few_steps(scale: Scale) -> tuple[str, ...]:
    """A warning at the scale that only exercises the machinery."""
    few = "At the scale `smoke` training stops after a few steps: the numbers mean nothing."
    return (few,) if scale.name == "smoke" else ()


def chosen(choice: Choice, store: Store) -> Option | None:
    """What a search found; None while it is not done."""
    return pick(choice, store.result)


def told(choice: Choice, found: Option | None) -> str:
    """What a search found, in a few words: "glyphs 2: alpha 0.4 and mu 1"."""
    if not choice.runs:
        return f"{choice.what}: not searched"
    return f"{choice.what}: {found.label if found else 'the search is not done'}"


def searched(choices: Sequence[Choice], store: Store, what: str) -> str:
    """All searches of a table as one note; `what` says what was chosen and on what."""
    by = " and ".join(dict.fromkeys(MEASURES[choice.by] for choice in choices))
    tried = " or ".join(dict.fromkeys(str(len(choice.options)) for choice in choices))
    listed = "; ".join(told(choice, chosen(choice, store)) for choice in choices)
    return f"{what}, by {by}, among {tried} settings. Found: {listed}."


def synthesis_search(scale: Scale, benchmark: str) -> Choice:
    """alpha and mu of Proxy Synthesis for Table 6, searched once per data set with Norm-softmax."""
    loss = trained_loss("norm_softmax")
    options = []
    for alpha in scale.search_alphas:
        for mu in scale.search_mus:
            tried = ProxySynthesis(loss, alpha=alpha, mu=mu)
            runs = validated(scale, benchmark, tried)
            if runs:
                options.append(Option((alpha, mu), f"alpha {alpha:g} and mu {mu:g}", runs))
    return Choice(scale.heading(benchmark) or NAMES[benchmark], tuple(options))


def validated(scale: Scale, benchmark: str, loss: Any) -> tuple[Run, ...]:
    """The Runs that try a setting: a fifth of the seen classes is held out to judge it."""
    made = (scale.run(benchmark, loss, seed, report_epoch="best") for seed in scale.search_seeds)
    return tuple(run for run in made if run is not None)


def flat(groups: Iterable[Sequence[Run]]) -> tuple[Run, ...]:
    """All Runs of several groups, each once."""
    return tuple(dict.fromkeys(run for group in groups for run in group))
