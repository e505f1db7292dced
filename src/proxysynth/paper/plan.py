"""What a command would train, and how long that may take. Nothing starts here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

from proxysynth.data.benchmarks.catalogue import CATALOGUE
from proxysynth.paper.artifact import Artifact
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.work import chooser, missing
from proxysynth.training.run import Run
from proxysynth.training.run_folder import find_run

Kind = tuple[str, float, int | None]
RATES: dict[str, float] = {"conv4": 1000.0, "preact_resnet18": 40.0, "efficientnet_lite0": 100.0}
"""Pictures a second where nothing was measured yet: conv4 at 32 pixels, PreActResNet18 at 32
pixels and its full width, EfficientNet-Lite0 at 96, all on one or two cores."""
SLOWEST = 40.0  # BN-Inception at 224 pixels on two cores would be slower still; a GPU is faster
OVERHEAD = 1.0  # seconds per Run: opening, the first and the last test


@dataclass(frozen=True)
class Plan:
    """What is missing.

    Args:
        known: Runs that are sure to be needed.
        later: Runs whose settings a search will decide; the settings here are placeholders.
        done: how many are finished.
        times: seconds that each of them may take, in one process.
        measured: whether the estimate rests on finished Runs of the same kinds.
    """

    known: tuple[Run, ...]
    later: tuple[Run, ...]
    done: int
    times: dict[Run, float]
    measured: bool

    @property
    def seconds(self) -> float:
        """All of them, one after the other."""
        return sum(self.times.values())


def make_plan(artifacts: Mapping[str, Artifact], scale: Scale, store: Store) -> Plan:
    """What these artifacts need and the store has not."""
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


def estimator(store: Store) -> Callable[[Run], float]:
    """A function from a Run to seconds, by the finished Runs of the store."""
    rates = measured_rates(store)
    return lambda run: estimate(run, rates)


def estimate(run: Run, rates: Mapping[Kind, float]) -> float:
    """Seconds, in one process."""
    rate = rates.get(kind_of(run))
    if rate is None:
        rate = RATES.get(run.backbone, SLOWEST) / max(run.width, 0.1) ** 1.5
    return OVERHEAD + run.epochs * pictures(run) / rate


def kind_of(run: Run) -> Kind:
    """Runs of one kind take the same time per picture, roughly."""
    return run.backbone, run.width, run.image_size


def measured_rates(store: Store) -> dict[Kind, float]:
    """Pictures a second of each kind, the median over the finished Runs of the store."""
    found: dict[Kind, list[float]] = {}
    for result in sorted((store.folder / "runs").glob("*/result.json")):
        try:
            told = json.loads(result.read_bytes())
            recorded = find_run(result.parent)
            seconds = float(told["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if recorded is not None and seconds > 0:
            run = recorded.run
            found.setdefault(kind_of(run), []).append(run.epochs * pictures(run) / seconds)
    return {kind: median(rates) for kind, rates in found.items()}


def pictures(run: Run) -> int:
    """Training pictures of a Run of this package's scales, without opening them."""
    split = run.split
    if run.data == "glyphs":
        faces = 16 - (split.test_faces or 0) if split.test_faces else split.faces_per_class or 16
        count = (split.train_classes or 100) * faces
    else:
        name = run.data.partition(":")[0]
        count = CATALOGUE[name].pictures["train"] if name in CATALOGUE else 10_000
    count = min(count, split.train_pictures or count)
    return round(0.8 * count) if run.report_epoch == "best" else count
