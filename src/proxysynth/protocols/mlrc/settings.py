"""What a study is: its scale, the training it varies, and the study as one frozen value.

`paper` is section C.2, completed from the reference code of Musgrave, Belongie and Lim. `small` is
for glyphs and a small machine, `smoke` tests within seconds that everything works.

The reference code counts steps, in "epochs" of 100: it evaluates every 2 of them (CARS 5, SOP 20),
stops when the best is more than 9 (14, 39) old, that is after 5 (3, 2) evaluations without a better
one, and at the latest after 1,000. Our epochs are passes over the images: `epochs_for` converts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.protocols.mlrc.spaces import PROXY_LR, Space, build_loss, space_of
from proxysynth.training.defaults import default_run
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import check_integers, digest, encode, look_up, parse_field, parse_settings

MAX_STEPS = 100_000
# Steps between evaluations, and steps without improvement before stopping, in the reference code.
INTERVALS = {"cars196": (500, 1500), "sop": (2000, 4000)}
DEFAULT_INTERVALS = (200, 1000)

SEARCHED = ("loss", "regularizer", "proxy_lr")
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
        named = colon and name.isidentifier() and len(name) > 1
        return name if named else Path(self.base.data).stem or "data"

    @property
    def name(self) -> str:
        """What is studied: "glyphs-cosface-none"."""
        return f"{self.data}-{self.loss}-{self.regularizer}"

    @property
    def name_with_scale(self) -> str:
        """Its name in a storage, and of its folder by default: studies of different scales must not
        meet in one. `small` is left out."""
        return self.name if self.scale_name == "small" else f"{self.name}-{self.scale_name}"

    @property
    def trainings(self) -> int:
        """How many trainings it has, if none is pruned."""
        return (self.scale.trials + self.scale.repetitions) * self.scale.folds

    def facts(self) -> dict[str, Any]:
        """What two equal studies share: everything but the number of trials and repetitions, which
        may be raised later, and where the data is on disk."""
        weights = Path(self.base.weights).name if self.base.weights else None
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
            proxy_lr=params.get(PROXY_LR.name, self.base.proxy_lr),
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
        scale: a key of `SCALES`; default: small for glyphs, paper for other data.
        trials, repetitions, folds: override the scale's.
        changes: fields of `Run` that all its trainings share, such as `weights`.
    """
    name = scale or ("small" if data == "glyphs" else "paper")
    size = look_up(name, SCALES, "scale")
    given = {"trials": trials, "repetitions": repetitions, "folds": folds}
    size = replace(size, **{field: n for field, n in given.items() if n is not None})
    base = mlrc_run(data, loss, regularizer, name, seed=seed, **changes)
    return Study(loss, regularizer, base, space_of(loss, regularizer, size.near), size, name, seed)


def mlrc_run(
    data: str, loss: str, regularizer: str = "none", scale: str = "paper", **changes: Any
) -> Run:
    """One training as the protocol has it at this scale, with `changes` to the fields of `Run`; of
    a fold once `split.fold` is set."""
    made: dict[str, Any] = {"loss": build_loss(loss, regularizer, {}), "report_epoch": "best"}
    if scale == "paper":
        made |= {"backbone": "bn_inception", "dim": 128, "pretrained": True, "image_size": 227}
        made |= {"transforms": "mlrc", "augment": True, "crop_scale": (0.16, 1.0)}
        made |= {"sampler": "m_per_class", "m": 1, "batch_size": 32, "precision": "float32"}
        made |= {"optimizer": "rmsprop", "lr": 1e-6, "momentum": 0.9, "weight_decay": 1e-4}
        made |= {"proxy_lr": PROXY_LR.start, "embedding_lr": None, "freeze_batch_norm": True}
        made |= {"schedule": "constant", "warmup_epochs": 0}
        made |= epochs_for(default_run(data, **made | changes))
    elif scale == "small":
        made |= {"epochs": 20, "evaluate_every": 5} if data == "glyphs" else {"interpolate": None}
    else:
        made |= {"backbone": "conv4", "width": 0.25, "dim": 16, "pretrained": False}
        made |= {"epochs": 2, "batch_size": 16, "evaluate_every": 2}
        if data == "glyphs":
            made["split"] = Split(train_classes=12, test_classes=8, faces_per_class=8)
        else:
            made |= {"image_size": 32, "precision": "float32", "augment": False}
    return default_run(data, **made | changes)


def epochs_for(run: Run) -> dict[str, int]:
    """When to evaluate and to stop: the steps of the reference code in epochs of this data."""
    name = run.data.partition(":")[0]
    published = CATALOG.get(name)
    images = published.pictures["train"] if published else len(open_splits(run).train)
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
        if path in SEARCHED or part in SEARCHED:
            raise ValueError(f"--set {path}: the field is searched, remove it")
        if path in FIXED_BY_PROTOCOL:
            raise ValueError(f"--set {path}: the field is fixed by the protocol, remove it")
        if part not in ("", "split"):
            raise ValueError(f"--set {path}: unknown part {part!r}, only split has fields")
        into, kind = (split, Split) if part else (changes, Run)
        into[name] = parse_field(kind, name, text, KINDS)
    return {**changes, "split": Split(**split)} if split else changes
