"""Training what is missing, each Run once, beside other processes that do the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from proxysynth.errors import NotFinite
from proxysynth.paper.artifact import Artifact
from proxysynth.paper.choice import Choice, pick
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.report.settings import changed, method, rows
from proxysynth.training.loop import train
from proxysynth.training.progress import Progress, Tick
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.values import encode

WAIT = 1.0  # seconds between looks at Runs that other processes train


class Quiet:
    """A progress that shows the bars of a Run and keeps its sentences to itself."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def say(self, sentence: str) -> None:
        pass

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]:
        return self._progress.task(name, total, done)


def missing(runs: Sequence[Run], store: Store) -> list[Run]:
    """The Runs that are not finished, each once, in order."""
    return [run for run in dict.fromkeys(runs) if store.result(run) is None]


def train_missing(
    runs: Sequence[Run],
    store: Store,
    resources: Resources,
    progress: Progress,
    estimate: Callable[[Run], float],
) -> dict[Run, str]:
    """Train the Runs that are not finished; returns those that cannot be, with the reason.

    A Run that another process trains is passed over and looked at again later. A loss that does not
    stay finite ends its own Run only: its cell stays a dash.
    """
    waiting = missing(runs, store)
    broken: dict[Run, str] = {}
    left, number, many = sum(map(estimate, waiting)), 0, len(waiting)
    while waiting:
        passed = []
        for run in waiting:
            with store.claimed(run) as mine:
                if not mine:
                    passed.append(run)
                    continue
                number += 1
                if store.result(run) is None:
                    about = f"Run {number} of {many}, about {spoken(left)} left"
                    progress.say(f"{about}: {label(run)}")
                    try:
                        train(
                            run, store.folder_of(run), resources=resources, progress=Quiet(progress)
                        )
                    except NotFinite as error:
                        broken[run] = str(error)
                        progress.say(f"It failed and is left out: {error}")
                left -= estimate(run)
        waiting = [run for run in passed if store.result(run) is None]
        if waiting:
            time.sleep(WAIT)
    return broken


def do(
    artifacts: Mapping[str, Artifact],
    scale: Scale,
    store: Store,
    resources: Resources,
    progress: Progress,
    estimate: Callable[[Run], float],
) -> dict[Run, str]:
    """Everything that these artifacts need: first what is known, then what searches decide."""
    known = [run for artifact in artifacts.values() for run in artifact.runs(scale)]
    broken = train_missing(known, store, resources, progress, estimate)
    found = chooser(store)
    later = [run for artifact in artifacts.values() for run in artifact.later(scale, found)]
    return broken | train_missing(later, store, resources, progress, estimate)


def chooser(store: Store, guess: bool = False) -> Callable[[Choice], Any]:
    """What a search found; None, or with `guess` its first option, while it is not done."""

    def found(choice: Choice) -> Any:
        option = pick(choice, store.result)
        if option is None and guess and choice.options:
            option = choice.options[0]
        return None if option is None else option.value

    return found


def label(run: Run) -> str:
    """A Run in a line: what is trained on what, and what is unusual in the loss."""
    told = encode(run)
    flat = rows(told)
    unusual = [
        f"{path.split('.')[-1]} {flat[path]}"
        for path in changed(told, encode(Run()))
        if path.startswith(("loss.", "regularizer."))
    ]
    where = _where(run)
    held = ", a part held out" if run.report_epoch == "best" else ""
    extra = f" ({', '.join(unusual)})" if unusual else ""
    epochs = f"{run.epochs} epoch{'s' * (run.epochs != 1)}"
    return f"{method(told)}{extra} on {where}{held}, {epochs}, seed {run.seed}"


def _where(run: Run) -> str:
    if run.data != "glyphs":
        return run.data.partition(":")[0]
    split = run.split
    return f"glyphs {(split.seed or 0) + 1}" if not split.test_faces else "glyph faces"


def spoken(seconds: float) -> str:
    """A time for people: "40 s", "12 min", "3.5 h", "6 days"."""
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (2 * 86400, 3600, "h")):
        if seconds < limit:
            amount = seconds / unit
            return f"{amount:.1f} {name}" if name == "h" else f"{amount:.0f} {name}"
    return f"{seconds / 86400:.0f} days"
