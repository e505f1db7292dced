"""The search spaces: the ranges of each loss and each regularizer.

A range is named by the path that `--set` takes: `proxy_lr`, `loss.scale`, `regularizer.mu`. The
ranges are those of the paper's scale and include every optimum that the protocol's authors
published for these losses (temperatures as scales, degrees as radians, inverse temperatures as
temperatures).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import log
from typing import Any

from proxysynth.training.defaults import run_from_options
from proxysynth.values import look_up


@dataclass(frozen=True)
class Range:
    """One searched number."""

    name: str  # its path in a run
    low: float  # included, as is `high`
    high: float
    start: float  # where a short search starts: the value of the paper, or of the loss's own paper
    log: bool = True  # searched on a logarithmic scale

    def near_bound(self, value: float) -> bool:
        """Whether a value lies in the first or last 2% of the range."""
        low, at, high = (log(x) if self.log else x for x in (self.low, value, self.high))
        return not 0.02 < (at - low) / (high - low) < 0.98


Space = tuple[Range, ...]

PROXY_LR = Range("proxy_lr", 1e-6, 1.0, 1e-2)  # the reference code: log, 1e-6 to 1


def _scale(start: float) -> Range:
    return Range("loss.scale", 1.0, 300.0, start)


def _linear(name: str, low: float, high: float, start: float) -> Range:
    return Range(name, low, high, start, log=False)


LOSS_SPACES: dict[str, Space] = {
    "softmax": (),
    "norm_softmax": (_scale(23.0),),
    "sphereface": (_scale(30.0), _linear("loss.m1", 1.0, 1.5, 1.05)),
    "cosface": (_scale(23.0), _linear("loss.m3", 0.0, 0.8, 0.1)),
    "arcface": (_scale(23.0), _linear("loss.m2", 0.0, 0.8, 0.1)),
    "proxy_nca": (Range("loss.scale", 0.5, 100.0, 10.0),),
    "soft_triple": (
        _scale(20.0),
        Range("loss.temperature", 0.01, 1.0, 0.1),
        _linear("loss.scaled_margin", 0.0, 0.8, 0.01),
        _linear("loss.regularizer", 0.0, 1.0, 0.2),
    ),
    "proxy_anchor": (_scale(32.0), _linear("loss.margin", 0.0, 0.8, 0.1)),
}
"""Ranges of each loss's own numbers. The others keep the loss's defaults, except for SoftTriple:
its margin is searched as `scaled_margin`, so the other one is 0."""

FIXED = {"soft_triple": {"loss.margin": 0.0}}

REGULARIZER_SPACES: dict[str, Space] = {
    "none": (),
    "proxy_synthesis": (
        Range("regularizer.alpha", 0.1, 2.0, 0.4),
        _linear("regularizer.mu", 0.1, 2.0, 1.0),
    ),
    "virtual_softmax": (Range("regularizer.clip", 1.0, 100.0, 10.0),),
    "input_mixup": (Range("regularizer.alpha", 0.1, 2.0, 0.5),),
    "manifold_mixup": (Range("regularizer.alpha", 0.1, 2.0, 0.5),),
}

NEAR = 4.0  # a short search stays within this factor of the start, or this part of the width


def space_of(loss: str, regularizer: str, near: bool = False) -> Space:
    """The search space of a loss with a regularizer; `near` the start values, for a search of few
    trials: within a factor of 4 on a logarithmic scale, a quarter of the width on a linear one."""
    of_regularizer = look_up(regularizer, REGULARIZER_SPACES, "regularizer")
    ranges = (PROXY_LR, *look_up(loss, LOSS_SPACES, "loss"), *of_regularizer)
    return tuple(map(_narrowed, ranges)) if near else ranges


def _narrowed(item: Range) -> Range:
    part = (item.high - item.low) / NEAR
    low, high = item.start - part, item.start + part
    if item.log:
        low, high = item.start / NEAR, item.start * NEAR
    return replace(item, low=max(low, item.low), high=min(high, item.high))


def starts(space: Space) -> dict[str, float]:
    """The parameters of the first trial of a short search."""
    return {item.name: item.start for item in space}


def build_loss(loss: str, regularizer: str, params: Mapping[str, float]) -> Any:
    """The loss with these parameters, wrapped in its regularizer if there is one."""
    return run_from_options("glyphs", loss, regularizer, {**FIXED.get(loss, {}), **params}).loss
