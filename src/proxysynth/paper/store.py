"""Store: the folder that Runs are trained into, each once, however many tables need it.

    OUT/runs/IDENTITY/       a Run's own folder
    OUT/kept/NAME-HASH.json  what was measured on a trained model

A lock beside the folder says who trains a Run; the system drops it when that process ends, so that
several processes may work on one store and an interrupted one leaves nothing to clear.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from proxysynth.errors import WrongFolder
from proxysynth.files import write_json
from proxysynth.training.load import Trained, load
from proxysynth.training.lock import locked
from proxysynth.training.record import Result, read_result
from proxysynth.training.run import Run
from proxysynth.training.run_folder import make_folder
from proxysynth.values import digest, encode

WAIT = 0.2  # seconds between looks at a folder that another process writes to


class Store:
    """Results, models and measurements in one folder.

    Args:
        folder: where they are.
        measures: whether `kept` may measure what is missing; if not, it is left missing.
    """

    def __init__(self, folder: str | os.PathLike[str], measures: bool = True) -> None:
        self.folder = Path(folder).expanduser()
        self.measures = measures
        self._finished: dict[str, Result] = {}

    def folder_of(self, run: Run) -> Path:
        """Where a Run is trained, or would be."""
        return self.folder / "runs" / _identity(run)

    def result(self, run: Run | None) -> Result | None:
        """What came of a Run; None where it is not finished (or there is no such Run)."""
        if run is None:
            return None
        identity = _identity(run)
        if identity not in self._finished:  # a finished Run never changes: it is read once
            found = read_result(self.folder_of(run))
            if found is None:
                return None
            self._finished[identity] = found
        return self._finished[identity]

    def model(self, run: Run | None, device: str | None = None) -> Trained | None:
        """The trained model of a finished Run."""
        if run is None or self.result(run) is None:
            return None
        return load(self.folder_of(run), device)

    def kept(self, name: str, key: Any, compute: Callable[[], Any]) -> Any:
        """A measurement that is made once: `compute()`, or what it gave the last time. None where
        it was not made yet and this store measures nothing.

        Args:
            name: of the measurement, fit for a file's name.
            key: everything that it depends on: plain values, or a Run.
            compute: gives something that JSON can hold.
        """
        path = self.folder / "kept" / f"{name}-{digest(key)}.json"
        try:
            return json.loads(path.read_bytes())["value"]
        except (OSError, ValueError, KeyError, TypeError):
            if not self.measures:
                return None
            value = compute()
        make_folder(path.parent)
        write_json(path, {"name": name, "key": encode(key), "value": value})
        return value

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder itself, for what is measured and written once the Runs are done; waits
        where another process does so."""
        make_folder(self.folder)
        with ExitStack() as held:
            while True:
                try:
                    held.enter_context(locked(self.folder))
                    break
                except WrongFolder:
                    time.sleep(WAIT)
            yield

    @contextmanager
    def claimed(self, run: Run) -> Iterator[bool]:
        """Hold a Run so that no other process trains it; False where another one does."""
        place = self.folder / "locks" / run.identity
        make_folder(place)
        with ExitStack() as held:
            try:
                held.enter_context(locked(place))
            except WrongFolder:
                mine = False
            else:
                mine = True
            yield mine


@cache
def _identity(run: Run) -> str:
    """A Run's hash, computed once: tables ask for it thousands of times."""
    return run.identity
