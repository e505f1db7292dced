"""The parameter that decides is the important one."""

from __future__ import annotations

import random

import pytest

from proxysynth.protocols.mlrc.importance import importance
from proxysynth.protocols.mlrc.search import Searched
from proxysynth.protocols.mlrc.spaces import space_of

SPACE = space_of("cosface", "proxy_synthesis")


def trials(n: int, decides: str) -> list[Searched]:
    draw, made = random.Random(0), []
    for index in range(n):
        params = {item.name: draw.uniform(item.low, item.high) for item in SPACE}
        made.append(Searched(index, params, 1 / (1 + params[decides]), (0.5,) * 4))
    return made


@pytest.mark.parametrize("decides", ["loss.m3", "regularizer.mu"])
def test_what_decides_comes_first(decides):
    shares = importance(SPACE, trials(50, decides))
    assert next(iter(shares)) == decides
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == {item.name for item in SPACE}


def test_too_few_or_all_alike_say_nothing():
    assert importance(SPACE, trials(3, "loss.m3")) == {}
    alike = [Searched(t.index, t.params, 0.5, t.folds) for t in trials(9, "loss.m3")]
    assert importance(SPACE, alike) == {}
