"""Runs of numbers against loops, and the ways that depend on how many there are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from proxysynth.retrieval import counting, product, rank
from proxysynth.retrieval.runs import spread
from retrieval.oracle import ranked


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=12))
def test_spread_is_the_ranges_one_after_another(runs: list[tuple[int, int]]) -> None:
    start = torch.tensor([a for a, _ in runs], dtype=torch.long)
    size = torch.tensor([n for _, n in runs], dtype=torch.long)
    which, numbers = spread(start, size)
    expected = [(i, a + k) for i, (a, n) in enumerate(runs) for k in range(n)]
    assert list(zip(which.tolist(), numbers.tolist(), strict=True)) == expected


@pytest.mark.parametrize("narrow", [0, 1_000])
@pytest.mark.parametrize("scattered", [0.0, 1.0])
@pytest.mark.parametrize("classes", [2, 9, 40])
@pytest.mark.parametrize("own", [True, False])
def test_either_way_gives_the_same_ranks(
    narrow: int, scattered: float, classes: int, own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "NARROW", narrow)
    monkeypatch.setattr(product, "SCATTERED", scattered)
    r = np.random.default_rng(classes)
    x, y = r.choice([-1.0, 1.0], size=(150, 16)), r.integers(0, classes, 150)  # many ties
    if own:
        got, expected = rank(x, y, block=48), ranked(x, y)
    else:
        apart = {"gallery": x[60:], "gallery_labels": y[60:]}
        got = rank(x[:60], y[:60], **apart, block=48)
        expected = ranked(x[:60], y[:60], x[60:], y[60:])
    found = torch.stack([got.first.double(), got.r_precision.double()], 1).numpy()
    np.testing.assert_allclose(found, expected[:, 1:3], rtol=0, atol=1e-12)
