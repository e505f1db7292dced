"""How a training step scales with the number of classes and of processes.

Three tables: a step with a thousand to a million classes on one, two and four processes; the
exponent with which its time grows with the classes (1 is proportional); and a step with a million
classes of 256 dimensions on two processes, for each optimizer of the proxies, with the total memory
of both. On a machine with fewer cores than processes, more processes show the overhead of sharding
only, not its gain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks import Row
from benchmarks.sharded_step import OPTIMIZERS, Setting, measure

CLASSES = (1_000, 10_000, 100_000, 1_000_000)
PROCESSES = (1, 2, 4)
LARGEST = 12.0
"""Gigabytes that two processes may take in total for a million classes."""


def run(quick: bool = False) -> list[Row]:
    """Rows of the three tables."""
    rows: list[Row] = []
    for processes in (1, 2) if quick else PROCESSES:
        grown = [growth(c, processes, quick) for c in ((500, 2_000) if quick else CLASSES)]
        rows += [*grown, slope(grown)]
    for optimizer in OPTIMIZERS:
        rows.append(largest(2_000 if quick else CLASSES[-1], optimizer, quick))
    return rows


def growth(classes: int, processes: int, quick: bool = False) -> Row:
    """A step at one size."""
    setting = Setting(
        classes, processes, batch=32 if quick else 256, rounds=_rounds(classes, quick)
    )
    found = measure(setting)
    shown = ("step_s", "loss_s", "network_s", "optimizer_s", "gigaflops", "travelled_mb", "peak_mb")
    return {
        "table": "scale",
        **_facts(setting),
        **{key: found[key] for key in shown},
        "loss_gflop_per_s": found["gigaflops"] / found["loss_s"],
    }


def slope(rows: Sequence[Row]) -> Row:
    """The exponent of c in the time of loss and step: over all sizes, and over the last two."""
    made: Row = {"table": "slope", "processes": rows[0]["processes"]}
    for key in ("loss_s", "step_s"):
        made[f"{key.removesuffix('_s')}_slope"] = _exponent(rows, key)
        made[f"{key.removesuffix('_s')}_slope_last"] = _exponent(rows[-2:], key)
    return made | {"from_classes": rows[0]["classes"], "to_classes": rows[-1]["classes"]}


def largest(classes: int, optimizer: str, quick: bool = False) -> Row:
    """Time and total memory of a step with a million classes on two processes."""
    setting = Setting(
        classes, 2, batch=32 if quick else 256, optimizer=optimizer, rounds=1 if quick else 3
    )
    found = measure(setting)
    gigabytes = found["peak_mb"] / 1024
    return {
        "table": "million",
        "optimizer": optimizer,
        **_facts(setting),
        "peak_gb_together": gigabytes,
        "state_mb_each": found["state_mb"],
        **{key: found[key] for key in ("step_s", "loss_s", "network_s", "optimizer_s")},
        "target": f"{LARGEST:.0f} GB in total",
        "reached": gigabytes <= LARGEST,
    }


def _facts(setting: Setting) -> Row:
    return {
        "classes": setting.classes,
        "processes": setting.processes,
        "threads_each": setting.threads,
        "batch": setting.batch,
        "dim": setting.dim,
    }


def _exponent(rows: Sequence[Row], key: str) -> float:
    x = [math.log(row["classes"]) for row in rows]
    return float(np.polyfit(x, [math.log(row[key]) for row in rows], 1)[0])


def _rounds(classes: int, quick: bool) -> int:
    return 1 if quick else max(3, min(15, 1_000_000 // classes))
