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
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES, NETWORK, STUDIES, STUDY_EPOCHS
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import PAIR, method_name, paper_notes, scale_notes
from proxysynth.protocols.mlrc import Study, make_study
from proxysynth.training.run import Run, Split
from proxysynth.values import encode

LOSSES = ("norm_softmax", "cosface", "arcface", "soft_triple", "proxy_nca", "proxy_anchor")
METRICS = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
TABLE_OF = {"cub200": "G", "cars196": "I", "sop": "K"}
EMBEDDINGS = {"concatenated": "512-d", "separated": "128-d"}
Part = tuple[str, str]
"""A benchmark and a kind of embedding."""


def studies_of(benchmarks: Iterable[str], scale: Scale) -> dict[str, Study]:
    """The studies of some benchmarks by the name of their folder; none without data."""
    made = {}
    for benchmark in benchmarks:
        for loss in LOSSES:
            run = scale.run(benchmark, loss)
            for reg in PAIR if run is not None else ():
                assert run is not None
                study = make_study(
                    run.data, loss, reg, scale.name, **_changes(scale, benchmark, run)
                )
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


def result_of(
    scale: Scale, store: Store, benchmark: str, loss: str, regularizer: str
) -> dict[str, Any]:
    """The result of a finished study of this scale and loss; empty if there is none."""
    path = store.folder / "mlrc" / f"{benchmark}-{loss}-{regularizer}" / "result.json"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    wanted = {"scale": scale.name, "loss": loss, "regularizer": regularizer}
    if not isinstance(found, dict) or any(found.get(key, it) != it for key, it in wanted.items()):
        return {}
    return found


