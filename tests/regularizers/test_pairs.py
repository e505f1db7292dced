"""Who is mixed with whom: never with its own class, everyone equally often, and truly at random."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxysynth.regularizers.pairs import (
    draw_pairs,
    grouped_pairs,
    merge_duplicates,
    numpy_generator,
)

labels_of_a_batch = st.lists(st.integers(0, 12), min_size=1, max_size=40)
ratios = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.75, 1.0, 1.5, 2.0, 3.3])


@pytest.mark.parametrize("draw", [draw_pairs, grouped_pairs])
@settings(max_examples=300, deadline=None)
@given(labels=labels_of_a_batch, mu=ratios, seed=st.integers(0, 2**32))
def test_parents_differ_and_every_position_is_used_equally(draw, labels, mu, seed) -> None:
    y = np.array(labels)
    n, m = len(y), round(mu * len(y))
    if len(set(labels)) == 1:
        i, j = draw_pairs(y, m, np.random.default_rng(seed))
        assert len(i) == len(j) == 0
        return
    if m == 0:
        return
    i, j = draw(y, m, np.random.default_rng(seed))
    assert len(i) == len(j) == m
    assert (y[i] != y[j]).all()

    uses = np.bincount(np.concatenate((i, j)), minlength=n)
    values, counts = np.unique(y, return_counts=True)
    most = values[counts.argmax()]
    if 2 * counts.max() <= n:
        assert np.ptp(uses) <= 1
        if m % n == 0:
            assert (uses == 2 * m // n).all()
    elif np.ptp(uses) > 1:
        for side in (uses[y == most], uses[y != most]):
            assert np.ptp(side) <= 1
            assert side.sum() == m


def test_majority_class() -> None:
    y = np.array([3] * 30 + [1, 2])
    i, j = draw_pairs(y, 32, np.random.default_rng(0))
    assert (y[i] != y[j]).all()
    assert ((y[i] == 3) | (y[j] == 3)).all()
    assert np.bincount(np.concatenate((i, j)))[30:].tolist() == [16, 16]


@pytest.mark.parametrize("draw", [draw_pairs, grouped_pairs])
def test_pairs_of_equal_classes_are_as_frequent_as_by_chance(draw) -> None:
    """98 classes, 128 pictures: pairs of the same ordered classes, against plain rejection."""
    rng = np.random.default_rng(0)
    ours, chance = [], []
    for _ in range(600):
        y = rng.integers(98, size=128)
        i, j = draw(y, 128, rng)
        ours.append(128 - len(set(zip(y[i], y[j], strict=True))))
        a, b = rng.permutation(128), rng.permutation(128)
        differ = y[a] != y[b]
        chance.append(differ.sum() - len(set(zip(y[a][differ], y[b][differ], strict=True))))
    assert np.mean(ours) == pytest.approx(np.mean(chance), abs=0.25)


@pytest.mark.parametrize("draw", [draw_pairs, grouped_pairs])
def test_every_partner_is_possible(draw) -> None:
    y = np.array([0, 0, 1, 2, 3, 3])
    rng, met = np.random.default_rng(0), set()
    for _ in range(300):
        met |= set(zip(*(v.tolist() for v in draw(y, 6, rng)), strict=True))
    assert met == {(a, b) for a in range(6) for b in range(6) if y[a] != y[b]}


def test_merging_numbers_classes_by_first_appearance() -> None:
    y = np.array([5, 7, 5, 9])
    i, j = np.array([0, 1, 2, 3, 1]), np.array([1, 0, 1, 0, 2])
    target, first = merge_duplicates(y, i, j)
    assert target.tolist() == [0, 1, 0, 2, 1]
    assert first.tolist() == [0, 1, 3]


def test_draw_depends_on_the_torch_generator() -> None:
    def drawn(generator):
        return numpy_generator(generator).random(3).tolist()

    assert drawn(torch.Generator().manual_seed(1)) == drawn(torch.Generator().manual_seed(1))
    assert drawn(torch.Generator().manual_seed(1)) != drawn(torch.Generator().manual_seed(2))
    torch.manual_seed(4)
    a, b = drawn(None), drawn(None)
    torch.manual_seed(4)
    assert drawn(None) == a != b


def test_invalid_generator_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"torch\.Generator"):
        numpy_generator(0)  # type: ignore[arg-type]
