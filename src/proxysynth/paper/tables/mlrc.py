"""Tables 4, G, I and K: the MLRC evaluation, read from what `proxysynth mlrc` wrote.

OUT/mlrc/BENCHMARK-LOSS-REGULARIZER/result.json
    {"concatenated": {"precision@1": [one per repetition], "r_precision": ..., "map@r": ...},
     "separated": ...}                                                fractions in [0, 1]
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from proxysynth.paper.artifact import Artifact, Cell, Column, Line, Table
from proxysynth.paper.printed import notes_of, number
from proxysynth.paper.scale import Scale
from proxysynth.paper.stand_ins import NAMES
from proxysynth.paper.store import Store
from proxysynth.paper.tables.cells import LOSS_NAMES

LOSSES = ("norm_softmax", "cosface", "arcface", "soft_triple", "proxy_nca", "proxy_anchor")
METRICS = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
OF = {"G": "cub200", "I": "cars196", "K": "sop"}
REGULARIZERS = ("none", "proxy_synthesis")
EMBEDDINGS = {"concatenated": "512-d", "separated": "128-d"}


def study(
    scale: Scale, store: Store, benchmark: str, loss: str, regularizer: str
) -> dict[str, Any]:
    """What a finished study of this scale and this loss gave; empty where there is none."""
    path = store.folder / "mlrc" / f"{benchmark}-{loss}-{regularizer}" / "result.json"
    try:
        told = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    wanted = {"scale": scale.name, "loss": loss, "regularizer": regularizer}
    if not isinstance(told, dict) or any(told.get(key, it) != it for key, it in wanted.items()):
        return {}
    return told


def _values(
    scale: Scale,
    store: Store,
    benchmark: str,
    loss: str,
    regularizer: str,
    embedding: str,
    metric: str,
) -> tuple[float, ...]:
    found = study(scale, store, benchmark, loss, regularizer).get(embedding)
    listed = found.get(metric) if isinstance(found, dict) else None
    return tuple(100 * float(value) for value in listed) if isinstance(listed, list) else ()


def _cell(
    scale: Scale, store: Store, benchmark: str, loss: str, reg: str, embedding: str, metric: str
) -> Cell:
    keys = {"benchmark": benchmark, "loss": loss, "embedding": embedding, "metric": metric}
    base = reg != "none"
    return Cell(
        _values(scale, store, benchmark, loss, reg, embedding, metric),
        number("mlrc", regularizer=reg, **keys),
        number("mlrc", "ci95", regularizer=reg, **keys),
        baseline=_values(scale, store, benchmark, loss, "none", embedding, metric) if base else (),
        paper_baseline=number("mlrc", regularizer="none", **keys) if base else None,
        paired=False,  # repetitions with other settings share nothing
        digits=2,
        of_mean=True,
    )


def _table(
    title: str, parts: tuple[tuple[str, str], ...], caption: str, scale: Scale, store: Store
) -> Table:
    """Rows of losses; for each (benchmark, embedding) three columns."""
    rows = []
    for loss in LOSSES:
        for reg in REGULARIZERS:
            name = LOSS_NAMES[loss] if reg == "none" else f"PS + {LOSS_NAMES[loss]}"
            cells = [
                _cell(scale, store, b, loss, reg, e, metric) for b, e in parts for metric in METRICS
            ]
            rows.append(Line((name,), tuple(cells)))
    heads = []
    for benchmark, embedding in parts:
        ran = _ran(scale, store, benchmark)
        for metric, words in METRICS.items():
            name = f"{words}, {NAMES[benchmark]}"
            if len({b for b, _ in parts}) == 1:
                name = f"{words}, {embedding}"
            heads.append(Column(name, ran, NAMES[benchmark], f"{benchmark} {embedding} {metric}"))
    return Table(
        title,
        caption,
        ("loss",),
        tuple(heads),
        tuple(rows),
        (*_notes(store, scale, parts),),
    )


def _ran(scale: Scale, store: Store, benchmark: str) -> str:
    """What the studies of a benchmark ran on; "" where there are none."""
    found = [study(scale, store, benchmark, x, reg) for x in LOSSES for reg in REGULARIZERS]
    return (scale.heading(benchmark) or NAMES[benchmark]) if any(found) else ""


def _notes(store: Store, scale: Scale, parts: tuple[tuple[str, str], ...]) -> list[str]:
    benchmarks = list(dict.fromkeys(benchmark for benchmark, _ in parts))
    missing = [
        (benchmark, loss, reg)
        for benchmark in benchmarks
        for loss in LOSSES
        for reg in REGULARIZERS
        if not study(scale, store, benchmark, loss, reg)
    ]
    told = []
    if missing:
        told.append(
            f"{len(missing)} of {len(benchmarks) * len(LOSSES) * 2} studies have not been run. "
            f"`{command(scale, *missing[0])}`, given in this folder, runs the first of them."
        )
    told += [done for b in benchmarks if (done := _amount(scale, store, b))]
    told.append(
        "Both ± are 95 % intervals of the mean over the repetitions, the paper's over ten; a "
        "difference is coloured where Welch's 95 % interval leaves out zero."
    )
    for benchmark, embedding in parts:
        for note in notes_of("mlrc", benchmark=benchmark, embedding=embedding):
            told.append(f"The paper: {note}.")
    return told


def _amount(scale: Scale, store: Store, benchmark: str) -> str:
    """How much was searched and repeated for a benchmark's rows; "" where nothing was."""
    found = [study(scale, store, benchmark, x, reg) for x in LOSSES for reg in REGULARIZERS]
    amounts = {
        tuple(told.get(key) for key in ("trials", "folds", "repetitions"))
        for told in found
        if told.get("trials")
    }
    each = " or ".join(
        f"{trials} trials of {folds} folds and {repetitions} repetitions"
        for trials, folds, repetitions in sorted(amounts, key=str)
    )
    if not each:
        return ""
    pruned = sum(int(told.get("pruned") or 0) for told in found)
    return f"{scale.heading(benchmark) or NAMES[benchmark]}: {each} for each row" + (
        f"; {pruned} trials in all were pruned." if pruned else "."
    )


