"""A study's result as plain JSON: its numbers, their spread, and where they come from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from statistics import fmean, variance
from typing import Any

from proxysynth.protocols.mlrc import Outcome
from proxysynth.protocols.mlrc.ensemble import METRICS as MEASURES
from proxysynth.protocols.mlrc.search import importance
from proxysynth.provenance import provenance
from proxysynth.values import encode

from .student import t_quantile

FORMAT = 1
KINDS = ("separated", "concatenated")


def result_of(outcome: Outcome) -> dict[str, Any]:
    """What `result.json` holds. Measures are fractions, one per repetition."""
    study, best = outcome.study, outcome.best
    values = {
        kind: {
            name: [getattr(repetition, kind)[name] for repetition in outcome.repetitions]
            for name in MEASURES
        }
        for kind in KINDS
    }
    seconds = sum(trial.seconds for trial in outcome.trials)
    return {
        "format": FORMAT,
        "name": study.name,
        "data": study.data,
        "loss": study.loss,
        "regularizer": study.regularizer,
        "scale": study.scale_name,
        "trials": study.scale.trials,
        "folds": study.scale.folds,
        "repetitions": len(outcome.repetitions),
        "seed": study.seed,
        "pruned": sum(trial.pruned for trial in outcome.trials),
        "run_again": sum(trial.lost for trial in outcome.trials),
        "best": best.params,
        "best_trial": best.index + 1,
        "value": best.value,
        **values,
        "queries_without_positive": max(one.alone for one in outcome.repetitions),
        "summary": {
            kind: {name: spread(each) for name, each in values[kind].items()} for kind in KINDS
        },
        "importance": importance(study.space, outcome.trials),
        "space": [
            {key: value for key, value in encode(item).items() if key != "kind"}
            for item in study.space
        ],
        "search": [asdict(trial) | {"folds": list(trial.folds)} for trial in outcome.trials],
        "search_seconds": round(seconds, 1),
        "dim": study.base.dim,
        "backbone": study.base.backbone,
        "provenance": provenance(),
    }


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, and the half-width of its 95 % interval by Student's t:

    mean -+ t s / sqrt(n),   t of n - 1 degrees of freedom;   None for a single value
    """
    half = None
    if len(values) > 1:
        half = t_quantile(0.95, len(values) - 1) * math.sqrt(variance(values) / len(values))
    return {"mean": fmean(values), "ci95": half}
