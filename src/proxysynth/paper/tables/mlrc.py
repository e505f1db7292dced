"""Tables 4, G, I and K: the MLRC evaluation, from studies as `proxysynth mlrc` runs them.

OUT/mlrc/BENCHMARK-LOSS-REGULARIZER/result.json
    {"concatenated": {"precision@1": [one per repetition], "r_precision": ..., "map@r": ...},
     "separated": ...}                                                fractions in [0, 1]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from proxysynth.paper.artifact import Artifact, Cell, Column, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import NAMES, NETWORK, Scale
from proxysynth.paper.store import Store
from proxysynth.paper.tables import cells
from proxysynth.paper.tables.cells import PAIR, method_name, ran_as
from proxysynth.protocols.mlrc import Study, make_study
from proxysynth.training.run import Run, Split
from proxysynth.values import encode

LOSSES = ("norm_softmax", "cosface", "arcface", "soft_triple", "proxy_nca", "proxy_anchor")
METRICS = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
TABLE_OF = {"cub200": "G", "cars196": "I", "sop": "K"}
SMALL: dict[str, tuple[int, dict[str, int]]] = {
    "cub200": (3, {"train_pictures": 2000}),
    "cars196": (2, {"train_pictures": 2000}),
    "sop": (2, {"train_classes": 400}),
}
"""Studies of glyphs at the scale small: trials of the search, and what is trained on."""
EPOCHS = 8  # of each of their trainings


def _rows() -> list[tuple[str, str]]:
    return [(loss, reg) for loss in LOSSES for reg in PAIR]


def studies_of(benchmarks: Iterable[str], scale: Scale) -> dict[str, Study]:
    """The studies of some benchmarks by the name of their folder; none without data."""
    made = {}
    for benchmark in benchmarks:
        for loss, reg in _rows():
            run = scale.run(benchmark, loss)
            if run is not None:
                changes = _changes(scale, benchmark, run)
                study = make_study(run.data, loss, reg, scale.name, **changes)
                made[f"{benchmark}-{loss}-{reg}"] = study
    return made


def _changes(scale: Scale, benchmark: str, run: Run) -> dict[str, Any]:
    """What sets a study apart from those of `proxysynth mlrc` at the same scale."""
    changes: dict[str, Any] = {} if scale.name == "paper" else {"split": run.split}
    if scale.name == "small" and run.data == "glyphs":
        trials, fewer = SMALL[benchmark]
        changes = {
            **{name: value for name, value in NETWORK.items() if name != "proxy_lr"},
            "epochs": EPOCHS,
            "evaluate_every": EPOCHS // 2,
            "split": replace(run.split, **fewer),  # type: ignore[arg-type]
            "trials": trials,
        }
    return changes | {k: v for k, v in scale.settings if k != "proxy_lr"}  # it is searched


def command(scale: Scale, benchmark: str, loss: str, regularizer: str) -> str:
    """The command that runs a study for these tables, in their folder. The data set's folder is
    shown as ROOT: the table may be read on another machine."""
    run = scale.run(benchmark, loss)
    changes = dict(scale.settings) if run is None else _changes(scale, benchmark, run)
    data = "glyphs" if run is not None and run.data == "glyphs" else f"{benchmark}:ROOT"
    words = ["proxysynth mlrc", data]
    if "trials" in changes:
        words.append(f"--trials {changes.pop('trials')}")
    if "split" in changes:
        split, plain = encode(changes.pop("split")), encode(Split())
        words += [f"--set split.{k}={v}" for k, v in split.items() if v != plain[k]]
    words += [f"--set {k}={v}" for k, v in changes.items() if k != "proxy_lr"]
    words += [f"--loss {loss} --regularizer {regularizer} --scale {scale.name}"]
    return " ".join([*words, f"--out mlrc/{benchmark}-{loss}-{regularizer}"])


def _result(scale: Scale, store: Store, benchmark: str, loss: str, reg: str) -> dict[str, Any]:
    """The result of a finished study of this scale and loss; empty if there is none."""
    try:
        path = store.folder / "mlrc" / f"{benchmark}-{loss}-{reg}" / "result.json"
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    wanted = {"scale": scale.name, "loss": loss, "regularizer": reg}
    ours = isinstance(found, dict) and all(found.get(key, it) == it for key, it in wanted.items())
    return found if ours else {}


def _table(letter: str, benchmarks: Sequence[str], scale: Scale, store: Store) -> Table:
    """A row per loss; three columns for each benchmark, or for each kind of embedding on one."""
    alone, (first, *_) = len(benchmarks) == 1, benchmarks
    embeddings = ("concatenated", "separated") if alone else ("concatenated",)
    found = {(b, *row): _result(scale, store, b, *row) for b in benchmarks for row in _rows()}
    studies = {b: [one for key, one in found.items() if key[0] == b and one] for b in benchmarks}

    def cell(loss: str, regularizer: str, benchmark: str, embedding: str, metric: str) -> Cell:
        def values(reg: str) -> tuple[float, ...]:
            listed = found[benchmark, loss, reg].get(embedding, {}).get(metric, ())
            return tuple(100 * float(value) for value in listed)

        keys = {"benchmark": benchmark, "loss": loss, "embedding": embedding, "metric": metric}
        paper = cells.papers("mlrc", regularizer, **keys)
        paper["paper_spread"] = number("mlrc", "ci95", regularizer=regularizer, **keys)
        # Repetitions with different settings share nothing.
        look = {"paired": False, "digits": 2, "of_mean": True}
        return cells.compared(values, regularizer, **paper, **look)

    heads = [(b, embedding, m) for b in benchmarks for embedding in embeddings for m in METRICS]
    columns, notes = [], []
    for benchmark, embedding, metric in heads:
        kind = embedding if alone else NAMES[benchmark]
        ran = ran_as(scale, benchmark) if studies[benchmark] else ""
        name, key = f"{METRICS[metric]}, {kind}", f"{benchmark} {embedding} {metric}"
        columns.append(Column(name, ran, NAMES[benchmark], key))
    missing = [key for key, one in found.items() if not one]
    if missing:
        notes.append(
            f"{len(missing)} of {len(found)} studies have not been run. "
            f"`{command(scale, *missing[0])}`, run in this folder, runs the first of them alone."
        )
    for benchmark in benchmarks:
        notes += _amount(ran_as(scale, benchmark), studies[benchmark])
    notes += [
        "Both ± are 95 % intervals of the mean over the repetitions, the paper's over ten; a "
        "difference is colored where Welch's 95 % interval excludes zero.",
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
        tuple(columns),
        tuple(Row((method_name(*r),), tuple(cell(*r, *head) for head in heads)) for r in _rows()),
        (*notes, *cells.scale_notes(scale)),
    )


def _amount(ran: str, studies: Iterable[dict[str, Any]]) -> list[str]:
    """How much was searched and repeated for a benchmark's rows."""
    counted = [found for found in studies if found.get("trials")]
    amounts = {tuple(map(found.get, ("trials", "folds", "repetitions"))) for found in counted}
    each = " or ".join(
        f"{trials} trials of {folds} folds and {repetitions} repetitions"
        for trials, folds, repetitions in sorted(amounts, key=str)
    )
    pruned = sum(int(found.get("pruned") or 0) for found in counted)
    after = f"; {pruned} trials in total were pruned." if pruned else "."
    return [f"{ran}: {each} for each row{after}"] if amounts else []


def _artifact(letter: str, *benchmarks: str) -> Artifact:
    make = partial(_table, letter, benchmarks)
    return Artifact(make, studies=partial(studies_of, benchmarks))


ARTIFACTS = {"table4": _artifact("4", *TABLE_OF)} | {
    f"table{letter}": _artifact(letter, benchmark) for benchmark, letter in TABLE_OF.items()
}
