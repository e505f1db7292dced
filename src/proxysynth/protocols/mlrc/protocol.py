"""The protocol from end to end: search, repetitions, and what came of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxysynth.errors import WrongFolder
from proxysynth.training.lock import locked
from proxysynth.training.progress import Progress, Silent
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import make_folder

from .cross_validation import AGAIN_AFTER, check_folds
from .ensemble import Measured
from .lease import Watch
from .places import Queue
from .repetitions import repeat
from .sampler import make_sampler
from .search import Searched, Work, best_of, search
from .spaces import starts
from .storage import import_optuna, open_storage, reaching, storage_in
from .study import Study
from .study_folder import claim_folder, same_study

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study as OptunaStudy


@dataclass(frozen=True)
class Outcome:
    """What a study gave.

    Args:
        study: which.
        trials: of the search, in the order in which they began.
        best: the one whose parameters were repeated.
        repetitions: the unseen classes, once for each repetition.
    """

    study: Study
    trials: tuple[Searched, ...]
    best: Searched
    repetitions: tuple[Measured, ...]


def run_study(
    study: Study,
    folder: Path,
    *,
    storage: str | None = None,
    resources: Resources | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a study, or take part in one that others run, or go on with one that was broken off.

    Any number of processes may call this with the same study at once, on one machine or on several
    that reach the storage. All return the same outcome when everything is done.

    Args:
        folder: of the study; its trainings lie there.
        storage: a database's URL or a journal file, see `open_storage`; None for an SQLite file
            in the folder.
    """
    folder = folder.expanduser().absolute()
    optuna = import_optuna()
    fingerprint = check_folds(study)
    facts = {**study.facts(), "pictures": fingerprint}
    where = storage_in(folder, storage)
    make_folder(folder)
    with alone(folder):
        claim_folder(folder, study, facts)
    work = Work(study, folder, resources or Resources(), progress or Silent())
    with reaching(where):
        with alone(folder):  # the first one makes the tables
            opened = open_storage(where)
            made = _optuna_study(opened, study.name, study, optuna)
            same_study(made, facts, where)
        searching = Queue(made, study.scale.trials, Watch())
        trials = search(work, searching)
        best = best_of(trials)
        again = _optuna_study(opened, f"{study.name} {study.key(best.params)}", None, optuna)
        repeating = Queue(again, study.scale.repetitions, Watch())
        measured = repeat(work, repeating, searching, best.params)
    return Outcome(study, tuple(trials), best, tuple(measured))


def _optuna_study(
    storage: BaseStorage, name: str, searched: Study | None, optuna: Any
) -> OptunaStudy:
    """The Optuna study of this name, made if there is none.

    Args:
        searched: whose space is sampled; None where there is nothing to sample.
    """
    sampler, pruner = optuna.samplers.RandomSampler(0), optuna.pruners.NopPruner()
    if searched is not None:
        scale = searched.scale
        first = starts(searched.space) if scale.near else None
        sampler = make_sampler(searched.seed, scale.random_trials, first)
        if scale.prune:
            pruner = optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0)
    return optuna.create_study(
        storage=storage,
        study_name=name,
        direction="maximize",
        sampler=sampler,
        pruner=pruner,
        load_if_exists=True,
    )


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """One worker at a time writes the study's own files."""
    while True:
        with _try(folder) as held:
            if held:
                yield
                return
        time.sleep(AGAIN_AFTER / 10)


@contextmanager
def _try(folder: Path) -> Iterator[bool]:
    lock = locked(folder)
    try:
        lock.__enter__()
    except WrongFolder:
        yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)
