"""The settings of the protocol at each scale.

`paper` is section C.2 with what it leaves to the reference harness of Musgrave, Belongie and Lim:
BN-Inception with a layer to 128 dimensions, all batch norm frozen, RMSprop at 1e-6 (momentum 0.9,
weight decay 1e-4), batches of 32 pictures of 32 different classes, 227 pixels. `small` is for
glyphs and a small machine, `smoke` shows within seconds that everything works.

The harness counts steps, in "epochs" of 100: it evaluates every 2 of them (CARS 5, SOP 20), stops
when the best is more than 9 (14, 39) old, that is after 5 (3, 2) evaluations without a better one,
and at the latest after 1,000. Our epochs go through the pictures once: `rhythm` converts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from proxysynth.training.defaults import default_run
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run
from proxysynth.training.split import Split

from .spaces import PROXY_LR, build_loss

BATCH = 32
STEPS_AT_MOST = 100_000
# Steps between evaluations, and without a better one before the end, in the reference harness.
INTERVALS = {"cars196": (500, 1500), "sop": (2000, 4000)}
USUAL_INTERVALS = (200, 1000)
SEEN_PICTURES = {"cub200": 5864, "cars196": 8054, "sop": 59551, "inshop": 25882}


@dataclass(frozen=True)
class Scale:
    """How much is done.

    Args:
        trials: of the search; each is `folds` trainings.
        folds: parts of the seen classes.
        repetitions: of the best setting; each is `folds` trainings.
        prune: give up a trial whose first folds are below the median of the others'.
        near: search near the paper's values, beginning at them; else everywhere, with no hint.
        random_trials: so many first trials are drawn at random before a model chooses.
    """

    trials: int
    folds: int
    repetitions: int
    prune: bool = False
    near: bool = False
    random_trials: int = 10


SCALES = {
    "smoke": Scale(trials=2, folds=2, repetitions=1, prune=True, near=True, random_trials=1),
    "small": Scale(trials=5, folds=4, repetitions=3, prune=True, near=True, random_trials=3),
    "paper": Scale(trials=50, folds=4, repetitions=10),
}


def base_run(data: str, loss: str, regularizer: str, scale: str, **changes: Any) -> Run:
    """The run that every training of a study starts from, before its parameters are put in."""
    if scale == "paper":
        return mlrc_run(data, loss, regularizer, **changes)
    made: dict[str, Any] = {"loss": build_loss(loss, regularizer, {}), "report_epoch": "best"}
    if scale == "small":
        made |= {"epochs": 20, "evaluate_every": 5} if data == "glyphs" else {}
        return default_run(data, **made | changes)
    tiny: dict[str, Any] = {"backbone": "conv4", "width": 0.25, "dim": 16, "pretrained": False}
    made |= tiny | {"epochs": 2, "batch_size": 16, "evaluate_every": 2}
    if data == "glyphs":
        made["split"] = Split(train_classes=12, test_classes=8, faces_per_class=8)
    else:
        made |= {"image_size": 32, "precision": "float32", "augment": False}
    return default_run(data, **made | changes)


def mlrc_run(data: str, loss: str, regularizer: str = "none", seed: int = 0, **changes: Any) -> Run:
    """One training as the protocol has it, of a fold once `split.fold` is set.

    Args:
        data: "cub200:ROOT" and the like, a folder, or glyphs.
        changes: fields of `Run`; `weights` names the file of BN-Inception's published weights.
    """
    made = {
        "data": data,
        "loss": build_loss(loss, regularizer, {}),
        "backbone": "bn_inception",
        "dim": 128,
        "pretrained": True,
        "image_size": 227,
        "freeze_batch_norm": True,
        "transforms": "mlrc",
        "augment": True,
        "crop_scale": (0.16, 1.0),
        "sampler": "m_per_class",
        "m": 1,
        "batch_size": BATCH,
        "optimizer": "rmsprop",
        "lr": 1e-6,
        "proxy_lr": PROXY_LR.start,
        "momentum": 0.9,
        "weight_decay": 1e-4,
        "schedule": "constant",
        "seed": seed,
        "report_epoch": "best",
        "warmup_epochs": 0,
        "embedding_lr": None,
        "precision": "float32",
    }
    run = default_run(**made | changes)
    said = {name: value for name, value in changes.items() if name in RHYTHM}
    return replace(run, **rhythm(run) | said)


RHYTHM = ("epochs", "evaluate_every", "patience")


def rhythm(run: Run) -> dict[str, int]:
    """The harness's steps in epochs of this data: how often to evaluate, when to stop."""
    name = run.data.partition(":")[0]
    pictures = SEEN_PICTURES.get(name)
    if pictures is None:
        pictures = len(open_splits(run).train)
    steps = max(1, pictures * 3 // 4 // run.batch_size)  # three of four folds
    between, without = INTERVALS.get(name, USUAL_INTERVALS)
    every = max(1, round(between / steps))
    return {
        "epochs": max(every, math.ceil(STEPS_AT_MOST / steps)),
        "evaluate_every": every,
        "patience": math.ceil(without / (every * steps)),
    }
