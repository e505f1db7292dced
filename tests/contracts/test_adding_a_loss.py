"""A new loss needs a file, an oracle, a card and one line of LOSSES."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch

import proxysynth as ps
from batches import EVERY_LOSS, batch
from losses.oracle import value as oracle
from proxysynth import losses

CARDS = Path(__file__).parents[2] / "docs" / "losses"


@pytest.mark.parametrize("name", ps.LOSSES)
def test_loss_is_complete(name: str) -> None:
    kind = ps.LOSSES[name]
    loss = kind()
    assert dataclasses.is_dataclass(loss)
    assert kind.__dataclass_params__.frozen
    assert isinstance(loss.normalized, bool)
    assert getattr(ps, kind.__name__) is kind
    assert kind.__name__ in losses.__all__
    for member in ("similarity", "from_similarity", "logits"):
        assert hasattr(loss, member), f"a loss needs {member}, see ProxyLoss in interfaces.py"
    source = re.search(r"Eq|\b(19|20)\d\d\b", kind.__doc__ or "")
    assert source, "the docstring names the equation, or the authors and the year of another paper"
    assert (CARDS / f"{name}.md").is_file(), f"write docs/losses/{name}.md"
    x, y, p = batch(loss)
    assert oracle(loss, x, y, p).isfinite()
    assert loss == EVERY_LOSS[name]
    assert loss.from_similarity(loss.similarity(x, p), y).shape == ()
    torch.testing.assert_close(loss(x, y, p), loss(x, y, p, generator=torch.Generator()))
