"""What artifacts still need, how long it may take, and training it.

Several processes may work on the same store: each Run is trained by one of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from proxysynth.errors import NotFinite
from proxysynth.formatting import count, duration
from proxysynth.paper.artifact import Artifact, Choice
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.protocols.estimates import Estimate, kind_of
from proxysynth.protocols.mlrc import Study, run_study
from proxysynth.protocols.mlrc.search import BarsOnly
from proxysynth.report.settings import changed, method, rows
from proxysynth.report.study import write_study
from proxysynth.training.callbacks import Bars, Progress
from proxysynth.training.loop import train
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.values import encode

POLL = 1.0  # seconds between checks of Runs that other processes train


@dataclass(frozen=True)
class Plan:
    """What artifacts need, and what of it is missing."""

    known: tuple[Run, ...]  # missing Runs that are needed for certain
    later: tuple[Run, ...]  # those whose settings a search will decide; placeholders
    studies: dict[str, Study]  # missing MLRC studies by the name of their folder
    done: int  # finished Runs and studies
    times: dict[Run | str, float]  # estimated seconds in one process of each missing one
    finished: bool  # whether estimates rest on finished Runs, not on a few timed steps

    @property
    def missing(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        return sum(self.times.values())

    @property
    def summary(self) -> str:
        """What is left, in a sentence or two."""
        if not self.missing:
            return f"all {count(self.done, 'Run')} finished." if self.done else "nothing to train."
        runs = len(self.known) + len(self.later)
        needed = [count(runs, "Run")] * bool(runs)
        needed += [count(len(self.studies), "study", "studies")] * bool(self.studies)
        basis = "finished Runs" if self.finished else "a few timed steps"
        later = " Runs marked (searched) will get the alpha and mu that a search finds."
        return (
            f"{' and '.join(needed)} missing, {self.done} finished; about "
            f"{duration(self.seconds, rough=True)} in one process, estimated from {basis}. Shared "
            f"Runs are counted once.{later * bool(self.later)}"
        )


def make_plan(
    artifacts: Mapping[str, Artifact],
    scale: Scale,
    store: Store,
    estimate: Estimate | None = None,
) -> Plan:
    """What these artifacts need that the store lacks."""
    estimate = estimate or Estimate(store.folder)

    def guess(choice: Choice) -> object:
        """What a search chose, or its first option while it is unfinished."""
        found = store.pick(choice)
        return choice.options[0].value if found is None and choice.options else found

    made = artifacts.values()
    known = dict.fromkeys(run for one in made for run in one.runs(scale))
    later = dict.fromkeys(run for one in made for run in one.later(scale, guess))
    later = {run: None for run in later if run not in known}
    studies = {name: study for one in made for name, study in one.studies(scale).items()}
    left, left_later = missing(known, store), missing(later, store)
    left_studies = {n: s for n, s in studies.items() if not finished_study(store, n)}
    times: dict[Run | str, float] = {run: estimate(run) for run in (*left, *left_later)}
    times |= {name: estimate.study(study) for name, study in left_studies.items()}
    runs = [*left, *left_later, *(study.base for study in left_studies.values())]
    return Plan(
        tuple(left),
        tuple(left_later),
        left_studies,
        len(known) + len(later) + len(studies) - len(times),
        times,
        all(kind_of(run) in estimate.finished for run in runs),
    )


def finished_study(store: Store, name: str) -> bool:
    return (store.folder / "mlrc" / name / "result.json").exists()


def missing(runs: Iterable[Run], store: Store) -> list[Run]:
    """The unfinished Runs, each once, in order."""
    return [run for run in dict.fromkeys(runs) if store.result(run) is None]


# Training


def train_all(
    artifacts: Mapping[str, Artifact],
    scale: Scale,
    store: Store,
    resources: Resources,
    progress: Progress,
) -> dict[Run, str]:
    """Train everything that these artifacts need: known Runs, what searches decide, studies.

    Returns:
        The Runs that failed, with the reason.
    """
    estimate = Estimate(store.folder, resources.device)
    known = [run for artifact in artifacts.values() for run in artifact.runs(scale)]
    failed = train_missing(known, store, resources, progress, estimate)
    later = [run for artifact in artifacts.values() for run in artifact.later(scale, store.pick)]
    failed |= train_missing(later, store, resources, progress, estimate)
    for artifact in artifacts.values():
        for name, study in artifact.studies(scale).items():
            if not finished_study(store, name):
                folder = store.folder / "mlrc" / name
                progress.say(f"Study {name}, about {duration(estimate.study(study), rough=True)}")
                outcome = run_study(study, folder, resources=resources, progress=Bars())
                write_study(outcome, folder)
    return failed


def train_missing(
    runs: Sequence[Run],
    store: Store,
    resources: Resources,
    progress: Progress,
    estimate: Callable[[Run], float],
) -> dict[Run, str]:
    """Train the unfinished Runs; returns those that failed, with the reason.

    A Run that another process trains is skipped and checked again later. A loss that becomes
    non-finite ends its own Run only: its cell stays a dash.
    """
    waiting = missing(runs, store)
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
        waiting = missing(skipped, store)
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
    if data == "glyphs" and run.split.test_faces:
        data = f"faces of {run.split.train_classes} glyphs"
    elif data == "glyphs":
        data = f"glyphs {(run.split.seed or 0) + 1}"
    held_out = ", validation held out" if run.report_epoch == "best" else ""
    few = f"{run.split.train_pictures} images, " if run.split.train_pictures else ""
    epochs = f"{few}{count(run.epochs, 'epoch')}"
    return f"{method(encode(run))}{extra} on {data}{held_out}, {epochs}, seed {run.seed}"


def unusual(run: Run) -> dict[str, str]:
    """The settings that are not at their defaults, by their paths."""
    settings = encode(run)
    flat = rows(settings)
    return {path: flat[path] for path in changed(settings, encode(Run()))}
