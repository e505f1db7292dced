"""The training of one fold: some of the seen classes are trained on, the others validate."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from proxysynth.errors import NotFinite, WrongFolder
from proxysynth.training.lock import locked
from proxysynth.training.loop import train
from proxysynth.training.prepare import open_splits
from proxysynth.training.progress import Progress, Tick
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import CHECKPOINT, make_folder
from proxysynth.training.tensor_file import EMBEDDINGS, MODEL

from .study import Study

OBJECTIVE = "map@r"
AGAIN_AFTER = 1.0  # seconds until a held folder is asked for again


@dataclass(frozen=True)
class Fold:
    """What came of one fold.

    Args:
        value: MAP@R on the classes held out, 0 where the loss did not stay finite.
        epoch: the best one.
        seconds: of the training.
        note: a sentence where something went wrong.
    """

    value: float
    epoch: int
    seconds: float
    note: str = ""


def train_fold(
    study: Study,
    params: Mapping[str, float],
    fold: int,
    seed: int,
    folder: Path,
    *,
    keep_model: bool,
    resources: Resources,
    progress: Progress,
) -> Fold:
    """Train one fold into its folder. A finished one is not trained again, one that was broken off
    goes on where it was."""
    run = study.run(params, fold, seed)
    _wait_for(folder)
    try:
        result = train(run, folder, resources=resources, progress=Unspoken(progress))
    except NotFinite as error:
        if keep_model:
            raise
        slim(folder, keep_model=False)
        return Fold(0.0, 0, 0.0, str(error))
    slim(folder, keep_model)
    return Fold(result.validation[OBJECTIVE], result.epoch, result.seconds)


def slim(folder: Path, keep_model: bool) -> None:
    """Delete what a finished fold does not need: hundreds of these would fill a disk."""
    shutil.rmtree(folder / CHECKPOINT, ignore_errors=True)
    for name in (EMBEDDINGS,) if keep_model else (EMBEDDINGS, MODEL):
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def check_folds(study: Study) -> str:
    """See that the seen classes can be cross-validated; returns a hash of their pictures.

    Looks at the list of seen pictures only, not into files.
    """
    splits = open_splits(study.run({}, 0, study.seed))
    for listing in (splits.query, splits.train):
        for name, count in zip(listing.classes, listing.counts(), strict=True):
            if count < 2:
                raise ValueError(
                    f"the class {name!r} has {count} picture{'' if count == 1 else 's'}, and "
                    "validation looks for another of the same class: add one, or leave the class "
                    "out"
                )
    return f"{splits.query.fingerprint()}-{splits.train.fingerprint()}"


def _wait_for(folder: Path) -> None:
    """Wait until nobody trains into the folder: a worker may be taken for dead and yet live."""
    make_folder(folder)
    while True:
        try:
            with locked(folder):
                return
        except WrongFolder:
            time.sleep(AGAIN_AFTER)


@dataclass(frozen=True)
class Unspoken:
    """Progress with the bars of a training but without its sentences, which are many."""

    progress: Progress

    def say(self, sentence: str) -> None:
        pass

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]:
        return self.progress.task(name, total, done)
