"""The plane of largest spread, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from proxysynth.web.layout import evenly, plane


@pytest.mark.parametrize("n", [3, 50, 5000])
def test_the_plane_of_largest_spread(n) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    x = np.random.default_rng(0).normal(size=(n, 12)) * np.linspace(3, 1, 12)
    found = plane(x.astype(np.float32))
    expected = decomposition.PCA(2, svd_solver="full").fit_transform(x)
    for axis in range(2):
        r = np.corrcoef(found[:, axis], expected[:, axis])[0, 1]
        assert abs(r) > 0.9999
    assert np.linalg.norm(found, axis=1).max() == pytest.approx(1, rel=1e-5)


def test_a_plane_looks_the_same_every_time() -> None:
    x = np.random.default_rng(1).normal(size=(60, 6)).astype(np.float32)
    assert np.array_equal(plane(x), plane(x.copy()))


@pytest.mark.parametrize("x", [np.ones((4, 3)), np.ones((1, 3)), np.arange(5.0)[:, None]])
def test_a_space_without_a_plane_still_has_places(x) -> None:
    made = plane(x.astype(np.float32))
    assert made.shape == (len(x), 2)
    assert np.isfinite(made).all()


def test_a_sample_is_even_and_has_no_number_twice() -> None:
    assert evenly(5, 9).tolist() == [0, 1, 2, 3, 4]
    chosen = evenly(1000, 30)
    assert (chosen[0], chosen[-1], len(set(chosen.tolist()))) == (0, 999, 30)
    assert np.ptp(np.diff(chosen)) <= 1