def _studies(scale: Scale, store: Store, benchmark: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Finished studies of a benchmark by loss and regularizer."""
    pairs = [(loss, reg) for loss in LOSSES for reg in PAIR]
    found = {pair: result_of(scale, store, benchmark, *pair) for pair in pairs}
    return {pair: result for pair, result in found.items() if result}


def _cell(
    scale: Scale, store: Store, benchmark: str, loss: str, reg: str, embedding: str, metric: str
) -> Cell:
    def values(regularizer: str) -> tuple[float, ...]:
        found = result_of(scale, store, benchmark, loss, regularizer).get(embedding)
        listed = found.get(metric) if isinstance(found, dict) else None
        return tuple(100 * float(value) for value in listed) if isinstance(listed, list) else ()

    keys = {"benchmark": benchmark, "loss": loss, "embedding": embedding, "metric": metric}
    base = reg != "none"
    return Cell(
        values(reg),
        number("mlrc", regularizer=reg, **keys),
        number("mlrc", "ci95", regularizer=reg, **keys),
        baseline=values("none") if base else (),
        paper_baseline=number("mlrc", regularizer="none", **keys) if base else None,
        paired=False,  # repetitions with different settings share nothing
        digits=2,
        of_mean=True,
    )


def _table(title: str, parts: tuple[Part, ...], caption: str, scale: Scale, store: Store) -> Table:
    """A row per loss; three columns for each part."""
    rows = [
        Row(
            (method_name(loss, reg),),
            tuple(
                _cell(scale, store, b, loss, reg, e, metric) for b, e in parts for metric in METRICS
            ),
        )
        for loss in LOSSES
        for reg in PAIR
    ]
    one_benchmark = len({benchmark for benchmark, _ in parts}) == 1
    columns = []
    for benchmark, embedding in parts:
        name = scale.heading(benchmark) or NAMES[benchmark]
        ran = name if _studies(scale, store, benchmark) else ""
        for metric, label in METRICS.items():
            heading = f"{label}, {embedding if one_benchmark else NAMES[benchmark]}"
            key = f"{benchmark} {embedding} {metric}"
            columns.append(Column(heading, ran, NAMES[benchmark], key))
    return Table(
        title, caption, ("loss",), tuple(columns), tuple(rows), tuple(_notes(store, scale, parts))
    )


def _notes(store: Store, scale: Scale, parts: tuple[Part, ...]) -> list[str]:
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in parts))
    studies = {benchmark: _studies(scale, store, benchmark) for benchmark in benchmarks}
    missing = [
        (benchmark, loss, reg)
        for benchmark in benchmarks
        for loss in LOSSES
        for reg in PAIR
        if (loss, reg) not in studies[benchmark]
    ]
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} of {len(benchmarks) * len(LOSSES) * 2} studies have not been run. "
            f"`{command(scale, *missing[0])}`, run in this folder, runs the first of them alone."
        )
    notes += [note for b in benchmarks if (note := _amount(scale, b, list(studies[b].values())))]
    notes.append(
        "Both ± are 95 % intervals of the mean over the repetitions, the paper's over ten; a "
        "difference is colored where Welch's 95 % interval excludes zero."
    )
    notes.append(
        "Proxy-anchor is trained like the other losses: section C.2 has one setting for this "
        "protocol. Proxy-NCA is Eq. i with a scale, which is searched."
    )
    for benchmark, embedding in parts:
        notes += paper_notes(notes_of("mlrc", benchmark=benchmark, embedding=embedding))
    return [*notes, *scale_notes(scale)]


def _amount(scale: Scale, benchmark: str, studies: list[dict[str, Any]]) -> str:
    """How much was searched and repeated for a benchmark's rows; "" if nothing was."""
    amounts = {
        tuple(found.get(key) for key in ("trials", "folds", "repetitions"))
        for found in studies
        if found.get("trials")
    }
    if not amounts:
        return ""
    each = " or ".join(
        f"{trials} trials of {folds} folds and {repetitions} repetitions"
        for trials, folds, repetitions in sorted(amounts, key=str)
    )
    pruned = sum(int(found.get("pruned") or 0) for found in studies)
    return f"{scale.heading(benchmark) or NAMES[benchmark]}: {each} for each row" + (
        f"; {pruned} trials in total were pruned." if pruned else "."
    )


def command(scale: Scale, benchmark: str, loss: str, regularizer: str) -> str:
    """The command that runs a study for these tables, in their folder. The data set's folder is
    shown as ROOT: the table may be read on another machine."""
    data, settings = f"{benchmark}:ROOT", ""
    run = scale.run(benchmark, loss)
    changes = dict(scale.settings) if run is None else _changes(scale, benchmark, run)
    if run is not None and run.data == "glyphs":
        data = run.data
    if "trials" in changes:
        settings = f" --trials {changes.pop('trials')}"
    if "split" in changes:
        split = encode(changes.pop("split"))
        parts = {k: v for k, v in split.items() if v != encode(Split())[k]}
        settings += "".join(f" --set split.{k}={v}" for k, v in parts.items())
    settings += "".join(f" --set {k}={v}" for k, v in changes.items() if k != "proxy_lr")
    return (
        f"proxysynth mlrc {data}{settings} --loss {loss} --regularizer {regularizer} "
        f"--scale {scale.name} --out mlrc/{benchmark}-{loss}-{regularizer}"
    )


ARTIFACTS = {
    "table4": Artifact(
        lambda scale: (),
        partial(
            _table,
            "Table 4",
            tuple((benchmark, "concatenated") for benchmark in TABLE_OF),
            "MLRC evaluation: P@1, R-precision and MAP@R (%) of the concatenated 512 dimensions.",
        ),
        studies=partial(studies_of, tuple(TABLE_OF)),
    ),
    **{
        f"table{letter}": Artifact(
            lambda scale: (),
            partial(
                _table,
                f"Table {letter}",
                tuple((benchmark, embedding) for embedding in EMBEDDINGS),
                f"MLRC evaluation on {NAMES[benchmark]}: P@1, R-precision and MAP@R (%) of the "
                "concatenated 512 and the separated 128 dimensions.",
            ),
            studies=partial(studies_of, (benchmark,)),
        )
        for benchmark, letter in TABLE_OF.items()
    },
}
