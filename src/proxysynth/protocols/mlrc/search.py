"""The search: trials of parameters, each the mean validation MAP@R of its folds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from proxysynth.errors import TrainingFailed
from proxysynth.training.progress import Progress
from proxysynth.training.resources import Resources

from .cross_validation import Fold, train_fold
from .lease import leased
from .places import Claimed, Place, Queue
from .study import Study
from .time_left import time_left

if TYPE_CHECKING:
    from optuna.trial import Trial, TrialState

WAIT = 1.0  # seconds until others' work is looked at again
TRIALS = "trials"


@dataclass(frozen=True)
class Searched:
    """One trial of a finished search.

    Args:
        index: its place in the order in which trials began.
        params: what was tried.
        value: the mean over its folds; of a pruned one, over those that were trained.
        folds: MAP@R of each fold that was trained.
        pruned: given up before the last fold.
        lost: how often its worker died or was stopped, and it was run again.
        seconds: of its trainings.
        note: why a fold counts as 0, if one does.
    """

    index: int
    params: dict[str, float]
    value: float
    folds: tuple[float, ...]
    pruned: bool = False
    lost: int = 0
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Work:
    """What a worker works with: the study, its folder, the machine, and where to report to."""

    study: Study
    folder: Path
    resources: Resources
    progress: Progress


def search(work: Work, queue: Queue) -> list[Searched]:
    """Take part in the search until all its trials are done, here or elsewhere."""
    done = sum(place.done for place in queue.places())
    with work.progress.task("trials", queue.count, done) as tick:
        while True:
            now = [place for place in queue.places() if place.done]
            tick(len(now) - done, _note(work, now, queue))
            done = len(now)
            if done == queue.count:
                return [_searched(place) for place in now]
            claimed = queue.claim()
            if claimed is None:
                time.sleep(WAIT)
                continue

            def after_fold(now: list[Place] = now) -> None:
                tick(0, _note(work, now, queue))

            value = work_on(queue, claimed, lambda c: _trial(work, c, after_fold))
            _tell(work, claimed, value, queue)


def best_of(trials: list[Searched]) -> Searched:
    """The whole trial with the highest value, the first of equals."""
    whole = [trial for trial in trials if not trial.pruned]
    best = max(whole, key=lambda trial: (trial.value, -trial.index))
    if best.value <= 0:
        raise TrainingFailed(
            f"none of the {len(whole)} trials learnt anything, the loss did not stay finite: lower "
            "the learning rates with --set lr=..., in another folder"
        )
    return best


def work_on(queue: Queue, claimed: Claimed, do: Callable[[Claimed], float]) -> float | None:
    """Do a place's work under a lease and tell what came of it; None where it does not count.

    Args:
        do: from the claimed place to its value; may raise Optuna's TrialPruned.
    """
    import optuna

    states = optuna.trial.TrialState
    try:
        with leased(claimed.trial):
            value: float | None
            try:
                value = do(claimed)
            except optuna.TrialPruned:
                value = None
        _end(queue, claimed, value, states.PRUNED if value is None else states.COMPLETE)
    except optuna.exceptions.UpdateFinishedTrialError:
        return None  # this worker was taken for dead: another one has the place now
    except BaseException:
        queue.give_back(claimed)
        raise
    return value


def _end(queue: Queue, claimed: Claimed, value: float | None, state: TrialState) -> None:
    import optuna

    number = claimed.trial.number
    try:
        queue.study.tell(claimed.trial, value, state=state)
    except ValueError as error:
        if queue.study.get_trials(deepcopy=False)[number].state.name == "RUNNING":
            raise
        raise optuna.exceptions.UpdateFinishedTrialError(f"trial {number} is over") from error


def _trial(work: Work, claimed: Claimed, after_fold: Callable[[], None]) -> float:
    """Train the folds of a trial that are not trained yet; the mean of their values."""
    import optuna

    study, trial = work.study, claimed.trial
    params = _params(study, trial)
    home = work.folder / TRIALS / study.key(params)
    values: list[float] = []
    with work.progress.task(f"folds of trial {claimed.index + 1}", study.scale.folds) as tick:
        for fold in range(study.scale.folds):
            known = trial.user_attrs.get(f"fold{fold}")
            if known is None:
                made = train_fold(
                    study, params, fold, study.seed, home / f"fold{fold}", keep_model=False,
                    resources=work.resources, progress=work.progress,
                )  # fmt: skip
                known = asdict(made)
                trial.set_user_attr(f"fold{fold}", known)
            values.append(Fold(**known).value)
            tick(1, f"MAP@R {100 * fmean(values):.1f}")
            after_fold()
            trial.report(fmean(values), fold)
            if study.scale.prune and len(values) < study.scale.folds and trial.should_prune():
                raise optuna.TrialPruned
    return fmean(values)


def _params(study: Study, trial: Trial) -> dict[str, float]:
    return {
        item.name: trial.suggest_float(item.name, item.low, item.high, log=item.log)
        for item in study.space
    }


def _searched(place: Place) -> Searched:
    trial = place.current
    assert trial is not None
    assert trial.value is not None
    folds = [trial.user_attrs[name] for name in sorted(trial.user_attrs) if name[:4] == "fold"]
    return Searched(
        index=place.index,
        params=dict(trial.params),
        value=trial.value,
        folds=tuple(fold["value"] for fold in folds[: len(trial.intermediate_values)]),
        pruned=trial.state.name == "PRUNED",
        lost=place.times_lost,
        seconds=sum(fold["seconds"] for fold in folds),
        note=next((fold["note"] for fold in folds if fold["note"]), ""),
    )


def _note(work: Work, done: list[Place], queue: Queue) -> str:
    values = [p.current.value for p in done if p.current and p.current.state.name == "COMPLETE"]
    best = f"best MAP@R {100 * max(v or 0 for v in values):.1f}" if values else ""
    left = time_left(work.study.scale, queue.places())
    return "  ".join(part for part in (best, left) if part)


def _tell(work: Work, claimed: Claimed, value: float | None, queue: Queue) -> None:
    done = [place for place in queue.places() if place.done]
    if claimed.index not in [place.index for place in done]:
        return  # it was taken away
    shown = ", ".join(f"{name}={v:.3g}" for name, v in claimed.trial.params.items())
    came = "pruned" if value is None else f"MAP@R {100 * value:.2f}"
    more = _note(work, done, queue)
    work.progress.say(f"Trial {claimed.index + 1} of {queue.count}: {came} ({shown}); {more}")
