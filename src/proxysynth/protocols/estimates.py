"""How long a training takes on this machine: from finished runs, or from a few timed steps."""

from __future__ import annotations

import inspect
import time
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np

from proxysynth.data import Listing, Loader, pixels_named
from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.glyphs import FACES, glyphs
from proxysynth.protocols.mlrc import Study
from proxysynth.training.learner import Learner
from proxysynth.training.prepare import (
    make_network,
    open_splits,
    side_in_memory,
    training_transform,
)
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run, Split
from proxysynth.training.run_folder import RESULT, read_result, read_run

Kind = tuple[str, float, int | None, str]
STEPS = 3  # that are timed
SAMPLE = 16  # images in each of them, where they are large and the device is a CPU
OVERHEAD = 1.0  # seconds per run: opening the data, the first and the last evaluation
TESTED = 1 / 3  # the time of a tested image, in trained ones: no backward pass


class Estimate:
    """Seconds that a run takes in one process, from the finished runs of a folder. A kind of run
    that has none is timed: a few steps on its own images, or on random ones if there are none."""

    def __init__(self, folder: Path, device: str | None = None) -> None:
        self.finished = measured_rates(folder)
        self.device = device
        self._timed: dict[Kind, float] = {}

    def __call__(self, run: Run) -> float:
        kind = kind_of(run)
        if kind not in self.finished and kind not in self._timed:
            self._timed[kind] = time_steps(run, self.device)
        return OVERHEAD + work(run) / (self.finished.get(kind) or self._timed[kind])

    def study(self, study: Study) -> float:
        """All trials and repetitions, without pruning or early stopping."""
        share = 1 - 1 / study.scale.folds
        return study.trainings * (OVERHEAD + share * (self(study.base) - OVERHEAD))


def time_steps(run: Run, device: str | None = None) -> float:
    """Images per second of a few training steps, loading included."""
    resources = Resources(device)
    place = resources.torch_device()
    rng = np.random.default_rng(0)
    try:
        splits = open_splits(run)
        net = make_network(run, side_in_memory(splits), trained=True)
        train = splits.train
    except (ValueError, OSError):
        net = make_network(run, 32, trained=True)
        images = rng.integers(256, size=(100, net.image_size, net.image_size, 3), dtype=np.uint8)
        names = tuple(map(str, range(100)))
        train = Listing(names, np.arange(100), names, pixels=images)
    large = place.type == "cpu" and net.image_size > 64
    size = min(run.batch_size, SAMPLE) if large else run.batch_size
    learner = Learner(run, net, len(train.classes), 1, place)
    learner.begin_epoch(run.warmup_epochs)
    transform, pixels = training_transform(run, net, train), pixels_named(net.preprocess)
    loader = Loader(train, transform, pixels, resources.loader_workers)
    plan = rng.integers(len(train), size=(STEPS + 1, size))
    for number, batch in enumerate(loader.batches(list(plan))):
        learner.step(batch, number)
        if number == 0:  # it warms up
            start = time.perf_counter()
    return STEPS * size / (time.perf_counter() - start)


def kind_of(run: Run) -> Kind:
    """Runs of one kind take about the same time per image."""
    return run.backbone, run.width, run.image_size, run.precision


def measured_rates(folder: Path) -> dict[Kind, float]:
    """Images per second of each kind, the median over the finished runs anywhere in a folder."""
    found = defaultdict[Kind, list[float]](list)
    for path in sorted(folder.rglob(RESULT)):
        with suppress(OSError, ValueError):  # a study's result, or a damaged one
            run, result = read_run(path.parent).run, read_result(path.parent)
            # How long a run trained that may have stopped early is not recorded.
            if result is not None and result.seconds > 0 and not run.patience:
                found[kind_of(run)].append(work(run) / result.seconds)
    return {kind: median(rates) for kind, rates in found.items()}


def work(run: Run) -> float:
    """The images that a run trains on and tests, in units of trained ones."""
    train, test = count_images(run.data, run.split)
    if run.holds_out:
        train = round((1 - run.split.validation_fraction) * train)
    return run.epochs * train + TESTED * -(-run.epochs // run.evaluate_every) * test


@cache
def count_images(data: str, split: Split) -> tuple[int, int]:
    """How many images are trained on and tested; of a benchmark, as published, and of glyphs
    without drawing them: where faces are tested, the number is an estimate."""
    name = data.partition(":")[0]
    if name == "glyphs" and split.fold is None and split.unseen_fraction is None:
        faces, classes = len(FACES), inspect.signature(glyphs).parameters
        train = split.train_classes or classes["train_classes"].default
        test = split.test_classes or classes["test_classes"].default
        train *= split.pictures_per_class or split.faces_per_class or faces
        test *= split.pictures_per_class or faces
        if split.test_faces:
            test = train * split.test_faces // faces
            train -= test
    elif name in CATALOG:
        pictures = CATALOG[name].pictures
        train, test = pictures["train"], sum(pictures.values()) - pictures["train"]
    else:
        splits = open_splits(Run(data=data, split=split))
        return len(splits.train), len(splits.query) + len(splits.gallery or ())
    return min(train, split.train_pictures or train), min(test, split.test_pictures or test)
