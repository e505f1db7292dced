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

from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.errors import NotFinite
from proxysynth.formatting import duration
from proxysynth.paper.artifact import Artifact, Choice, Pick
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.report.settings import changed, method, rows
from proxysynth.training.loop import train
from proxysynth.training.progress import Progress, Tick
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import find_run
from proxysynth.values import encode

POLL = 1.0  # seconds between checks of Runs that other processes train
Kind = tuple[str, float, int | None]
RATES: dict[str, float] = {"conv4": 1000.0, "preact_resnet18": 40.0, "efficientnet_lite0": 100.0}
"""Images per second where nothing was measured yet: conv4 at 32 pixels, PreActResNet18 at 32 pixels
and full width, EfficientNet-Lite0 at 96 pixels, all on one or two cores."""
SLOWEST = 40.0  # BN-Inception at 224 pixels is slower still on two cores; a GPU is faster
OVERHEAD = 1.0  # seconds per Run: opening the data, the first and the last evaluation


@dataclass(frozen=True)
class Plan:
    """What is missing.

    Args:
        known: Runs that are needed for certain.
        later: Runs whose settings a search will decide; the settings here are placeholders.
        done: the number of finished Runs.
        times: estimated seconds of each missing Run, in one process.
        measured: whether the estimate rests on finished Runs of the same kinds.
    """

    known: tuple[Run, ...]
    later: tuple[Run, ...]
    done: int
    times: dict[Run, float]
    measured: bool

    @property
    def seconds(self) -> float:
        return sum(self.times.values())


def make_plan(artifacts: Mapping[str, Artifact], scale: Scale, store: Store) -> Plan:
    """What these artifacts need that the store lacks."""
    known = dict.fromkeys(run for one in artifacts.values() for run in one.runs(scale))
    guess = chooser(store, guess=True)
    later = dict.fromkeys(
        run for one in artifacts.values() for run in one.later(scale, guess) if run not in known
    )
    left, left_later = missing(list(known), store), missing(list(later), store)
    rates = measured_rates(store)
    times = {run: estimate(run, rates) for run in (*left, *left_later)}
    kinds = {kind_of(run) for run in times}
    done = len(known) + len(later) - len(times)
    return Plan(tuple(left), tuple(left_later), done, times, bool(kinds) and kinds <= set(rates))


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


def estimator(store: Store) -> Callable[[Run], float]:
    """A function from a Run to seconds, based on the finished Runs of the store."""
    rates = measured_rates(store)
    return lambda run: estimate(run, rates)


def estimate(run: Run, rates: Mapping[Kind, float]) -> float:
    """Seconds in one process."""
    rate = rates.get(kind_of(run))
    if rate is None:
        rate = RATES.get(run.backbone, SLOWEST) / max(run.width, 0.1) ** 1.5
    return OVERHEAD + run.epochs * training_images(run) / rate


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
        faces = 16 - split.test_faces if split.test_faces else split.faces_per_class or 16
        count = (split.train_classes or 100) * faces
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
    """Train everything that these artifacts need: known Runs first, then what searches decide.

    Returns:
        The Runs that failed, with the reason.
    """
    estimate = estimator(store)
    known = [run for artifact in artifacts.values() for run in artifact.runs(scale)]
    failed = train_missing(known, store, resources, progress, estimate)
    pick = chooser(store)
    later = [run for artifact in artifacts.values() for run in artifact.later(scale, pick)]
    return failed | train_missing(later, store, resources, progress, estimate)


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
        data = "glyph faces" if run.split.test_faces else f"glyphs {(run.split.seed or 0) + 1}"
    held_out = ", validation held out" if run.report_epoch == "best" else ""
    epochs = f"{run.epochs} epoch{'s' * (run.epochs != 1)}"
    return f"{method(settings)}{extra} on {data}{held_out}, {epochs}, seed {run.seed}"
