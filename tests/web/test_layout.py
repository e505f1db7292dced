"""The map keeps who is next to whom."""

from __future__ import annotations

import numpy as np
import pytest

from proxysynth.web import layout as module
from proxysynth.web.layout import layout, plane


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


def test_groups_of_many_dimensions_stay_together() -> None:
    x, which = groups(600, 48, 30)
    assert kept(layout(x), which) > 0.95
    assert kept(plane(x), which) < 0.5  # which a plane cannot do


def test_points_beyond_the_landmarks_go_to_their_own_group(monkeypatch) -> None:
    monkeypatch.setattr(module, "LANDMARKS", 200)
    x, which = groups(900, 48, 20)
    assert kept(layout(x), which) > 0.9


def test_a_map_is_the_same_every_time_and_within_its_frame() -> None:
    x, _ = groups(300, 16, 10)
    y = layout(x)
    assert np.array_equal(y, layout(x.copy()))
    assert np.percentile(np.abs(y), 99, axis=0) == pytest.approx(1, rel=1e-4)
    assert np.abs(y.mean(axis=0)).max() < 1e-5


@pytest.mark.parametrize("n", [1, 2, 3, 13])
def test_a_few_points_and_copies_have_a_map(n) -> None:
    for x in (groups(n, 4, 2)[0], np.ones((n, 4), np.float32) / 2):
        y = layout(x)
        assert y.shape == (n, 2)
        assert np.isfinite(y).all()
