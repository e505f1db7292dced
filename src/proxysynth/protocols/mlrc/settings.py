"""What a study is: its scale, the training it varies, and the study as one frozen value.

`paper` is section C.2, completed from the reference code of Musgrave, Belongie and Lim:
BN-Inception with a layer to 128 dimensions, all batch norm frozen, RMSprop at 1e-6 (momentum 0.9,
weight decay 1e-4), batches of 32 images of 32 different classes, 227 pixels. `small` is for glyphs
and a small machine, `smoke` tests within seconds that everything works.

The reference code counts steps, in "epochs" of 100: it evaluates every 2 of them (CARS 5, SOP 20),
stops when the best is more than 9 (14, 39) old, that is after 5 (3, 2) evaluations without a better
one, and at the latest after 1,000. Our epochs are passes over the images: `epochs_for` converts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from proxysynth.training.defaults import default_run
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import check_integers, digest, encode, look_up, parse_field, parse_settings

from .spaces import PROXY_LR, Space, build_loss, run_fields, space_of

BATCH = 32
MAX_STEPS = 100_000
# Steps between evaluations, and steps without improvement before stopping, in the reference code.
INTERVALS = {"cars196": (500, 1500), "sop": (2000, 4000)}
DEFAULT_INTERVALS = (200, 1000)
SEEN_IMAGES = {"cub200": 5864, "cars196": 8054, "sop": 59551, "inshop": 25882}

SEARCHED = ("loss", "regularizer")
FIXED_BY_PROTOCOL = ("seed", "data", "report_epoch", "split.fold", "split.folds", "task")


@dataclass(frozen=True)
class Scale:
    """The amount of work."""

    trials: int  # of the search; each is `folds` trainings
    folds: int  # parts of the seen classes
    repetitions: int  # of the best setting; each is `folds` trainings
    prune: bool = False  # stop a trial whose first folds are below the median of the others
    near: bool = False  # search near the paper's values, starting with them; else the whole space
    random_trials: int = 10  # number of trials drawn at random before a model chooses


SCALES = {
    "smoke": Scale(trials=2, folds=2, repetitions=1, prune=True, near=True, random_trials=1),
    "small": Scale(trials=5, folds=4, repetitions=3, prune=True, near=True, random_trials=3),
    "paper": Scale(trials=50, folds=4, repetitions=10),
}


@dataclass(frozen=True)
class Study:
    """The search for a loss's best parameters by cross-validation, then repetitions of the best."""

    loss: str  # a key of `LOSSES`
    regularizer: str  # a key of `REGULARIZERS`
    base: Run  # the training that all others are variations of
    space: Space
    scale: Scale
    scale_name: str = "paper"  # "smoke", "small", "paper", or what tables should show
    seed: int = 0  # of the search and its trainings; repetition r trains with seed + 1 + r

    def __post_init__(self) -> None:
        check_integers(self.scale, trials=1, folds=2, repetitions=1)

    @property
    def data(self) -> str:
        """The data's short name: "glyphs", "cub200", the name of a folder."""
        name, colon, _ = self.base.data.partition(":")
        if colon and name.isidentifier() and len(name) > 1:
            return name
        return os.path.splitext(os.path.basename(self.base.data.rstrip("/")))[0] or "data"

    @property
    def name(self) -> str:
        """Its name in a storage, and of its folder by default."""
        return f"{self.data}-{self.loss}-{self.regularizer}"

    @property
    def trainings(self) -> int:
        """How many trainings it has, if none is pruned."""
        return (self.scale.trials + self.scale.repetitions) * self.scale.folds

    def facts(self) -> dict[str, Any]:
        """What two equal studies share: everything but the number of trials and repetitions, which
        may be raised later, and where the data is on disk."""
        weights = os.path.basename(self.base.weights) if self.base.weights else None
        scale = {k: v for k, v in asdict(self.scale).items() if k not in ("trials", "repetitions")}
        run = replace(self.base, data=self.data, weights=weights)
        return {"run": encode(run), "space": encode(self.space), "seed": self.seed, **scale}

    def run(self, params: Mapping[str, float], fold: int, seed: int) -> Run:
        """The training of one fold with these parameters."""
        return replace(
            self.base,
            loss=build_loss(self.loss, self.regularizer, params),
            split=replace(self.base.split, fold=fold, folds=self.scale.folds),
            seed=seed,
            **run_fields(params),  # type: ignore[arg-type]
        )

    def key(self, params: Mapping[str, float]) -> str:
        """A hash of the parameters, twelve hexadecimal digits: names the folder of their runs."""
        return digest({name: float(params[name]) for name in sorted(params)})


