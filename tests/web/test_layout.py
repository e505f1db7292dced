"""The map keeps neighborhoods; its start is the first two principal components."""

from __future__ import annotations

import numpy as np
import pytest

from proxysynth.web import layout as module
from proxysynth.web.layout import evenly, layout, plane


def groups(n: int, d: int, count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    which = np.arange(n) % count
    x = draw.normal(size=(count, d))[which] + 0.6 * draw.normal(size=(n, d))
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32), which


def kept(y: np.ndarray, which: np.ndarray, k: int = 5) -> float:
    """How many of the k nearest on the map are of the same group."""
    far = np.linalg.norm(y[:, None] - y[None], axis=2)
    np.fill_diagonal(far, np.inf)
    return float((which[far.argsort(axis=1)[:, :k]] == which[:, None]).mean())


def test_layout_keeps_high_dimensional_groups_together() -> None:
    x, which = groups(600, 48, 30)
    assert kept(layout(x), which) > 0.95
    assert kept(plane(x), which) < 0.5  # which a plane cannot do


def test_points_beyond_the_landmarks_join_their_group(monkeypatch) -> None:
    monkeypatch.setattr(module, "LANDMARKS", 200)
    x, which = groups(900, 48, 20)
    assert kept(layout(x), which) > 0.9


def test_layout_is_deterministic_and_normalized() -> None:
    x, _ = groups(300, 16, 10)
    y = layout(x)
    assert np.array_equal(y, layout(x.copy()))
    assert np.percentile(np.abs(y), 99, axis=0) == pytest.approx(1, rel=1e-4)
    assert np.abs(y.mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("n", [1, 2, 3, 13])
def test_layout_of_few_points_and_copies_is_finite(n) -> None:
    for x in (groups(n, 4, 2)[0], np.ones((n, 4), np.float32) / 2):
        y = layout(x)
        assert y.shape == (n, 2)
        assert np.isfinite(y).all()


@pytest.mark.parametrize("n", [3, 50, 5000])
def test_plane_matches_sklearn_pca(n) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    x = np.random.default_rng(0).normal(size=(n, 12)) * np.linspace(3, 1, 12)
    found = plane(x.astype(np.float32))
    expected = decomposition.PCA(2, svd_solver="full").fit_transform(x)
    for axis in range(2):
        r = np.corrcoef(found[:, axis], expected[:, axis])[0, 1]
        assert abs(r) > 0.9999
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(1, rel=1e-5)


def test_plane_is_deterministic() -> None:
    x = np.random.default_rng(1).normal(size=(60, 6)).astype(np.float32)
    assert np.array_equal(plane(x), plane(x.copy()))


@pytest.mark.parametrize("x", [np.ones((4, 3)), np.ones((1, 3)), np.arange(5.0)[:, None]])
def test_plane_of_degenerate_points_is_finite(x) -> None:
    made = plane(x.astype(np.float32))
    assert made.shape == (len(x), 2)
    assert np.isfinite(made).all()


def test_sample_is_evenly_spaced_without_repeats() -> None:
    assert evenly(5, 9).tolist() == [0, 1, 2, 3, 4]
    chosen = evenly(1000, 30)
    assert (chosen[0], chosen[-1], len(set(chosen.tolist()))) == (0, 999, 30)
    assert np.ptp(np.diff(chosen)) <= 1
