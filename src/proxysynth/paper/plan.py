"""What artifacts still need, how long it may take, and training it.

Several processes may work on the same store: each Run is trained by one of them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from statistics import median

import torch

from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.errors import NotFinite
from proxysynth.formatting import duration
from proxysynth.paper.artifact import Artifact, Choice, Pick
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.protocols.mlrc import Study, run_study
from proxysynth.report.settings import changed, method, rows
from proxysynth.report.study import write_study
from proxysynth.report.terminal import NestedBars
from proxysynth.training.callbacks import Progress, Tick
from proxysynth.training.loop import train
from proxysynth.training.prepare import make_network
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import find_run
from proxysynth.values import encode

POLL = 1.0  # seconds between checks of Runs that other processes train
Kind = tuple[str, float, int | None]
STEPS = 3  # timed to estimate a kind of Run that this store has none of
SAMPLE = 16  # images in each of these steps, where they are large and the device is a CPU
OVERHEAD = 1.0  # seconds per Run: opening the data, the first and the last evaluation


@dataclass(frozen=True)
class Plan:
    """What artifacts need, and what of it is missing.

    Args:
        known: missing Runs that are needed for certain.
        later: missing Runs whose settings a search will decide; the settings are placeholders.
        studies: missing MLRC studies by the name of their folder.
        done: the number of finished Runs and studies.
        times: estimated seconds in one process of each missing Run and study.
        finished: whether the estimate rests on finished Runs, instead of a few timed steps.
    """

    known: tuple[Run, ...]
    later: tuple[Run, ...]
    studies: dict[str, Study]
    done: int
    times: dict[Run | str, float]
    finished: bool

    @property
    def missing(self) -> int:
        return len(self.times)

    @property
    def seconds(self) -> float:
        return sum(self.times.values())


def make_plan(
    artifacts: Mapping[str, Artifact],
    scale: Scale,
    store: Store,
    estimate: Estimate | None = None,
) -> Plan:
    """What these artifacts need that the store lacks."""
    estimate = estimate or Estimate(store)
    known = dict.fromkeys(run for one in artifacts.values() for run in one.runs(scale))
    guess = chooser(store, guess=True)
    later = dict.fromkeys(
        run for one in artifacts.values() for run in one.later(scale, guess) if run not in known
    )
    studies = {
        name: study for one in artifacts.values() for name, study in one.studies(scale).items()
    }
    left, left_later = missing(list(known), store), missing(list(later), store)
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


def needed_runs(artifact: Artifact, scale: Scale, store: Store) -> list[Run]:
    """The Runs behind an artifact, including those that finished searches decide."""
    return [*artifact.runs(scale), *artifact.later(scale, chooser(store))]


def chooser(store: Store, guess: bool = False) -> Pick:
    """Looks up what a search chose: None, or with `guess` its first option, while unfinished."""

    def pick(choice: Choice) -> object:
        option = choice.best(store.result)
        if option is None and guess and choice.options:
            option = choice.options[0]
        return None if option is None else option.value

    return pick


def missing(runs: Sequence[Run], store: Store) -> list[Run]:
    """The unfinished Runs, each once, in order."""
    return [run for run in dict.fromkeys(runs) if store.result(run) is None]


# Estimates


class Estimate:
    """Seconds that a Run takes in one process, from the finished Runs of the store.

    A kind of Run that has none is timed: a few training steps of its network on random images.
    """

    def __init__(self, store: Store, device: str | None = None) -> None:
        self.finished = measured_rates(store)
        self.device = device
        self._timed: dict[Kind, float] = {}

    def __call__(self, run: Run) -> float:
        kind = kind_of(run)
        if kind not in self.finished and kind not in self._timed:
            self._timed[kind] = time_steps(run, self.device)
        rate = self.finished.get(kind) or self._timed[kind]
        return OVERHEAD + run.epochs * training_images(run) / rate

    def study(self, study: Study) -> float:
        """All trials and repetitions, without pruning or early stopping."""
        trainings = (study.scale.trials + study.scale.repetitions) * study.scale.folds
        share = 1 - 1 / study.scale.folds
        return trainings * (OVERHEAD + share * (self(study.base) - OVERHEAD))


def time_steps(run: Run, device: str | None = None) -> float:
    """Images per second of a few training steps of a Run's network, on random images."""
    place = Resources(device).torch_device()
    net = make_network(run, 32, trained=True).to(place).train()
    large = place.type == "cpu" and net.image_size > 64
    batch = min(run.batch_size, SAMPLE) if large else run.batch_size
    channels = 1 if net.preprocess == "grey" else 3
    images = torch.rand(batch, channels, net.image_size, net.image_size, device=place)
    for step in range(STEPS + 1):
        if step == 1:  # the first one warms up
            start = time.perf_counter()
        net(images).sum().backward()
        if place.type == "cuda":
            torch.cuda.synchronize()
    return STEPS * batch / (time.perf_counter() - start)


