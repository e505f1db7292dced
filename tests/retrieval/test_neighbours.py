"""The k nearest against a stable sort."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxysynth.retrieval import nearest
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
    exclude_self=st.booleans(),
    block=st.one_of(st.none(), st.integers(1, 300)),
    data=st.data(),
)
def test_equal_to_a_stable_sort(seed, n, kind, exclude_self, block, data) -> None:
    x = points(kind, np.random.default_rng(seed), n)
    queries = data.draw(st.integers(1, n))
    k = data.draw(st.integers(1, n - exclude_self))
    S = similarities(x[:queries], x)
    if exclude_self:
        S[np.arange(queries), np.arange(queries)] = -np.inf
    expected = np.argsort(-S, axis=1, kind="stable")[:, :k]
    got = nearest(x[:queries], x, k, exclude_self=exclude_self, block=block)
    np.testing.assert_array_equal(got.index.numpy(), expected)
    np.testing.assert_allclose(
        got.similarity.numpy(), np.take_along_axis(S, expected, 1), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("k", [1, 7, 300])
def test_several_blocks_of_queries_and_gallery(k: int) -> None:
    x = torch.randn(2300, 6, dtype=torch.float64)
    got = nearest(x, x, k, exclude_self=True)
    u = torch.nn.functional.normalize(x, dim=1)
    expected = (u @ u.T).fill_diagonal_(-torch.inf).topk(k, dim=1)
    assert torch.equal(got.index, expected.indices)
    torch.testing.assert_close(got.similarity, expected.values)


def test_half_precision_gallery_is_computed_in_float32() -> None:
    g, q = torch.randn(500, 8).half(), torch.randn(3, 8)
    got, expected = nearest(q, g, 5), nearest(q, g.float(), 5)
    assert got.similarity.dtype == torch.float32
    assert torch.equal(got.index, expected.index)


def test_gallery_is_left_as_it_was() -> None:
    g = torch.randn(100, 8)
    kept = g.clone()
    nearest(g[:3], g, 5)
    assert torch.equal(g, kept)


G = np.eye(4, dtype=np.float32)
BAD = G.copy()
BAD[3, 0] = np.inf


@pytest.mark.parametrize(
    ("query", "gallery", "k", "more", "message"),
    [
        (G, G, 5, {}, "k must be a whole number from 1 to 4, what there is, got 5"),
        (G, G, 4, {"exclude_self": True}, "k must be a whole number from 1 to 3"),
        (G, G, 0, {}, "k must be a whole number"),
        (G, G, True, {}, "k must be a whole number"),
        (G, G[:2], 1, {"exclude_self": True}, "4 queries and 2 rows"),
        (G[:, :3], G, 1, {}, "gallery must have the 3 dimensions of query, got 4"),
        (BAD, G, 1, {}, "query must be finite, but row 3"),
        (G, BAD, 1, {}, "gallery must be finite, but row 3"),
        (G[0], G, 1, {}, r"query must be \(n, d\)"),
        (G, G, 1, {"block": -1}, "block must be a whole number"),
    ],
)
def test_one_sentence_says_what_is_wrong(query, gallery, k, more: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nearest(query, gallery, k, **more)
