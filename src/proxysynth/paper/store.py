"""Store: the folder that Runs are trained into, each once, however many tables need it.

    OUT/runs/IDENTITY/       the folder of a Run
    OUT/kept/NAME-HASH.json  a measurement on a trained model

A lock beside the folder marks the process that trains a Run. The operating system drops it when
that process ends, so several processes can share a store and a killed one leaves nothing to clear.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from proxysynth.errors import WrongFolder
from proxysynth.files import LOCK, locked, write_json
from proxysynth.paper.artifact import Choice
from proxysynth.training.inference import Trained, load
from proxysynth.training.run import Run
from proxysynth.training.run_folder import METRICS, Result, make_folder, read_result
from proxysynth.values import digest, encode


class Store:
    """Results, models and measurements in one folder.

    Args:
        folder: created when something is written.
        read_only: `cached` returns None for a missing measurement instead of making it.
    """

    def __init__(self, folder: str | os.PathLike[str], read_only: bool = False) -> None:
        self.folder = Path(folder).expanduser()
        self.read_only = read_only
        self._finished: dict[str, Result] = {}

    def folder_of(self, run: Run) -> Path:
        """The folder of a Run, whether it exists or not."""
        return self.folder / "runs" / _identity(run)

    def result(self, run: Run) -> Result | None:
        """The result of a finished Run, else None."""
        identity = _identity(run)
        if identity not in self._finished and (found := read_result(self.folder_of(run))):
            self._finished[identity] = found  # it never changes: read it once
        return self._finished.get(identity)

    def pick(self, choice: Choice) -> Any:
        """The value that a search chose, None while it is unfinished."""
        option = choice.best(self.result)
        return option and option.value

    def last_epoch(self, run: Run) -> dict[str, float]:
        """The metrics of a finished Run at its last epoch, whichever one it reports."""
        result = self.result(run)
        if result is not None and result.epoch == run.epochs:
            return result.metrics
        lines = (self.folder_of(run) / METRICS).read_bytes().splitlines()
        found: dict[str, float] = json.loads(lines[-1])
        return found

    def model(self, run: Run) -> Trained | None:
        """The trained model of a finished Run, else None."""
        return None if self.result(run) is None else load(self.folder_of(run))

    def cached(self, name: str, key: Any, compute: Callable[[], Any]) -> Any:
        """A measurement that is made once and kept on disk as JSON; None if it is missing and the
        store is read-only. `key` is everything that it depends on: plain values or Runs."""
        path = self.folder / "kept" / f"{name}-{digest(key)}.json"
        try:
            return json.loads(path.read_bytes())["value"]
        except (OSError, ValueError, KeyError, TypeError):
            if self.read_only:
                return None
        value = compute()
        make_folder(path.parent)
        write_json(path, {"name": name, "key": encode(key), "value": value})
        return value

    def on_models(
        self, name: str, runs: Iterable[Run], about: Any, measure: Callable[[Trained], Any]
    ) -> list[Any]:
        """A cached measurement on each Run's model; empty unless there is one of every Run.
        `about` is what it depends on besides the Run."""
        runs = list(runs)
        if any(self.result(run) is None for run in runs):
            return []

        def compute(run: Run) -> Any:
            return measure(load(self.folder_of(run)))

        found = [self.cached(name, [run, encode(about)], partial(compute, run)) for run in runs]
        return [] if None in found else found

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Lock the folder itself while tables are measured and written; waits for its turn."""
        make_folder(self.folder)
        with FileLock(self.folder / LOCK, thread_local=False):
            yield

    @contextmanager
    def claim(self, run: Run) -> Iterator[bool]:
        """Lock a Run so that no other process trains it; yields False where another one does."""
        place = self.folder / "locks" / _identity(run)
        make_folder(place)
        with ExitStack() as held:
            try:
                held.enter_context(locked(place))
            except WrongFolder:
                yield False
            else:
                yield True


@cache
def _identity(run: Run) -> str:
    """A Run's hash; cached, since tables ask for it thousands of times."""
    return run.identity
