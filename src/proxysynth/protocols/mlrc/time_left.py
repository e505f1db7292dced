"""How long a study will still take, from how long its trainings took so far."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from .places import Place
from .settings import Scale


def time_left(
    scale: Scale, searching: Sequence[Place], repeating: Sequence[Place] | None = None
) -> str:
    """Words such as "1 h 20 min left"; none before the first training is over.

    Args:
        searching: the places of the search.
        repeating: those of the repetitions, once they have begun.
    """
    trials = [t for p in (*searching, *(repeating or ())) if (t := p.current) is not None]
    folds = [v for t in trials for name, v in t.user_attrs.items() if name[:4] == "fold"]
    if not folds:
        return ""
    workers = max(1, sum(trial.state.name == "RUNNING" for trial in trials))
    left = (scale.trials + scale.repetitions) * scale.folds - len(folds)
    for place in searching:  # the folds that pruning saved
        if place.done and place.current is not None:
            left -= scale.folds - len(place.current.intermediate_values)
    seconds = fmean(fold["seconds"] for fold in folds) * max(0, left) / workers
    return f"{spoken(seconds)} left"


def spoken(seconds: float) -> str:
    """75 -> 1 min."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{round(seconds)} s"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{round(minutes / 60 / 24)} days"
