"""Re-ranking against float64 loops over sets, as the papers define it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxysynth.retrieval import evaluate
from proxysynth.retrieval.reranking import (
    DatabaseAugmentation,
    KReciprocal,
    QueryExpansion,
    parse_methods,
    plain_search,
    reranked,
)
from retrieval import oracle


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def gallery(n: int = 60, d: int = 5, c: int = 6, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    y = r.integers(0, c, n)
    return unit(r.normal(size=(c, d))[y] + 0.7 * r.normal(size=(n, d))), y


def ordered(s: np.ndarray, hidden: list[int] = ()) -> list[int]:
    return sorted((j for j in range(len(s)) if j not in hidden), key=lambda j: (-s[j], j))


def expanded(x: np.ndarray, g: np.ndarray, near: list[int], alpha: float) -> np.ndarray:
    return unit(x + sum(max(0.0, float(x @ g[j])) ** alpha * g[j] for j in near))


@pytest.mark.parametrize(("k", "alpha"), [(1, 0.0), (3, 0.0), (4, 3.0), (100, 2.0)])
def test_query_expansion(k: int, alpha: float) -> None:
    (g, _), (x, _) = gallery(), gallery(7, seed=1)
    found = reranked(torch.from_numpy(g), [QueryExpansion(k, alpha)])(
        torch.from_numpy(x), 10, [[3], [], [], [], [], [], []], None
    )
    for i, one in enumerate(x):
        hidden = [3] if i == 0 else []
        moved = expanded(one, g, ordered(g @ one, hidden)[:k], alpha)
        assert found[i].tolist() == ordered(g @ moved, hidden)[:10]


def test_database_augmentation_then_query_expansion() -> None:
    (g, _), (x, _) = gallery(), gallery(7, seed=1)
    k, alpha = 3, 2.0
    moved = [expanded(one, g, ordered(g @ one, [i])[:k], alpha) for i, one in enumerate(g)]
    after = np.stack(moved)
    both = [DatabaseAugmentation(k, alpha), QueryExpansion(2, 0.0)]
    x_, none = torch.from_numpy(x), [[]] * len(x)
    alone = reranked(torch.from_numpy(g), both[:1])(x_, 10, none, None)
    found = reranked(torch.from_numpy(g), both)(x_, 10, none, None)
    for i, one in enumerate(x):
        assert alone[i].tolist() == ordered(after @ one)[:10]
        asked = expanded(one, after, ordered(after @ one)[:2], 0.0)
        assert found[i].tolist() == ordered(after @ asked)[:10]


def jaccard(a: dict, b: dict) -> float:
    items = set(a) | set(b)
    least = sum(min(a.get(j, 0.0), b.get(j, 0.0)) for j in items)
    return 1 - least / sum(max(a.get(j, 0.0), b.get(j, 0.0)) for j in items)


class Sets:
    """k-reciprocal encoding with sets and dictionaries; items are numbers, a query is "q"."""

    def __init__(self, g: np.ndarray, k1: int, k2: int) -> None:
        self.S, self.k1, self.k2 = g @ g.T, k1, k2
        n = len(g)
        self.near = [ordered(self.S[i], [i]) for i in range(n)]
        self.star = [self.starred(i, self.R(i, k1)) for i in range(n)]
        self.V = [self.encoded(i, self.star[i], self.S[i]) for i in range(n)]
        self.mean = [self.averaged(self.V[i], self.near[i]) for i in range(n)]

    def N(self, p: int, k: int) -> set:
        return {p, *self.near[p][:k]}

    def R(self, p: int, k: int) -> set:
        return {g for g in self.N(p, k) if p in self.N(g, k)}

    def starred(self, p, R: set) -> set:
        made = set(R)
        for g in R - {"q"}:
            half = self.R(g, round(self.k1 / 2))
            if len(R & half) >= 2 / 3 * len(half):
                made |= half
        return made

    def encoded(self, p, star: set, s: np.ndarray) -> dict:
        made = {g: 1.0 if g == p else float(np.exp(s[g] - 1)) for g in star}
        return {g: value / sum(made.values()) for g, value in made.items()}

    def averaged(self, V: dict, near: list[int]) -> dict:
        made = dict.fromkeys(V, 0.0)
        group = [V, *(self.V[g] for g in near[: self.k2 - 1])]
        for one in group:
            for g, value in one.items():
                made[g] = made.get(g, 0.0) + value / len(group)
        return made

    def query(self, s: np.ndarray) -> dict:
        """The averaged encoding of a query that is no item, by its similarities."""
        near = ordered(s)

        def neighbors(g: int, k: int) -> bool:  # is the query among the k nearest of g?
            return sum(self.S[g, j] > s[g] for j in range(len(s)) if j != g) < k

        R = {"q", *(g for g in near[: self.k1] if neighbors(g, self.k1))}
        return self.averaged(self.encoded("q", self.starred("q", R), s), near)


@pytest.mark.parametrize(("k1", "k2", "weight"), [(10, 4, 0.3), (6, 1, 0.0), (15, 6, 0.8)])
def test_k_reciprocal_within_a_set(k1: int, k2: int, weight: float) -> None:
    g, _ = gallery()
    n, sets = len(g), Sets(g, k1, k2)
    search = reranked(torch.from_numpy(g), [KReciprocal(k1, k2, weight)])
    found = search(torch.from_numpy(g), n - 1, [[i] for i in range(n)], None)
    for i in range(n):
        d = [(1 - weight) * jaccard(sets.mean[i], sets.mean[j]) + weight * (1 - sets.S[i, j])
             for j in range(n)]  # fmt: skip
        got = found[i].tolist()
        assert sorted(got) == [j for j in range(n) if j != i]
        np.testing.assert_allclose([d[j] for j in got], sorted(d[:i] + d[i + 1 :]), atol=1e-9)


@pytest.mark.parametrize("k", [5, 60])
def test_k_reciprocal_of_other_queries(k: int) -> None:
    (g, _), (x, _) = gallery(), gallery(8, seed=1)
    sets = Sets(g, 10, 4)
    found = reranked(torch.from_numpy(g), "k_reciprocal:k1=10,k2=4,weight=0.3")(
        torch.from_numpy(x), k, [[]] * len(x), None
    )
    for i, one in enumerate(x):
        V = sets.query(g @ one)
        d = [0.7 * jaccard(V, sets.mean[j]) + 0.3 * (1 - g[j] @ one) for j in range(len(g))]
        np.testing.assert_allclose([d[j] for j in found[i]], sorted(d)[:k], atol=1e-9)


@pytest.mark.parametrize("method", ["query_expansion", "database", "k_reciprocal"])
def test_a_search_among_some_items(method: str) -> None:
    g, y = (torch.from_numpy(each) for each in gallery())
    some = (y < 2).nonzero().squeeze(1).numpy()
    found = reranked(g, method)(g[:3], len(some), [[0], [], []], some)
    everything = reranked(g, method)(g[:3], len(g), [[0], [], []], None)
    for got, want in zip(found.tolist(), everything.tolist(), strict=True):
        kept = [j for j in want if j in set(some.tolist())]
        assert [j for j in got if j >= 0] == kept


@pytest.mark.parametrize("method", ["query_expansion", "database", "k_reciprocal"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_tiny_galleries(method: str, n: int) -> None:
    g = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    found = reranked(g, method)(torch.randn(2, 4), n, [[], []], None)
    assert all(sorted(row) == list(range(n)) for row in found.tolist())


@pytest.mark.parametrize("with_gallery", [False, True])
def test_without_a_method_metrics_are_unchanged(with_gallery: bool) -> None:
    x, y = gallery(80, c=9)
    g, gy = gallery(50, c=8, seed=2) if with_gallery else (None, None)
    usual = evaluate(x, y, gallery=g, gallery_labels=gy)
    assert evaluate(x, y, gallery=g, gallery_labels=gy, rerank=()) == pytest.approx(usual)


def test_metrics_of_a_re_ranked_list() -> None:
    x, y = gallery(60)
    made = evaluate(x, y, ks=(1, 3), rerank=[QueryExpansion(3, 1.0)])
    moved = np.stack([expanded(a, x, ordered(x @ a, [i])[:3], 1.0) for i, a in enumerate(x)])
    S = oracle.similarities(moved, x)
    first = [[y[j] == y[i] for j in ordered(S[i], [i])].index(True) for i in range(len(x))]
    assert made["recall@1"] == pytest.approx(np.mean([rank < 1 for rank in first]))
    assert made["recall@3"] == pytest.approx(np.mean([rank < 3 for rank in first]))


def test_excluded_items_are_ignored() -> None:
    x, y = gallery(40)
    within = evaluate(x, y)
    same = evaluate(x, y, gallery=x, gallery_labels=y, exclude=[[i] for i in range(len(x))])
    assert same == pytest.approx(within)


@pytest.mark.parametrize("text", ["nothing", "query_expansion:q=1", "k_reciprocal:k1=x",
                                  "k_reciprocal:weight=2", "database:k=0", ""])  # fmt: skip
def test_invalid_method_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"re-ranking|QueryExpansion|k1|weight|k must"):
        parse_methods(text)


def test_parse_methods() -> None:
    assert parse_methods("database:k=2+query_expansion:alpha=0") == (
        DatabaseAugmentation(k=2),
        QueryExpansion(alpha=0.0),
    )


def test_plain_search_is_exact() -> None:
    g, _ = gallery()
    found = plain_search(torch.from_numpy(g))(torch.from_numpy(g[:3]), 5, [[0], [1], [2]], None)
    assert [row.tolist() for row in found] == [ordered(g @ g[i], [i])[:5] for i in range(3)]
