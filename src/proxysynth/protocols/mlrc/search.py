"""The search: trials of hyper-parameters, each the mean validation MAP@R of its folds."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np

from proxysynth.data.listing import require_usable
from proxysynth.errors import NotFinite, TrainingFailed
from proxysynth.files import locked
from proxysynth.formatting import count, duration
from proxysynth.protocols.mlrc.settings import Scale, Study
from proxysynth.protocols.mlrc.workers import Claimed, Queue, Slot, import_optuna, slot_index
from proxysynth.training.callbacks import Progress, Tick
from proxysynth.training.loop import train
from proxysynth.training.prepare import open_splits
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, EMBEDDINGS, MODEL, make_folder

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study as OptunaStudy
    from optuna.trial import Trial

OBJECTIVE = "map@r"
ENOUGH_TRIALS = 4  # for the importance of parameters


@dataclass(frozen=True)
class Searched:
    """One trial of a finished search."""

    index: int  # its place in the order in which trials began
    params: dict[str, float]  # the hyper-parameters
    value: float  # the mean over its folds; for a pruned trial, over those that were trained
    folds: tuple[float, ...]  # MAP@R of each fold that was trained
    pruned: bool = False  # stopped before the last fold
    lost: int = 0  # how often its worker died or was stopped, and it was run again
    seconds: float = 0.0  # of its trainings
    note: str = ""  # why a fold counts as 0, if one does


@dataclass(frozen=True)
class Work:
    """What every part of a worker's task needs."""

    study: Study
    folder: Path
    resources: Resources
    progress: Progress


def take_part(
    work: Work,
    queue: Queue,
    name: str,
    do: Callable[[Claimed, Callable[[], None]], float],
    note: Callable[[], str],
) -> list[Slot]:
    """Work on the slots of a queue until all are done, here or elsewhere; returns them.

    Args:
        name: "trial" or "repetition".
        do: called with a slot and a function that refreshes the note; returns the slot's value,
            or raises Optuna's TrialPruned.
        note: the text at the end of messages and next to the bar.
    """
    done = [slot for slot in queue.slots() if slot.done]
    with work.progress.task(f"{name}s", queue.count, len(done)) as tick:
        while len(done) < queue.count:
            claimed = queue.claim()
            if claimed is None:
                time.sleep(1.0)  # between looks at the work of others
            elif trial := queue.work_on(claimed, partial(do, claimed, lambda: tick(0, note()))):
                which = f"{name.capitalize()} {claimed.index + 1} of {queue.count}"
                pruned = trial.state.name == "PRUNED"
                value = "pruned" if pruned else f"MAP@R {100 * (trial.value or 0):.2f}"
                params = ", ".join(f"{key}={number:.3g}" for key, number in trial.params.items())
                about = f"({params})" if params else "on the unseen classes, concatenated"
                work.progress.say(f"{which}: {value} {about}; {note()}")
            before, done = len(done), [slot for slot in queue.slots() if slot.done]
            tick(len(done) - before, note())
    return done


def search(work: Work, queue: Queue) -> list[Searched]:
    """Take part in the search until all its trials are done; returns them in order."""
    import optuna

    study = work.study

    def trial(claimed: Claimed, update: Callable[[], None]) -> float:
        """Train the missing folds of a trial; returns the mean of all their values."""
        params = {
            item.name: claimed.trial.suggest_float(item.name, item.low, item.high, log=item.log)
            for item in study.space
        }

        def after_fold(fold: int, mean: float) -> None:
            update()
            claimed.trial.report(mean, fold)
            last = fold + 1 == study.scale.folds
            if study.scale.prune and not last and claimed.trial.should_prune():
                raise optuna.TrialPruned

        home, name = work.folder / "trials" / study.key(params), f"trial {claimed.index + 1}"
        return train_folds(work, name, claimed.trial, params, study.seed, home, after_fold)

    def note() -> str:
        slots = queue.slots()
        values = [s.current.value or 0 for s in slots if s.current.state.name == "COMPLETE"]
        best = f"best MAP@R {100 * max(values):.1f}" if values else ""
        return ", ".join(filter(None, (best, time_left(study.scale, slots))))

    return [
        Searched(
            index=slot.index,
            params=dict(slot.current.params),
            value=slot.current.value or 0.0,
            folds=tuple(fold["value"] for fold in slot.folds)[
                : len(slot.current.intermediate_values)
            ],
            pruned=slot.current.state.name == "PRUNED",
            lost=slot.times_lost,
            seconds=sum(fold["seconds"] for fold in slot.folds),
            note=next((fold["note"] for fold in slot.folds if fold["note"]), ""),
        )
        for slot in take_part(work, queue, "trial", trial, note)
    ]


def best_of(trials: Sequence[Searched]) -> Searched:
    """The complete trial with the highest value, the first of equals."""
    complete = [trial for trial in trials if not trial.pruned]
    best = max(complete, key=lambda trial: trial.value)
    if best.value <= 0:
        advice = "lower the learning rate with --set lr=..., in another folder"
        raise TrainingFailed(f"the loss became non-finite in all {len(complete)} trials: {advice}")
    return best


