"""What is searched fits the losses, and holds what is known of good values."""

from __future__ import annotations

import dataclasses
import math

import pytest

from proxysynth.losses import LOSSES
from proxysynth.protocols.mlrc.spaces import Range, build_loss, space_of, starts
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training import Run

# A virtual class needs lengths, two labels need a mean over embeddings.
IMPOSSIBLE = {
    *((loss, "virtual_softmax") for loss in LOSSES if loss != "softmax"),
    ("proxy_anchor", "input_mixup"),
    ("proxy_anchor", "manifold_mixup"),
}
PAIRS = [(a, b) for a in LOSSES for b in REGULARIZERS if (a, b) not in IMPOSSIBLE]


@pytest.mark.parametrize(("loss", "regularizer"), PAIRS)
@pytest.mark.parametrize("near", [False, True])
def test_bounds_of_every_space_give_valid_runs(loss, regularizer, near):
    space = space_of(loss, regularizer, near)
    for end in ("low", "start", "high"):
        params = {item.name: getattr(item, end) for item in space}
        made = build_loss(loss, regularizer, params)
        run = Run(loss=made, proxy_lr=params["proxy_lr"])
        plain = made if regularizer == "none" else made.loss
        assert type(plain) is LOSSES[loss]
        for name, value in params.items():
            part, _, field = name.rpartition(".")
            holder = {"": run, "loss": plain, "regularizer": made}[part]
            assert getattr(holder, field) == value


# What the authors of the protocol found best on CUB, CARS and SOP, in our units.
KNOWN = {
    "norm_softmax": [{"loss.scale": 1 / t} for t in (0.1087, 0.0886, 0.0630)],
    "cosface": [
        {"loss.m3": m, "loss.scale": s} for m, s in ((0.6182, 100), (0.4324, 161.5), (0.3364, 100))
    ],
    "arcface": [
        {"loss.m2": math.radians(m), "loss.scale": s}
        for m, s in ((23.22, 100), (20.52, 49.5), (18.63, 220.3))
    ],
    "soft_triple": [
        {"loss.scale": s, "loss.temperature": 1 / g, "loss.scaled_margin": m}
        for s, g, m in ((78.02, 58.95, 0.4307), (17.69, 19.18, 0.3588), (100, 47.9, 0.3145))
    ],
}


@pytest.mark.parametrize("loss", KNOWN)
def test_known_optima_are_within_the_space(loss):
    space = {item.name: item for item in space_of(loss, "none")}
    for params in KNOWN[loss]:
        for name, value in params.items():
            assert space[name].low < value < space[name].high, name


def test_proxy_lr_range_matches_the_reference_harness():
    (item,) = space_of("softmax", "none")
    assert (item.name, item.low, item.high, item.log) == ("proxy_lr", 1e-6, 1.0, True)


def test_near_space_is_within_the_wide_space():
    for loss, regularizer in PAIRS:
        wide, near = space_of(loss, regularizer), space_of(loss, regularizer, near=True)
        assert starts(wide) == starts(near)
        for a, b in zip(wide, near, strict=True):
            assert a.low <= b.low < b.high <= a.high
            assert (b.low, b.high) != (a.low, a.high)


def test_near_bound():
    log, linear = Range("a", 0.01, 100.0, 1.0), Range("b", 1.0, 2.0, 1.5, log=False)
    assert [log.near_bound(value) for value in (0.01, 0.011, 0.02, 50.0, 95.0)] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert [linear.near_bound(value) for value in (1.0, 1.1, 1.99)] == [True, False, True]


def test_unsearched_loss_parameters_keep_their_defaults():
    made = build_loss("soft_triple", "none", starts(space_of("soft_triple", "none")))
    usual = LOSSES["soft_triple"]()
    assert made.k == usual.k
    assert made.margin == 0.0  # the other margin is the searched one
    assert dataclasses.asdict(build_loss("norm_softmax", "none", {})) == {"scale": 23.0}


@pytest.mark.parametrize("near", [False, True])
def test_every_range_contains_its_start(near):
    spaces = [space_of(loss, "none", near) for loss in LOSSES]
    spaces += [space_of("softmax", regularizer, near) for regularizer in REGULARIZERS]
    for item in (item for space in spaces for item in space):
        assert item.low <= item.start <= item.high
        assert (0 if item.log else -1) < item.low < item.high


@pytest.mark.parametrize(("loss", "regularizer"), sorted(IMPOSSIBLE))
def test_invalid_loss_regularizer_pair_is_rejected_before_training(loss, regularizer):
    with pytest.raises(ValueError, match="[Ss]oftmax|[Mm]ixup"):
        build_loss(loss, regularizer, {})


def test_unknown_names_are_rejected():
    with pytest.raises(ValueError, match="'norm_sofmax'"):
        space_of("norm_sofmax", "none")
    with pytest.raises(ValueError, match="unknown regularizer"):
        space_of("softmax", "mixup")
