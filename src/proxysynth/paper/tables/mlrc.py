"""Tables 4, G, I and K: the MLRC evaluation, from studies as `proxysynth mlrc` runs them.

OUT/mlrc/BENCHMARK-LOSS-REGULARIZER/result.json
    {"concatenated": {"precision@1": [one per repetition], "r_precision": ..., "map@r": ...},
     "separated": ...}                                                fractions in [0, 1]
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from proxysynth.paper.artifact import Artifact, Cell, Column, Row, Table
from proxysynth.paper.printed import number
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES, NETWORK, STUDIES, STUDY_EPOCHS
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import (
    PAIR,
    compared,
    method_name,
    paper_notes,
    ran_as,
    scale_notes,
)
from proxysynth.protocols.mlrc import Study, make_study
from proxysynth.training.run import Run, Split
from proxysynth.values import encode

LOSSES = ("norm_softmax", "cosface", "arcface", "soft_triple", "proxy_nca", "proxy_anchor")
METRICS = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
TABLE_OF = {"cub200": "G", "cars196": "I", "sop": "K"}
Part = tuple[str, str]
"""A benchmark and a kind of embedding."""


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
        trials, fewer = STUDIES[benchmark]
        changes = {
            **{name: value for name, value in NETWORK.items() if name != "proxy_lr"},
            "epochs": STUDY_EPOCHS,
            "evaluate_every": STUDY_EPOCHS // 2,
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
    if not isinstance(found, dict) or any(found.get(key, it) != it for key, it in wanted.items()):
        return {}
    return found


def _table(title: str, parts: tuple[Part, ...], caption: str, scale: Scale, store: Store) -> Table:
    """A row per loss; three columns for each part."""
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in parts))
    studies = {
        benchmark: {row: _result(scale, store, benchmark, *row) for row in _rows()}
        for benchmark in benchmarks
    }

    def cell(loss: str, regularizer: str, benchmark: str, embedding: str, metric: str) -> Cell:
        def values(reg: str) -> tuple[float, ...]:
            found = studies[benchmark][loss, reg].get(embedding)
            listed = found.get(metric) if isinstance(found, dict) else None
            return tuple(100 * float(v) for v in listed) if isinstance(listed, list) else ()

        keys = {"benchmark": benchmark, "loss": loss, "embedding": embedding, "metric": metric}
        spread = number("mlrc", "ci95", regularizer=regularizer, **keys)
        made = compared(values, regularizer, "mlrc", **keys)
        # Repetitions with different settings share nothing.
        return replace(made, paper_spread=spread, paired=False, digits=2, of_mean=True)

    heads = [(benchmark, embedding, metric) for benchmark, embedding in parts for metric in METRICS]
    columns = []
    for benchmark, embedding, metric in heads:
        kind = embedding if len(benchmarks) == 1 else NAMES[benchmark]
        ran = ran_as(scale, benchmark) if any(studies[benchmark].values()) else ""
        name, key = f"{METRICS[metric]}, {kind}", f"{benchmark} {embedding} {metric}"
        columns.append(Column(name, ran, NAMES[benchmark], key))
    rows = [
        Row((method_name(*row),), tuple(cell(*row, *head) for head in heads)) for row in _rows()
    ]
    missing = [
        (benchmark, *row)
        for benchmark in benchmarks
        for row, found in studies[benchmark].items()
        if not found
    ]
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} of {len(benchmarks) * len(LOSSES) * 2} studies have not been run. "
            f"`{command(scale, *missing[0])}`, run in this folder, runs the first of them alone."
        )
    for benchmark in benchmarks:
        notes += _amount(ran_as(scale, benchmark), studies[benchmark].values())
    notes += [
        "Both ± are 95 % intervals of the mean over the repetitions, the paper's over ten; a "
        "difference is colored where Welch's 95 % interval excludes zero.",
        "Proxy-anchor is trained like the other losses: section C.2 has one setting for this "
        "protocol. Proxy-NCA is Eq. i with a scale, which is searched.",
    ]
    for benchmark, embedding in parts:
        notes += paper_notes("mlrc", benchmark=benchmark, embedding=embedding)
    notes += scale_notes(scale)
    return Table(title, caption, ("loss",), tuple(columns), tuple(rows), tuple(notes))


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


def _artifact(letter: str, parts: tuple[Part, ...], caption: str) -> Artifact:
    benchmarks = tuple(dict.fromkeys(benchmark for benchmark, _ in parts))
    make = partial(_table, f"Table {letter}", parts, f"MLRC evaluation{caption} dimensions.")
    return Artifact(make, studies=partial(studies_of, benchmarks))


_MEASURES = "P@1, R-precision and MAP@R (%) of the concatenated 512"
ARTIFACTS = {
    "table4": _artifact("4", tuple((b, "concatenated") for b in TABLE_OF), f": {_MEASURES}")
} | {
    f"table{letter}": _artifact(
        letter,
        ((benchmark, "concatenated"), (benchmark, "separated")),
        f" on {NAMES[benchmark]}: {_MEASURES} and the separated 128",
    )
    for benchmark, letter in TABLE_OF.items()
}
