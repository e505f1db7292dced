"""Tables 4, G, I and K: the MLRC evaluation, from studies as `proxysynth mlrc` runs them.

OUT/mlrc/BENCHMARK-LOSS-REGULARIZER/result.json
    {"concatenated": {"precision@1": [one per repetition], "r_precision": ..., "map@r": ...},
     "separated": ...}                                                fractions in [0, 1]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from proxysynth.formatting import count
from proxysynth.paper.artifact import Cell, Column, Table, grid
from proxysynth.paper.printed import number
from proxysynth.paper.scale import NAMES, NETWORK, Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cells import PAIR, method_name, ran_as
from proxysynth.protocols.mlrc import Study, make_study
from proxysynth.report.study import TITLES as METRICS

LOSSES = ("norm_softmax", "cosface", "arcface", "soft_triple", "proxy_nca", "proxy_anchor")
TABLE_OF = {"cub200": "G", "cars196": "I", "sop": "K"}
SMALL: dict[str, tuple[int, dict[str, Any]]] = {
    "cub200": (3, {"train_pictures": 2000}),
    "cars196": (2, {"train_pictures": 2000}),
    "sop": (2, {"train_classes": 400}),
}
"""Studies of glyphs at the scale small: trials of the search, and what is trained on."""
EPOCHS = 8  # of each of their trainings


def study_of(scale: Scale, benchmark: str, loss: str, regularizer: str) -> Study | None:
    """The study of a row on a benchmark; None without data."""
    run = scale.run(benchmark, loss)
    if run is None:
        return None
    changes: dict[str, Any] = {} if scale.name == "paper" else {"split": run.split}
    if scale.name == "small" and run.data == "glyphs":
        trials, fewer = SMALL[benchmark]
        changes = {
            **NETWORK,
            "epochs": EPOCHS,
            "evaluate_every": EPOCHS // 2,
            "split": replace(run.split, **fewer),
            "trials": trials,
        }
    changes |= scale.settings
    changes.pop("proxy_lr", None)  # it is searched
    return make_study(run.data, loss, regularizer, scale.name, **changes)


def _table(letter: str, benchmarks: Sequence[str], scale: Scale, store: Store) -> Table:
    """A row per loss; three columns for each benchmark, or for each kind of embedding on one."""
    alone, (first, *_) = len(benchmarks) == 1, benchmarks
    embeddings = ("concatenated", "separated") if alone else ("concatenated",)
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for benchmark, loss, reg in product(benchmarks, LOSSES, PAIR):
        name = f"{benchmark}-{loss}-{reg}"
        study = store.study(name, study_of(scale, benchmark, loss, reg))
        wanted = {"scale": scale.name, "loss": loss, "regularizer": reg}
        ours = all(study.get(key, it) == it for key, it in wanted.items())
        found[benchmark, loss, reg] = study if ours else {}
    studies = {b: [one for key, one in found.items() if key[0] == b and one] for b in benchmarks}

    def cell(loss: str, regularizer: str, benchmark: str, embedding: str, metric: str) -> Cell:
        values = {}
        for reg in PAIR:
            listed = found[benchmark, loss, reg].get(embedding, {}).get(metric, ())
            values[reg] = tuple(100 * float(value) for value in listed)
        keys = {"benchmark": benchmark, "loss": loss, "embedding": embedding, "metric": metric}
        paper = cells.papers("mlrc", regularizer, **keys)
        paper["paper_spread"] = number("mlrc", "ci95", regularizer=regularizer, **keys)
        # Repetitions with different settings share nothing.
        look = {"paired": False, "digits": 2, "of_mean": True}
        return cells.compared(values, regularizer, **paper, **look)

    columns, notes = {}, []
    for benchmark, embedding, metric in product(benchmarks, embeddings, METRICS):
        kind = embedding if alone else NAMES[benchmark]
        ran = ran_as(scale, benchmark) if studies[benchmark] else ""
        name, key = f"{METRICS[metric]}, {kind}", f"{benchmark} {embedding} {metric}"
        column = Column(name, ran, NAMES[benchmark], key)
        columns[column] = (benchmark, embedding, metric)
    if missing := sum(not study for study in found.values()):
        notes.append(
            f"{missing} of {len(found)} studies have not been run; "
            f"`proxysynth paper table{letter}` with the same options runs them."
        )
    for benchmark in benchmarks:
        notes += _amount(ran_as(scale, benchmark), studies[benchmark])
    notes += [
        "Both ± are 95% intervals of the mean over the repetitions, the paper's over ten; a "
        "difference is colored where Welch's 95% interval excludes zero.",
        "Proxy-anchor is trained like the other losses: section C.2 has one setting for this "
        "protocol. Proxy-NCA is Eq. i with a scale, which is searched.",
    ]
    for benchmark, embedding in product(benchmarks, embeddings):
        notes += cells.paper_notes("mlrc", benchmark=benchmark, embedding=embedding)
    return Table(
        f"Table {letter}",
        f"MLRC evaluation{f' on {NAMES[first]}' * alone}: P@1, R-precision and MAP@R (%) of the "
        f"concatenated 512{' and the separated 128' * alone} dimensions.",
        ("loss",),
        *grid(columns, {(method_name(*row),): row for row in product(LOSSES, PAIR)}, cell),
        (*notes, *cells.scale_notes(scale)),
    )


def _amount(ran: str, studies: Iterable[dict[str, Any]]) -> list[str]:
    """How much was searched and repeated for a benchmark's rows."""
    counted = [found for found in studies if found.get("trials")]
    sizes = ("trials", "folds", "repetitions")
    amounts = {tuple(found.get(size, 0) for size in sizes) for found in counted}
    each = " or ".join(
        f"{count(trials, 'trial')} of {folds} folds and {count(repetitions, 'repetition')}"
        for trials, folds, repetitions in sorted(amounts, key=str)
    )
    pruned = sum(int(found.get("pruned") or 0) for found in counted)
    after = f"; {pruned} trials in total were pruned." if pruned else "."
    return [f"{ran}: {each} for each row{after}"] if amounts else []


ARTIFACTS = {"table4": partial(_table, "4", tuple(TABLE_OF))} | {
    f"table{letter}": partial(_table, letter, (benchmark,))
    for benchmark, letter in TABLE_OF.items()
}
