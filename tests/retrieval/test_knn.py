"""Exact nearest neighbors against a stable sort; fast products are as exact as they say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxysynth.retrieval.knn import (
    dots,
    nearest,
    nonzero,
    summation_error,
    top,
)
from retrieval.clouds import CLOUDS
from retrieval.oracle import similarities


def points(kind: str, r: np.random.Generator, n: int) -> np.ndarray:
    if kind == "random":
        return r.normal(size=(n, 5))
    if kind == "signs":
        return r.choice([-1.0, 1.0], size=(n, 4))
    return r.normal(size=(n // 4 + 1, 9))[r.integers(0, n // 4 + 1, n)]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 200),
    kind=st.sampled_from(["random", "signs", "duplicates"]),
    own=st.booleans(),
    block=st.one_of(st.none(), st.integers(1, 300)),
    data=st.data(),
)
def test_matches_a_stable_sort(seed, n, kind, own, block, data) -> None:
    x = points(kind, np.random.default_rng(seed), n)
    queries = data.draw(st.integers(1, n))
    k = data.draw(st.integers(1, n - own))
    S = similarities(x[:queries], x)
    if own:
        S[np.arange(queries), np.arange(queries)] = -np.inf
    expected = np.argsort(-S, axis=1, kind="stable")[:, :k]
    got = nearest(x[:queries], x, k, exclude=torch.arange(queries) if own else None, block=block)
    np.testing.assert_array_equal(got.indices.numpy(), expected)
    np.testing.assert_allclose(
        got.similarities.numpy(), np.take_along_axis(S, expected, 1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("k", [1, 7, 300])
def test_several_blocks_of_queries_and_gallery(k: int) -> None:
    x = torch.randn(2300, 6, dtype=torch.float64)
    similarities, indices = nearest(x, x, k, exclude=torch.arange(2300))
    u = torch.nn.functional.normalize(x, dim=1)
    expected = (u @ u.T).fill_diagonal_(-torch.inf).topk(k, dim=1)
    assert torch.equal(indices, expected.indices)
    torch.testing.assert_close(similarities, expected.values)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_memory_mapped_galleries(tmp_path: Path, dtype) -> None:
    r = np.random.default_rng(0)
    gallery, x = r.normal(size=(700, 12)).astype(dtype), r.normal(size=(3, 12)).astype(np.float32)
    np.save(tmp_path / "gallery.npy", gallery)
    mapped = np.load(tmp_path / "gallery.npy", mmap_mode="r")
    expected = np.argsort(-similarities(x, gallery), axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(nearest(x, mapped, 9, block=64).indices, expected)


@pytest.mark.parametrize("queries", [1, 20])
def test_exclude_and_among(queries: int) -> None:
    r = np.random.default_rng(1)
    gallery, x = r.normal(size=(60, 4)).astype(np.float32), r.normal(size=(queries, 4))
    among = np.sort(r.permutation(60)[:25])
    exclude = [
        [None, int(among[3]), [0, int(among[5]), int(among[9])]][i % 3] for i in range(queries)
    ]
    S = similarities(x, gallery)
    S[:, np.setdiff1d(np.arange(60), among)] = -np.inf
    for i, out in enumerate(exclude):
        S[i, [] if out is None else out] = -np.inf
    order = np.argsort(-S, axis=1, kind="stable")[:, :25]
    values = np.take_along_axis(S, order, 1)
    got = nearest(x, gallery, 25, exclude=exclude, among=among, block=7)
    np.testing.assert_array_equal(got.indices, np.where(np.isfinite(values), order, -1))
    np.testing.assert_allclose(got.similarities, values, atol=1e-7)


def test_top_of_candidates() -> None:
    x, g = torch.randn(4, 6), torch.randn(30, 6).half()
    full = nearest(x, g, 30)
    row, column = torch.arange(4).repeat_interleave(30), torch.arange(30).repeat(4)
    assert torch.equal(top(x, g, row, column, 5).indices, full.indices[:, :5])
    few = top(x, g, row[:2], column[:2], 5)
    assert few.indices[0, :2].sort().values.tolist() == [0, 1]
    assert (few.indices[:, 2:] == -1).all()


def test_a_result_does_not_depend_on_other_queries() -> None:
    x, g = torch.randn(50, 33), torch.randn(400, 33).half()
    together = nearest(x, g, 5)
    for i in range(50):
        alone = nearest(x[i : i + 1], g, 5)
        assert torch.equal(alone.indices[0], together.indices[i])
        assert torch.equal(alone.similarities[0], together.similarities[i])


def test_extreme_zero_and_non_finite_rows() -> None:
    g = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    expected = nearest(g[:4], g, 10).indices
    scale = np.tile(np.array([1e-30, 1e30, 1.0, 1e-12], dtype=np.float32), 10)[:, None]
    assert torch.equal(nearest(g[:4], g * scale, 10).indices, expected)
    g[3, 2], g[7] = np.nan, 0
    got = nearest(np.ones((1, 6)), g, 40)
    assert 3 not in got.indices
    assert got.indices[0, -1] == -1
    assert got.similarities[got.indices == 7].item() == 0


def test_gallery_is_not_changed() -> None:
    g = torch.randn(100, 8)
    kept = g.clone()
    nearest(g[:3], g, 5)
    assert torch.equal(g, kept)


G = np.eye(4, dtype=np.float32)
BAD = G.copy()
BAD[3, 0] = np.inf


@pytest.mark.parametrize(
    ("queries", "gallery", "k", "more", "field"),
    [
        (G, G, 5, {}, "k must .* 1 to 4"),
        (G, G, 0, {}, "k must"),
        (G, G, True, {}, "k must"),
        (G, G, 1, {"exclude": [0, 1]}, "exclude"),
        (G[:, :3], G, 1, {}, "gallery must have the 3 dimensions"),
        (BAD, G, 1, {}, "queries must be finite, but row 3"),
        (G[0], G, 1, {}, "queries"),
        (G, G, 1, {"block": -1}, "block"),
    ],
)
def test_errors(queries, gallery, k, more: dict, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        nearest(queries, gallery, k, **more)


# ---- Similarities


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 7, 64, 513])
def test_chosen_pairs(dtype: torch.dtype, d: int) -> None:
    x, y = torch.randn(9, d, dtype=dtype), torch.randn(13, d, dtype=dtype)
    row, column = torch.tensor([0, 0, 3, 3, 8]), torch.tensor([12, 1, 1, 5, 0])
    expected = (x[row].double() * y[column].double()).sum(1)
    torch.testing.assert_close(dots(x, y, row, column).double(), expected, rtol=1e-5, atol=1e-5)
    none = torch.empty(0, dtype=torch.int64)
    assert dots(x, y, none, none).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 16, 100, 512])
def test_equal_pairs_have_equal_similarities(dtype: torch.dtype, d: int) -> None:
    x = torch.randn(1, d, dtype=dtype).expand(37, d).contiguous()
    y = torch.randn(1, d, dtype=dtype).expand(53, d).contiguous()
    row, column = torch.arange(37).repeat_interleave(53), torch.arange(53).repeat(37)
    upright = dots(x, y, row, column)
    row, column = torch.arange(53).repeat_interleave(37), torch.arange(37).repeat(53)
    assert len(torch.cat([upright, dots(y, x, row, column)]).unique()) == 1


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0])
@pytest.mark.parametrize("size", [(40, 64), (3, 7)])
def test_nonzero_is_in_memory_order(size, share: float) -> None:
    flags = torch.rand(size) < share
    expected = flags.nonzero(as_tuple=True)
    for got, other in zip(nonzero(flags), expected, strict=True):
        assert torch.equal(got, other)
    column, row = nonzero(flags.T)
    assert torch.equal(row, expected[0])
    assert torch.equal(column, expected[1])


@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize(
    ("d", "dtype"),
    [(3, torch.float64), (64, torch.float32), (700, torch.float32), (700, torch.float64)],
)
def test_no_product_is_off_by_more_than_its_bound(kind, dtype, d: int) -> None:
    x = torch.nn.functional.normalize(kind(96, d).to(dtype), dim=1)
    exact = dots(x, x, torch.arange(96).repeat_interleave(96), torch.arange(96).repeat(96))
    off = (x @ x.T - exact.view(96, 96)).abs().max()
    assert off <= 2 * summation_error(d, dtype) < 0.001