def command(scale: Scale, benchmark: str, loss: str, regularizer: str) -> str:
    """What runs a study for these tables, given in their folder. A data set's own is ROOT: a table
    is shown where nobody knows the folders of the machine that made it."""
    data, settings = f"{benchmark}:ROOT", ""
    if scale.name != "paper":
        run = scale.run(benchmark, loss)
        assert run is not None
        data = run.data if run.data == "glyphs" else data
        settings = "".join(f" --set split.{k}={v}" for k, v in run.split.options().items())
    return (
        f"proxysynth mlrc {data}{settings} --loss {loss} --regularizer {regularizer} "
        f"--scale {scale.name} --out mlrc/{benchmark}-{loss}-{regularizer}"
    )


TABLES = (
    Artifact(
        "table4",
        "MLRC evaluation on three sets, concatenated embeddings",
        lambda scale: (),
        partial(
            _table,
            "Table 4",
            tuple((benchmark, "concatenated") for benchmark in OF.values()),
            "MLRC evaluation: P@1, R-precision and MAP@R (%) of the concatenated 512 dimensions.",
        ),
    ),
    *(
        Artifact(
            f"table{letter}",
            f"MLRC evaluation on {NAMES[benchmark]}, concatenated and separated",
            lambda scale: (),
            partial(
                _table,
                f"Table {letter}",
                tuple((benchmark, embedding) for embedding in EMBEDDINGS),
                f"MLRC evaluation on {NAMES[benchmark]}: P@1, R-precision and MAP@R (%) of the "
                "concatenated 512 and the separated 128 dimensions.",
            ),
        )
        for letter, benchmark in OF.items()
    ),
)
