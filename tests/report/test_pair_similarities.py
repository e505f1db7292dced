"""Sampled pairs against a loop over all of them."""

import numpy as np
import pytest

from proxysynth.report.pairs import pair_similarities


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
    assert (pairs.all_alike, pairs.all_unlike) == (len(alike), len(unlike))
    np.testing.assert_allclose(np.sort(pairs.alike), alike, atol=1e-6)
    np.testing.assert_allclose(np.sort(pairs.unlike), unlike, atol=1e-6)
    assert pairs.told() == (
        f"Shown: all {len(alike)} pairs of the same class and all {len(unlike)} pairs of "
        "different classes."
    )


def test_query_and_gallery_apart(data):
    x, y = data
    q, qy, g, gy = x[:15], y[:15], x[15:], y[15:]
    alike, unlike = every_pair(q, qy, g, gy)
    pairs = pair_similarities(q, qy, g, gy)
    assert (pairs.all_alike, pairs.all_unlike) == (len(alike), len(unlike))
    np.testing.assert_allclose(np.sort(pairs.alike), alike, atol=1e-6)
    np.testing.assert_allclose(np.sort(pairs.unlike), unlike, atol=1e-6)


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
    for drawn, every in ((pairs.alike, alike), (pairs.unlike, unlike)):
        assert len(drawn) == (9 if apart else 5)
        assert np.abs(drawn[:, None] - every[None]).min(1).max() < 1e-6
    # Many small samples together meet every pair about equally often.
    drawn = np.concatenate(
        [pair_similarities(*given, sample=5, seed=s).unlike for s in range(2000)]
    )
    different, often = np.unique(np.round(whole.unlike, 5), return_counts=True)
    share = np.array([(np.abs(drawn - value) < 1e-4).mean() for value in different])
    np.testing.assert_allclose(share, often / often.sum(), atol=0.015)
    drawn = np.concatenate([pair_similarities(*given, sample=5, seed=s).alike for s in range(2000)])
    different, often = np.unique(np.round(whole.alike, 5), return_counts=True)
    share = np.array([(np.abs(drawn - value) < 1e-4).mean() for value in different])
    np.testing.assert_allclose(share, often / often.sum(), atol=0.015)


def test_the_same_seed_draws_the_same(data):
    x, y = data
    a, b, c = (pair_similarities(x, y, sample=20, seed=s) for s in (1, 1, 2))
    assert np.array_equal(a.unlike, b.unlike)
    assert not np.array_equal(a.unlike, c.unlike)
    assert "20 drawn from" in a.told()


def test_order_counts_how_often_one_class_is_closer(data):
    x, y = data
    alike, unlike = every_pair(x, y)
    want = np.mean([(a > b) + 0.5 * (a == b) for a in alike for b in unlike])
    assert pair_similarities(x, y).order() == pytest.approx(want, abs=1e-6)


def test_one_class_has_no_pair_of_two():
    x = np.eye(3, dtype=np.float32)
    assert pair_similarities(x, np.zeros(3, np.int64)) is None
    assert pair_similarities(x, np.arange(3)) is None
