"""Intervals against scipy and printed tables; sampled pairs against a loop over all of them."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from proxysynth.report.statistics import (
    pair_similarities,
    paired_interval,
    t_quantile,
    unpaired_interval,
)


@pytest.mark.parametrize(("freedom", "table"), [(1, 12.706), (2, 4.303), (4, 2.776), (30, 2.042)])
def test_the_printed_table(freedom, table):
    assert t_quantile(0.95, freedom) == pytest.approx(table, abs=5e-4)


@given(st.floats(0.5, 400), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_quantiles_are_those_of_scipy(freedom, level):
    want = stats.t.ppf((1 + level) / 2, freedom)
    assert t_quantile(level, freedom) == pytest.approx(want, rel=1e-8)


values = st.lists(st.integers(0, 1000).map(lambda n: n / 1000), min_size=2, max_size=8)


@pytest.mark.filterwarnings("ignore:Precision loss")  # scipy's, where one list does not vary
@given(values, values)
def test_welch_is_that_of_scipy(a, b):
    low, high = unpaired_interval(a, b)
    if len(set(a)) == len(set(b)) == 1:  # nothing varies: scipy has no answer
        assert low == high
        return
    want = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    assert (low, high) == pytest.approx((want.low, want.high), rel=1e-6, abs=1e-9)


def test_pairs_by_hand():
    # differences 5, 3, 4: mean 4, deviation 1; t of 2 degrees is 4.3027
    low, high = paired_interval([90, 92, 94], [95, 95, 98])
    half = 4.302653 / math.sqrt(3)
    assert (low, high) == pytest.approx((4 - half, 4 + half), abs=1e-5)


def test_values_that_do_not_vary_have_an_interval_of_no_width():
    assert unpaired_interval([1.0, 1.0], [3.0, 3.0]) == (2.0, 2.0)
    assert paired_interval([1.0, 2.0], [3.0, 4.0]) == (2.0, 2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: paired_interval([1, 2], [1, 2, 3]),
        lambda: paired_interval([1], [2]),
        lambda: unpaired_interval([1], [2, 3]),
        lambda: t_quantile(1.0, 3),
        lambda: t_quantile(0.95, 0),
    ],
)
def test_too_little_is_an_error(call):
    with pytest.raises(ValueError, match="got"):
        call()


def every_pair(x, y, g=None, gy=None):
    """All cosines by loops, of one class and of two."""
    own = g is None
    g, gy = (x, y) if own else (g, gy)
    alike, unlike = [], []
    for i in range(len(x)):
        for j in range(i + 1 if own else 0, len(g)):
            cosine = x[i] @ g[j] / np.linalg.norm(x[i]) / np.linalg.norm(g[j])
            (alike if y[i] == gy[j] else unlike).append(cosine)
    return np.sort(alike), np.sort(unlike)


@pytest.fixture
def data():
    draw = np.random.default_rng(0)
    y = draw.integers(0, 5, 40)
    return draw.normal(size=(40, 6)).astype(np.float32), y


def test_few_pairs_are_all_taken_once(data):
    x, y = data
    alike, unlike = every_pair(x, y)
    pairs = pair_similarities(x, y)
    assert (pairs.all_same, pairs.all_different) == (len(alike), len(unlike))
    np.testing.assert_allclose(np.sort(pairs.same), alike, atol=1e-6)
    np.testing.assert_allclose(np.sort(pairs.different), unlike, atol=1e-6)
    assert pairs.describe() == (
        f"Shown: all {len(alike)} pairs of the same class and all {len(unlike)} pairs of "
        "different classes."
    )


def test_query_and_gallery_apart(data):
    x, y = data
    q, qy, g, gy = x[:15], y[:15], x[15:], y[15:]
    alike, unlike = every_pair(q, qy, g, gy)
    pairs = pair_similarities(q, qy, g, gy)
    assert (pairs.all_same, pairs.all_different) == (len(alike), len(unlike))
    np.testing.assert_allclose(np.sort(pairs.same), alike, atol=1e-6)
    np.testing.assert_allclose(np.sort(pairs.different), unlike, atol=1e-6)


@pytest.mark.parametrize("apart", [False, True])
def test_a_sample_is_of_the_right_kind_and_even(apart):
    """Each picture has its own angle, so that a cosine tells the pair."""
    y = np.array([0, 0, 0, 1, 1, 1, 1, 2, 2])
    angle = np.array([0, 7, 19, 40, 61, 83, 101, 130, 171.0])
    x = np.stack([np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))], 1).astype(np.float32)
    given = (x, y, x[::-1].copy(), y[::-1].copy()) if apart else (x, y)
    alike, unlike = every_pair(*given)
    pairs = pair_similarities(*given, sample=9 if apart else 5)
    whole = pair_similarities(*given)
    for drawn, every in ((pairs.same, alike), (pairs.different, unlike)):
        assert len(drawn) == (9 if apart else 5)
        assert np.abs(drawn[:, None] - every[None]).min(1).max() < 1e-6
    # Many small samples together meet every pair about equally often.
    drawn = np.concatenate(
        [pair_similarities(*given, sample=5, seed=s).different for s in range(2000)]
    )
    different, often = np.unique(np.round(whole.different, 5), return_counts=True)
    share = np.array([(np.abs(drawn - value) < 1e-4).mean() for value in different])
    np.testing.assert_allclose(share, often / often.sum(), atol=0.015)
    drawn = np.concatenate([pair_similarities(*given, sample=5, seed=s).same for s in range(2000)])
    different, often = np.unique(np.round(whole.same, 5), return_counts=True)
    share = np.array([(np.abs(drawn - value) < 1e-4).mean() for value in different])
    np.testing.assert_allclose(share, often / often.sum(), atol=0.015)


def test_the_same_seed_draws_the_same(data):
    x, y = data
    a, b, c = (pair_similarities(x, y, sample=20, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a.different, b.different)
    assert not np.array_equal(a.different, c.different)
    assert "20 drawn from" in a.describe()


def test_order_counts_how_often_one_class_is_closer(data):
    x, y = data
    alike, unlike = every_pair(x, y)
    want = np.mean([(a > b) + 0.5 * (a == b) for a in alike for b in unlike])
    assert pair_similarities(x, y).auc() == pytest.approx(want, abs=1e-6)


def test_one_class_has_no_pair_of_two():
    x = np.eye(3, dtype=np.float32)
    assert pair_similarities(x, np.zeros(3, np.int64)) is None
    assert pair_similarities(x, np.arange(3)) is None
