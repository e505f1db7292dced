"""The repetitions: the best setting trained anew from other seeds, then the unseen classes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict

from .cross_validation import train_fold
from .ensemble import Measured, measure_ensemble
from .places import Claimed, Place, Queue
from .search import WAIT, Work, work_on
from .time_left import time_left

REPETITIONS = "repetitions"
MEASURED = "measured"


def repeat(
    work: Work, queue: Queue, searching: Queue, params: Mapping[str, float]
) -> list[Measured]:
    """Take part in the repetitions until all are done; what each measured, in order."""
    done = sum(place.done for place in queue.places())
    before = searching.places()
    with work.progress.task("repetitions", queue.count, done) as tick:
        while True:
            taken = queue.places()
            now = [place for place in taken if place.done]
            tick(len(now) - done, time_left(work.study.scale, before, taken))
            done = len(now)
            if done == queue.count:
                return [_measured(place) for place in now]
            claimed = queue.claim()
            if claimed is None:
                time.sleep(WAIT)
                continue
            value = work_on(queue, claimed, lambda c: _repetition(work, c, params))
            if value is not None:
                left = time_left(work.study.scale, before, queue.places())
                work.progress.say(
                    f"Repetition {claimed.index + 1} of {queue.count}: MAP@R {100 * value:.2f} on "
                    f"the unseen classes, concatenated; {left}"
                )


def _repetition(work: Work, claimed: Claimed, params: Mapping[str, float]) -> float:
    study, trial = work.study, claimed.trial
    # Not the seed of the search: it had a part in the choice of the parameters.
    seed = study.seed + 1 + claimed.index
    home = work.folder / REPETITIONS / f"{study.key(params)}-seed{seed}"
    folders = [home / f"fold{fold}" for fold in range(study.scale.folds)]
    name = f"folds of repetition {claimed.index + 1}"
    with work.progress.task(name, study.scale.folds) as tick:
        for fold, folder in enumerate(folders):
            made = train_fold(
                study, params, fold, seed, folder, keep_model=True,
                resources=work.resources, progress=work.progress,
            )  # fmt: skip
            trial.set_user_attr(f"fold{fold}", asdict(made))
            tick(1, f"validation MAP@R {100 * made.value:.1f}")
        measured = measure_ensemble(study, folders, work.resources, work.progress)
    trial.set_user_attr(MEASURED, asdict(measured))
    return measured.concatenated["map@r"]


def _measured(place: Place) -> Measured:
    assert place.current is not None
    return Measured(**place.current.user_attrs[MEASURED])