def make_study(
    data: str,
    loss: str = "norm_softmax",
    regularizer: str = "none",
    scale: str | None = None,
    *,
    trials: int | None = None,
    repetitions: int | None = None,
    folds: int | None = None,
    seed: int = 0,
    **changes: Any,
) -> Study:
    """The study of a loss on some data.

    Args:
        scale: "smoke", "small" or "paper"; default: small for glyphs, paper for other data.
        trials, repetitions, folds: override the scale's.
        changes: fields of `Run` that all its trainings share, such as `weights`.
    """
    name = scale or ("small" if data == "glyphs" else "paper")
    given = {"trials": trials, "repetitions": repetitions, "folds": folds}
    given = {field: number for field, number in given.items() if number is not None}
    size = replace(look_up(name, SCALES, "scale"), **given)
    base = base_run(data, loss, regularizer, name, seed=seed, **changes)
    return Study(loss, regularizer, base, space_of(loss, regularizer, size.near), size, name, seed)


def base_run(data: str, loss: str, regularizer: str, scale: str, **changes: Any) -> Run:
    """The run that every training of a study varies."""
    if scale == "paper":
        return mlrc_run(data, loss, regularizer, **changes)
    made: dict[str, Any] = {"loss": build_loss(loss, regularizer, {}), "report_epoch": "best"}
    if scale == "small":
        made |= {"epochs": 20, "evaluate_every": 5} if data == "glyphs" else {"interpolate": None}
        return default_run(data, **made | changes)
    made |= {"backbone": "conv4", "width": 0.25, "dim": 16, "pretrained": False}
    made |= {"epochs": 2, "batch_size": 16, "evaluate_every": 2}
    if data == "glyphs":
        made["split"] = Split(train_classes=12, test_classes=8, faces_per_class=8)
    else:
        made |= {"image_size": 32, "precision": "float32", "augment": False}
    return default_run(data, **made | changes)


def mlrc_run(data: str, loss: str, regularizer: str = "none", seed: int = 0, **changes: Any) -> Run:
    """One training as the protocol has it, with `changes` to the fields of `Run`; of a fold once
    `split.fold` is set."""
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
    converted = {name: n for name, n in epochs_for(run).items() if name not in changes}
    return replace(run, **converted)  # type: ignore[arg-type]


def epochs_for(run: Run) -> dict[str, int]:
    """The steps of the reference code in epochs of this data: when to evaluate and to stop."""
    name = run.data.partition(":")[0]
    images = SEEN_IMAGES.get(name) or len(open_splits(run).train)
    steps = max(1, images * 3 // 4 // run.batch_size)  # three of four folds
    between, without = INTERVALS.get(name, DEFAULT_INTERVALS)
    every = max(1, round(between / steps))
    return {
        "epochs": max(every, math.ceil(MAX_STEPS / steps)),
        "evaluate_every": every,
        "patience": math.ceil(without / (every * steps)),
    }


def parse_changes(settings: Sequence[str]) -> dict[str, Any]:
    """Fields of `Run` from `--set` arguments, "field=value" and "split.field=value".

    What is searched, and what the protocol prescribes, cannot be set.
    """
    changes: dict[str, Any] = {}
    split: dict[str, Any] = {}
    for path, text in parse_settings(settings).items():
        part, _, name = path.rpartition(".")
        if path == "proxy_lr" or path in SEARCHED or part in SEARCHED:
            raise ValueError(f"--set {path}: the field is searched, remove it")
        if path in FIXED_BY_PROTOCOL:
            raise ValueError(f"--set {path}: the field is fixed by the protocol, remove it")
        if part == "split":
            split[name] = parse_field(Split, name, text, KINDS)
        elif part:
            raise ValueError(f"--set {path}: unknown part {part!r}, only split has fields")
        else:
            changes[name] = parse_field(Run, name, text, KINDS)
    if split:
        changes["split"] = Split(**split)
    return changes
