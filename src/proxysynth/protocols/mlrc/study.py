"""A study: what the protocol is run on, as one frozen value."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from proxysynth.training.run import Run
from proxysynth.values import digest, encode, look_up

from .settings import SCALES, Scale, base_run
from .spaces import Space, build_loss, run_fields, space_of


@dataclass(frozen=True)
class Study:
    """The search of a loss's best parameters by cross-validation, then repetitions of the best.

    Args:
        loss, regularizer: keys of `LOSSES` and `REGULARIZERS`.
        base: the training that all others are variations of.
        space: what is searched.
        scale: how much is done.
        scale_name: "smoke", "small", "paper", or what a table should say.
        seed: of the search, and of its trainings; repetition r trains with seed + 1 + r.
    """

    loss: str
    regularizer: str
    base: Run
    space: Space
    scale: Scale
    scale_name: str = "paper"
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("trials", 1), ("folds", 2), ("repetitions", 1)):
            value = getattr(self.scale, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(
                    f"a study needs a whole number of {name} from {least} on, got {value!r}"
                )

    @property
    def data(self) -> str:
        """The data's short name: "glyphs", "cub200", the name of a folder."""
        name, colon, _ = self.base.data.partition(":")
        if colon and name.isidentifier() and len(name) > 1:
            return name
        return os.path.splitext(os.path.basename(self.base.data.rstrip("/")))[0] or "data"

    @property
    def name(self) -> str:
        """What it is called in a storage, and its folder by default."""
        return f"{self.data}-{self.loss}-{self.regularizer}"

    def facts(self) -> dict[str, Any]:
        """What makes two studies the same: everything but how many trials and repetitions there
        are, which may be raised later, and where on a disk the data lies."""
        weights = os.path.basename(self.base.weights) if self.base.weights else None
        return {
            "run": encode(replace(self.base, data=self.data, weights=weights)),
            "space": encode(self.space),
            "folds": self.scale.folds,
            "prune": self.scale.prune,
            "near": self.scale.near,
            "random_trials": self.scale.random_trials,
            "seed": self.seed,
        }

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
        """Twelve hexadecimal digits of the parameters: the folder of their trainings."""
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
        scale: "smoke", "small" or "paper"; None is small for glyphs and paper for anything else.
        trials, repetitions, folds: other numbers than the scale's.
        changes: fields of `Run` that all its trainings share, such as `weights`.
    """
    name = scale or ("small" if data == "glyphs" else "paper")
    given = {"trials": trials, "repetitions": repetitions, "folds": folds}
    size = replace(
        look_up(name, SCALES, "scale"), **{k: v for k, v in given.items() if v is not None}
    )
    return Study(
        loss=loss,
        regularizer=regularizer,
        base=base_run(data, loss, regularizer, name, seed=seed, **changes),
        space=space_of(loss, regularizer, size.near),
        scale=size,
        scale_name=name,
        seed=seed,
    )