def importance(study: OptunaStudy) -> dict[str, float]:
    """How much each hyper-parameter mattered: shares that sum to 1, largest first.

    By PED-ANOVA (Watanabe et al., 2023). Empty if there are too few trials, or all are alike.
    """
    optuna = import_optuna()
    values = [trial.value for trial in study.trials if trial.state.name == "COMPLETE"]
    if len(values) < ENOUGH_TRIALS or len(set(values)) < 2:
        return {}
    # The better half against all: the best tenth of a short search would be one trial.
    share = 0.5 if len(values) < 20 else 0.25
    kind = optuna.importance.PedAnovaImportanceEvaluator
    try:
        evaluator = kind(target_quantile=share)
    except TypeError:  # its name before Optuna 5
        evaluator = kind(baseline_quantile=share)
    found = optuna.importance.get_param_importances(study, evaluator=evaluator, normalize=False)
    total = sum(found.values())
    return {name: float(part / total) for name, part in found.items() if total > 0}


def make_sampler(seed: int, random_trials: int, first: Mapping[str, float] | None) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator, seeded by study and slot, not by worker.

    So an interrupted search resumes with the numbers it would have drawn, and two workers never
    draw the same. Before the model chooses, `random_trials` are drawn at random; `first` are the
    parameters of the first trial, unless these are drawn as well.
    """
    samplers = import_optuna().samplers

    # Like a random sampler, it draws each parameter on its own.
    class Seeded(samplers.RandomSampler):  # type: ignore[name-defined]
        def sample_independent(self, study: Any, trial: Any, name: str, distribution: Any) -> Any:
            index = slot_index(trial, study.get_trials(deepcopy=False))
            if first is not None and index == 0:
                return first[name]
            word = int.from_bytes(name.encode(), "big")  # each parameter has its own stream
            drawn = int(np.random.SeedSequence([seed, index, word]).generate_state(1)[0])
            # constant_liar: avoid what other workers are trying now.
            tpe = samplers.TPESampler(
                n_startup_trials=random_trials, seed=drawn, constant_liar=True
            )
            return tpe.sample_independent(study, trial, name, distribution)

    made: BaseSampler = Seeded()
    return made


def train_folds(
    work: Work,
    name: str,
    trial: Trial,
    params: Mapping[str, float],
    seed: int,
    folder: Path,
    after_fold: Callable[[int, float], None],
    keep_models: bool = False,
) -> float:
    """Train the folds of a trial or repetition; returns the mean of their values.

    Folds that another machine has trained are not trained again, unless the models are needed.
    `after_fold` gets the number of each fold, and the mean so far.
    """
    values: list[float] = []
    with work.progress.task(f"folds of {name}", work.study.scale.folds) as tick:
        for fold in range(work.study.scale.folds):
            key = f"fold{fold}"
            if keep_models or key not in trial.user_attrs:
                run = work.study.run(params, fold, seed)
                trial.set_user_attr(key, train_fold(work, run, folder / key, keep_models))
            values.append(trial.user_attrs[key]["value"])
            tick(1, f"validation MAP@R {100 * fmean(values):.1f}")
            after_fold(fold, fmean(values))
    return fmean(values)


def train_fold(work: Work, run: Run, folder: Path, keep_model: bool) -> dict[str, Any]:
    """Train one fold into its folder: resumes if interrupted, returns the result if finished.

    Returns:
        value: MAP@R on the held-out classes, 0 if the loss became non-finite; epoch: the best one;
        seconds: of the training; note: what went wrong, if something did.
    """
    make_folder(folder)
    with locked(folder, wait=True):  # a worker that was considered dead may still train here
        pass
    made = {"value": 0.0, "epoch": 0, "seconds": 0.0, "note": ""}
    try:
        result = train(run, folder, resources=work.resources, progress=BarsOnly(work.progress))
        made |= {"value": result.validation[OBJECTIVE], "epoch": result.epoch}
        made["seconds"] = result.seconds
    except NotFinite as error:
        if keep_model:
            raise
        made["note"] = str(error)
    # Hundreds of folds would fill a disk: keep only what is needed.
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    for name in (EMBEDDINGS,) if keep_model else (EMBEDDINGS, MODEL):
        (folder / name).unlink(missing_ok=True)
    return made


@dataclass(frozen=True)
class BarsOnly:
    """Progress that shows the bars of a training but not its many messages."""

    progress: Progress

    def say(self, sentence: str) -> None:
        pass

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]:
        return self.progress.task(name, total, done)


def check_folds(study: Study) -> str:
    """Check that the seen classes can be cross-validated; returns a hash of their images.

    Reads the list of seen images only, not the files.
    """
    splits = require_usable(open_splits(study.run({}, 0, study.seed)), tested=True)
    for listing in (splits.query, splits.train):
        for name, images in zip(listing.classes, listing.counts(), strict=True):
            if images < 2:
                has = count(int(images), "image")
                raise ValueError(f"class {name!r} has {has}, but validation needs at least 2")
    return f"{splits.query.fingerprint()}-{splits.train.fingerprint()}"


def time_left(scale: Scale, searching: Sequence[Slot], repeating: Sequence[Slot] = ()) -> str:
    """An estimate such as "1 h 20 min left", from the slots of the search and, once they have
    begun, of the repetitions; "" before the first training is over."""
    slots = (*searching, *repeating)
    folds = [fold for slot in slots for fold in slot.folds]
    if not folds:
        return ""
    workers = max(1, sum(slot.current.state.name == "RUNNING" for slot in slots))
    done = [slot.current for slot in searching if slot.done]
    saved = sum(scale.folds - len(trial.intermediate_values) for trial in done)  # by pruning
    left = (scale.trials + scale.repetitions) * scale.folds - len(folds) - saved
    seconds = fmean(fold["seconds"] for fold in folds) * max(0, left) / workers
    return f"{duration(seconds, rough=True)} left"
