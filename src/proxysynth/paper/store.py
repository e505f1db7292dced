"""Store: the folder that Runs are trained into, each once, however many tables need it; what
artifacts still need, how long it may take, and training it.

    OUT/runs/IDENTITY/       the folder of a Run
    OUT/kept/NAME-HASH.json  a measurement on a trained model
    OUT/mlrc/NAME/           an MLRC study

A lock beside the folder marks the process that trains a Run. The operating system drops it when
that process ends, so several processes can share a store and a killed one leaves nothing to clear.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from proxysynth.errors import NotFinite, WrongFolder
from proxysynth.files import locked, write_json
from proxysynth.formatting import and_join, count, duration
from proxysynth.paper.artifact import Artifact, Choice
from proxysynth.paper.scale import NAMES, Scale
from proxysynth.protocols.estimates import Estimate, kind_of
from proxysynth.protocols.mlrc import Study, run_study
from proxysynth.protocols.mlrc.search import BarsOnly
from proxysynth.report.settings import changed, method
from proxysynth.report.study import write_study
from proxysynth.training.callbacks import Progress
from proxysynth.training.inference import Trained, load
from proxysynth.training.loop import train
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import METRICS, Result, make_folder, read_result
from proxysynth.values import digest, encode

STUDIES = "mlrc"
POLL = 1.0  # seconds between checks of Runs that other processes train


class Store:
    """Results, models and measurements in one folder, which is created when something is written;
    a read-only store makes no measurement."""

    def __init__(self, folder: str | os.PathLike[str], read_only: bool = False) -> None:
        self.folder = Path(folder).expanduser()
        self.read_only = read_only
        self._finished: dict[Run, Result] = {}

    def folder_of(self, run: Run) -> Path:
        """The folder of a Run, whether it exists or not."""
        return self.folder / "runs" / run.identity

    def result(self, run: Run) -> Result | None:
        """The result of a finished Run, else None."""
        if run not in self._finished and (found := read_result(self.folder_of(run))):
            self._finished[run] = found  # it never changes: read it once
        return self._finished.get(run)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """The unfinished Runs, each once, in order."""
        return [run for run in dict.fromkeys(runs) if self.result(run) is None]

    def study(self, name: str, study: Study | None) -> dict[str, Any]:
        """The result of the MLRC study in the folder of this name; empty while it is unfinished.
        `study` is what can be run for it, None without its data."""
        try:
            return dict(json.loads((self.folder / STUDIES / name / "result.json").read_bytes()))
        except (OSError, ValueError, TypeError):
            return {}

    def pick(self, choice: Choice) -> Any:
        """The loss that a search chose, the first of equals; None while it is unfinished."""
        scores = []
        for run in choice.runs:
            if (found := self.result(run)) is None:  # stop early: tables ask thousands of times
                return None
            scores.append(found.validation[choice.by])
        return choice.runs[scores.index(max(scores))].loss if scores else None

    def last_epoch(self, run: Run) -> dict[str, float]:
        """The metrics of a finished Run at its last epoch, whichever one it reports."""
        result = self.result(run)
        if result is not None and result.epoch == run.epochs:
            return result.metrics
        return dict(json.loads((self.folder_of(run) / METRICS).read_bytes().splitlines()[-1]))

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
        if self.missing(runs):
            return []

        def compute(run: Run) -> Any:
            return measure(load(self.folder_of(run)))

        found = [self.cached(name, [run, encode(about)], partial(compute, run)) for run in runs]
        return [] if None in found else found

    def exclusive(self) -> AbstractContextManager[None]:
        """Lock the folder while tables are measured and written; waits for its turn."""
        make_folder(self.folder)
        return locked(self.folder, wait=True)

    @contextmanager
    def claim(self, run: Run) -> Iterator[bool]:
        """Lock a Run so that no other process trains it; yields False where another one does."""
        place = self.folder / "locks" / run.identity
        make_folder(place)
        with ExitStack() as held:
            try:
                held.enter_context(locked(place))
                ours = True
            except WrongFolder:
                ours = False
            yield ours


# Planning and training


class Requests(Store):
    """A store without results that notes what artifacts ask it for: Runs, those of searches too,
    and MLRC studies. `choose` is asked what a search found."""

    def __init__(self, choose: Callable[[Choice], Any]) -> None:
        super().__init__("", read_only=True)
        self.choose = choose
        self.runs: dict[Run, None] = {}
        self.studies: dict[str, Study] = {}

    def result(self, run: Run) -> None:
        self.runs[run] = None

    def pick(self, choice: Choice) -> Any:
        self.runs |= dict.fromkeys(choice.runs)
        return self.choose(choice)

    def study(self, name: str, study: Study | None) -> dict[str, Any]:
        if study is not None:
            self.studies[name] = study
        return {}

    def cached(self, name: str, key: Any, compute: Callable[[], Any]) -> None:
        """Nothing is measured."""


def requests(
    artifacts: Iterable[Artifact], scale: Scale, choose: Callable[[Choice], Any] = lambda _: None
) -> Requests:
    """What these artifacts need; by default without the Runs that wait for what a search finds."""
    asked = Requests(choose)
    for artifact in artifacts:
        artifact(scale, asked)
    return asked


def not_given(artifacts: Iterable[Artifact], scale: Scale) -> tuple[str, ...]:
    """The benchmarks that these artifacts need at the scale paper, and whose folder is missing."""
    if scale.name != "paper":  # the others have stand-ins
        return ()
    roots = dict(scale.roots)
    asked = requests(artifacts, scale.with_roots({name: name for name in NAMES} | roots))
    used = [*asked.runs, *(study.base for study in asked.studies.values())]
    names = {run.data.partition(":")[0] for run in used}
    return tuple(name for name in NAMES if name in names and name not in roots)


@dataclass(frozen=True)
class Plan:
    """What artifacts need, and what of it is missing."""

    known: tuple[Run, ...]  # missing Runs that are needed for certain
    later: tuple[Run, ...]  # those whose settings a search will decide; placeholders
    studies: dict[str, Study]  # missing MLRC studies by the name of their folder
    done: int  # finished Runs and studies
    times: dict[Run | str, float]  # estimated seconds in one process of each missing one
    finished: bool  # whether estimates rest on finished Runs, not on a few timed steps
    not_given: tuple[str, ...]  # benchmarks whose folder is needed too

    @property
    def missing(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        return sum(self.times.values())

    @property
    def summary(self) -> str:
        """What is left, in a sentence or two."""
        text = "nothing to train."
        if self.missing:
            runs = len(self.known) + len(self.later)
            needed = [count(runs, "run")] if runs else []
            if self.studies:
                needed.append(count(len(self.studies), "study", "studies"))
            basis = "finished runs" if self.finished else "a few timed steps"
            text = (
                f"{' and '.join(needed)} missing, {self.done} finished; about "
                f"{duration(self.seconds, rough=True)} in one process, estimated from {basis}. "
                "Shared runs are counted once."
            )
        elif self.done:
            text = "everything needed is finished."
        if self.later:
            text += " Runs marked (searched) will get the alpha and mu that a search finds."
        if self.not_given:
            names = and_join(self.not_given)
            text += f" No data for {names}: give --data NAME:ROOT, or their columns stay empty."
        return text


def make_plans(
    artifacts: Mapping[str, Artifact], scale: Scale, store: Store, estimate: Estimate | None = None
) -> tuple[Plan, dict[str, Plan]]:
    """What these artifacts need that the store lacks: all together, and each by its name."""
    estimate = estimate or Estimate(store.folder)

    def guess(choice: Choice) -> Any:
        """What a search chose, or its first loss while it is unfinished."""
        return store.pick(choice) or next((run.loss for run in choice.runs), None)

    def plan(*some: Artifact) -> Plan:
        asked, every = requests(some, scale), requests(some, scale, guess)
        known = store.missing(asked.runs)
        later = store.missing(run for run in every.runs if run not in asked.runs)
        studies = {k: study for k, study in asked.studies.items() if not store.study(k, study)}
        times: dict[Run | str, float] = {run: estimate(run) for run in (*known, *later)}
        times |= {name: estimate.study(study) for name, study in studies.items()}
        done = len(every.runs) + len(every.studies) - len(times)
        runs = [*known, *later, *(study.base for study in studies.values())]
        measured = all(kind_of(run) in estimate.finished for run in runs)
        missing_data = not_given(some, scale)
        return Plan(tuple(known), tuple(later), studies, done, times, measured, missing_data)

    return plan(*artifacts.values()), {name: plan(one) for name, one in artifacts.items()}


def train_all(
    artifacts: Mapping[str, Artifact],
    scale: Scale,
    store: Store,
    resources: Resources,
    progress: Progress,
) -> dict[Run, str]:
    """Train what these artifacts need; returns the Runs that failed, with the reason."""
    estimate = Estimate(store.folder, resources.device)
    known = requests(artifacts.values(), scale)
    failed = train_missing(known.runs, store, resources, progress, estimate)
    chosen = requests(artifacts.values(), scale, store.pick).runs
    later = [run for run in chosen if run not in known.runs]
    failed |= train_missing(later, store, resources, progress, estimate)
    studies = {name: each for name, each in known.studies.items() if not store.study(name, each)}
    left = sum(map(estimate.study, studies.values()))
    for number, (name, study) in enumerate(studies.items(), 1):
        about = f"Study {number} of {len(studies)}, about {duration(left, rough=True)} left"
        progress.say(f"{about}: {label(study.base)}")
        folder = store.folder / STUDIES / name
        write_study(run_study(study, folder, resources=resources, progress=progress), folder)
        left -= estimate.study(study)
    return failed


def train_missing(
    runs: Iterable[Run],
    store: Store,
    resources: Resources,
    progress: Progress,
    estimate: Callable[[Run], float],
) -> dict[Run, str]:
    """Train the unfinished Runs; returns those that failed, with the reason: a loss that becomes
    non-finite ends its own Run only. A Run that another process trains is checked again later."""
    waiting = store.missing(runs)
    failed: dict[Run, str] = {}
    left, number, total = sum(map(estimate, waiting)), 0, len(waiting)
    while waiting:
        skipped = []
        for run in waiting:
            with store.claim(run) as ours:
                if not ours:
                    skipped.append(run)
                    continue
                number += 1
                if store.result(run) is None:
                    about = f"Run {number} of {total}, about {duration(left, rough=True)} left"
                    progress.say(f"{about}: {label(run)}")
                    folder, bars = store.folder_of(run), BarsOnly(progress)
                    try:
                        train(run, folder, resources=resources, progress=bars)
                    except NotFinite as error:
                        failed[run] = str(error)
                        progress.say(f"Failed, skipped: {error}")
                left -= estimate(run)
        waiting = store.missing(skipped)
        if waiting:
            time.sleep(POLL)
    return failed


def label(run: Run) -> str:
    """A Run in one line: method, unusual settings of the loss, data, epochs, seed."""
    of_loss = [
        f"{path.split('.')[-1]} {value}"
        for path, value in unusual(run).items()
        if path.startswith(("loss.", "regularizer."))
    ]
    extra = f" ({', '.join(of_loss)})" if of_loss else ""
    data = run.data.partition(":")[0]
    if data == "glyphs":
        data = f"glyphs {(run.split.seed or 0) + 1}"
        if run.split.test_faces:
            data = f"faces of {run.split.train_classes} glyphs"
        if run.split.distortion:
            data = f"distorted {data}"
    held_out = ", validation held out" if run.report_epoch == "best" else ""
    few = f"{run.split.train_pictures} images, " if run.split.train_pictures else ""
    epochs = f"{few}{count(run.epochs, 'epoch')}"
    return f"{method(encode(run))}{extra} on {data}{held_out}, {epochs}, seed {run.seed}"


def unusual(run: Run) -> dict[str, str]:
    """The settings that are not at their defaults, by their paths."""
    return changed(encode(run), encode(Run()))
