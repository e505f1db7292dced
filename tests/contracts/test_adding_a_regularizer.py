"""A new regularizer needs a file, a card and one line of REGULARIZERS."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import proxysynth as ps
from proxysynth.losses.functional import plain_loss
from proxysynth.training.defaults import run_from_options
from proxysynth.training.learner import make_objective
from proxysynth.training.run import KINDS, Run
from proxysynth.values import decode, encode

CARDS = Path(__file__).parents[2] / "docs" / "regularizers"
NAMES = [name for name in ps.REGULARIZERS if name != "none"]


def test_the_names_of_the_contract() -> None:
    assert list(ps.REGULARIZERS) == [
        "none", "proxy_synthesis", "virtual_softmax", "input_mixup", "manifold_mixup",
    ]  # fmt: skip
    assert ps.REGULARIZERS["none"] is None


@pytest.mark.parametrize("name", NAMES)
def test_regularizer_is_complete(name: str) -> None:
    kind, loss = ps.REGULARIZERS[name], ps.Softmax()
    made = kind(loss)
    assert kind.__dataclass_params__.frozen
    assert next(iter(dataclasses.fields(kind))).name == "loss"
    assert made.normalized is False
    assert plain_loss(made) is loss
    assert "[" in (kind.__doc__ or ""), "the docstring says where it stands in the paper"
    assert (CARDS / f"{name}.md").is_file(), f"write docs/regularizers/{name}.md"


@pytest.mark.parametrize("name", NAMES)
def test_run_round_trip(name: str) -> None:
    run = run_from_options(loss="softmax", regularizer=name)
    assert run == dataclasses.replace(run, loss=ps.REGULARIZERS[name](ps.Softmax()))
    assert not run.normalized
    assert decode(encode(run), KINDS) == run
    assert run.identity != Run(loss=ps.Softmax()).identity
    assert make_objective(run.loss).loss == run.loss


@pytest.mark.parametrize("name", NAMES)
def test_no_regularizer_wraps_another(name: str) -> None:
    kind = ps.REGULARIZERS[name]
    with pytest.raises(ValueError, match="plain loss"):
        kind(kind(ps.Softmax()))