def kind_of(run: Run) -> Kind:
    """Runs of one kind take about the same time per image."""
    return run.backbone, run.width, run.image_size


def measured_rates(store: Store) -> dict[Kind, float]:
    """Images per second of each kind, the median over the finished Runs of the store."""
    found: dict[Kind, list[float]] = {}
    for path in sorted((store.folder / "runs").glob("*/result.json")):
        try:
            seconds = float(json.loads(path.read_bytes())["seconds"])
            recorded = find_run(path.parent)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if recorded is not None and seconds > 0:
            run = recorded.run
            found.setdefault(kind_of(run), []).append(run.epochs * training_images(run) / seconds)
    return {kind: median(rates) for kind, rates in found.items()}


def training_images(run: Run) -> int:
    """The number of training images of a Run, without opening its data."""
    split = run.split
    if run.data == "glyphs":
        faces = 16 if split.test_faces else split.faces_per_class or 16
        each = split.pictures_per_class or faces
        count = (split.train_classes or 100) * each * (16 - (split.test_faces or 0)) // 16
    else:
        name = run.data.partition(":")[0]
        count = CATALOG[name].pictures["train"] if name in CATALOG else 10_000
    count = min(count, split.train_pictures or count)
    return round(0.8 * count) if run.report_epoch == "best" else count


# Training


class BarsOnly:
    """Progress that shows a Run's bars and drops its messages."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def say(self, sentence: str) -> None:
        pass

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]:
        return self._progress.task(name, total, done)


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
    estimate = Estimate(store, resources.device)
    known = [run for artifact in artifacts.values() for run in artifact.runs(scale)]
    failed = train_missing(known, store, resources, progress, estimate)
    pick = chooser(store)
    later = [run for artifact in artifacts.values() for run in artifact.later(scale, pick)]
    failed |= train_missing(later, store, resources, progress, estimate)
    for artifact in artifacts.values():
        for name, study in artifact.studies(scale).items():
            if not finished_study(store, name):
                folder = store.folder / "mlrc" / name
                progress.say(f"Study {name}, about {duration(estimate.study(study), rough=True)}")
                outcome = run_study(study, folder, resources=resources, progress=NestedBars())
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
    settings = encode(run)
    flat = rows(settings)
    unusual = [
        f"{path.split('.')[-1]} {flat[path]}"
        for path in changed(settings, encode(Run()))
        if path.startswith(("loss.", "regularizer."))
    ]
    extra = f" ({', '.join(unusual)})" if unusual else ""
    data = run.data.partition(":")[0]
    if data == "glyphs":
        data = (
            f"faces of {run.split.train_classes} glyphs"
            if run.split.test_faces
            else f"glyphs {(run.split.seed or 0) + 1}"
        )
    held_out = ", validation held out" if run.report_epoch == "best" else ""
    few = f"{run.split.train_pictures} images, " if run.split.train_pictures else ""
    epochs = f"{few}{run.epochs} epoch{'s' * (run.epochs != 1)}"
    return f"{method(settings)}{extra} on {data}{held_out}, {epochs}, seed {run.seed}"
