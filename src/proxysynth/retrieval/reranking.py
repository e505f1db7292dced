"""Re-ranking: neighbors of the neighbors correct the order in which the gallery is returned.

Query expansion: the query moves toward its nearest neighbors (Chum et al. 2007, with alpha = 0;
Radenovic, Tolias and Chum 2018). Database-side augmentation does the same for every item of the
gallery, once (Turcot and Lowe 2009).

    x' = x + sum_i=1..k  max(0, s_i)^alpha g_i

k-reciprocal encoding: items whose neighborhoods overlap come first (Zhong et al. 2017).

    N(p, k)   p and its k nearest
    R(p, k)   those g of N(p, k) with p in N(g, k)
    R*(p)     R(p, k1), and R(g, k1/2) of each g in it that shares 2/3 or more of R(g, k1/2)
    V_p[g]    exp(s(p, g) - 1) on R*(p), of sum 1; then the mean over N(p, k2 - 1)
    d(p, g)   (1 - weight) (1 - m / (2 - m)) + weight (1 - s(p, g))
              with m = sum_j min(V_p[j], V_g[j])

The neighborhoods of the gallery are computed once and do not depend on the query.

A method is a value. `reranked` prepares it for a gallery and returns a search of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.knn import Among, Excluded, dots, nearest, normalize_rows_
from proxysynth.values import check_integers, look_up, parse_field

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Search = Callable[[Tensor, int, Excluded, Among], Tensor]
"""(n, k) gallery indices, the nearest first, of queries (n, d); -1 where there are fewer.

Called with the queries, k, for each query the indices that it must not find, and the only indices
to consider. A query that must not find one item is taken to be that item.
"""

OVERLAP = 2 / 3  # share of its neighborhood that a neighbor must have in common to add the rest
BLOCK = 1024  # items of the gallery whose neighbors are searched at once


@dataclass(frozen=True)
class QueryExpansion:
    """Search with the weighted mean of the query and its nearest neighbors.

    Args:
        k: neighbors that are added.
        alpha: exponent of their similarity, which is their weight; 0 weights all equally.
    """

    k: int = 5
    alpha: float = 3.0

    def __post_init__(self) -> None:
        check_integers(self, k=1)
        _check_number(self, "alpha")

    def prepare(self, rows: Tensor, search: Search) -> tuple[Tensor, Search]:
        def expanded(x: Tensor, k: int, exclude: Excluded, among: Among) -> Tensor:
            found = search(x, min(self.k, len(rows)), exclude, None)
            return search(expand(x, rows, found, self.alpha), k, exclude, among)

        return rows, expanded


@dataclass(frozen=True)
class DatabaseAugmentation(QueryExpansion):
    """Replace every item of the gallery by the weighted mean of itself and its nearest neighbors;
    `k` and `alpha` are those of `QueryExpansion`."""

    def prepare(self, rows: Tensor, search: Search) -> tuple[Tensor, Search]:
        made = torch.empty_like(rows, dtype=torch.float32)
        for part, found in _neighbors(rows, min(self.k, len(rows)), search):
            made[part] = expand(rows[part], rows, found, self.alpha)
        return made, plain_search(made)


@dataclass(frozen=True)
class KReciprocal:
    """Order by the overlap of neighborhoods, and by similarity.

    Args:
        k1: nearest neighbors that make a neighborhood.
        k2: nearest items, the item itself included, over which neighborhoods are averaged.
        weight: of the similarity against that of the overlap.
    """

    k1: int = 20
    k2: int = 6
    weight: float = 0.3

    def __post_init__(self) -> None:
        check_integers(self, k1=1, k2=1)
        _check_number(self, "weight", 1)

    def prepare(self, rows: Tensor, search: Search) -> tuple[Tensor, Search]:
        return rows, _Neighborhoods(self, rows, search).search


Method = QueryExpansion | DatabaseAugmentation | KReciprocal

METHODS: dict[str, type[Method]] = {
    "query_expansion": QueryExpansion,
    "database": DatabaseAugmentation,
    "k_reciprocal": KReciprocal,
}


def parse_methods(text: str) -> tuple[Method, ...]:
    """The methods of a text: "query_expansion", "k_reciprocal:k1=10,k2=3", or several with "+"."""
    made = []
    for part in text.split("+"):
        name, _, settings = part.strip().partition(":")
        kind = look_up(name, METHODS, "re-ranking")
        pairs = [setting.partition("=") for setting in settings.split(",") if setting]
        made.append(kind(**{key: parse_field(kind, key, value, {}) for key, _, value in pairs}))
    return tuple(made)


def reranked(rows: Tensor, methods: str | Sequence[Method], search: Search | None = None) -> Search:
    """A search of the gallery (N, d) with these methods, in this order, prepared once; a text is
    parsed by `parse_methods`. `search` is a plain search of the gallery, by default exact."""
    search = search or plain_search(rows)
    for method in parse_methods(methods) if isinstance(methods, str) else methods:
        rows, search = method.prepare(rows, search)
    return search


def plain_search(rows: Tensor) -> Search:
    """Exact search by cosine similarity."""

    def search(x: Tensor, k: int, exclude: Excluded, among: Among) -> Tensor:
        return nearest(x, rows, min(k, len(rows)), exclude=exclude, among=among).indices

    return search


def expand(x: Tensor, rows: Tensor, found: Tensor, alpha: float) -> Tensor:
    """Queries (n, d) plus their neighbors `found` (n, k), weighted by similarity^alpha."""
    x = normalize_rows_(x.to(torch.float32, copy=True))
    made = x.clone()
    for column in found.T:  # one neighbor of every query at a time: (n, d), not (n, k, d)
        near = normalize_rows_(rows[column.clamp(min=0)].to(torch.float32, copy=True))
        weight = (x * near).sum(1).clamp_(min=0).pow_(alpha)
        made += near * weight.where(column >= 0, 0)[:, None]
    return normalize_rows_(made)


class _Neighborhoods:
    """The neighborhoods of a gallery, and a search by their overlap with a query's."""

    def __init__(self, method: KReciprocal, rows: Tensor, search: Search) -> None:
        n = len(rows)
        self.method, self.plain = method, search
        self.rows = normalize_rows_(rows.to(torch.float64, copy=True))
        # At least one neighbor, and no more than there are others.
        self.k1, self.k2 = max(1, min(method.k1, n - 1)), min(method.k2, n)
        most = max(self.k1, self.k2 - 1)
        near = torch.cat([found for _, found in _neighbors(rows, most, search)]).numpy()
        self.reach = self._similarities(self.rows, near)[:, self.k1 - 1]  # of the last neighbor

        def reciprocal(k: int) -> csr_array:
            """R(p, k) but for p itself, as rows of ones."""
            lists = self._ones(near[:, :k])
            return (lists * lists.T).tocsr()

        itself = np.arange(n)
        self.halves = reciprocal(max(1, round(self.k1 / 2))) + self._ones(itself[:, None])
        self.single = self._encoded(self.rows, reciprocal(self.k1), itself)
        self.columns = self._averaged(self.single, near).tocsc()

    def search(self, x: Tensor, k: int, exclude: Excluded, among: Among) -> Tensor:
        near = self.plain(x, max(k, self.k1, self.k2), exclude, None).numpy()
        filtered = near if among is None else self.plain(x, k, exclude, among).numpy()
        exact = normalize_rows_(x.to(torch.float64, copy=True))
        own = np.array([each[0] if len(each) == 1 else -1 for each in exclude])
        mine = near[:, : self.k1]
        # A query that is an item may be the last neighbor itself, up to rounding.
        reciprocal = self._similarities(exact, mine) >= self.reach[mine] - 1e-12
        V = self._encoded(exact, self._ones(np.where(reciprocal, mine, -1)), own)
        V = self._averaged(V, near)
        made, weight = torch.full((len(x), k), -1, dtype=torch.int64), self.method.weight
        for query in range(len(x)):
            entries = slice(V.indptr[query], V.indptr[query + 1])
            part = self.columns[:, V.indices[entries]]
            least = np.minimum(part.data, np.repeat(V.data[entries], np.diff(part.indptr)))
            overlap = np.bincount(part.indices, least, minlength=len(self.rows))
            overlap[list(exclude[query])] = 0
            reached = np.flatnonzero(overlap)
            if among is not None:
                reached = np.intersect1d(reached, among)
            # Items without overlap are ordered by similarity alone, so k of them are enough.
            others = filtered[query, :k]
            chosen = np.union1d(reached, others[others >= 0])
            m = overlap[chosen]
            s = (self.rows[torch.from_numpy(chosen)] @ exact[query]).numpy()
            distance = (1 - weight) * (1 - m / (2 - m)) + weight * (1 - s)
            best = chosen[np.argsort(distance, kind="stable")[:k]]
            made[query, : len(best)] = torch.from_numpy(best)
        return made

    def _ones(self, near: NDArray[np.int64]) -> csr_array:
        """Lists of items as sparse rows of ones; negative numbers are none."""
        from scipy.sparse import csr_array

        at, place = np.nonzero(near >= 0)
        items = near[at, place]
        return csr_array((np.ones(len(at)), (at, items)), shape=(len(near), len(self.rows)))

    def _similarities(self, x: Tensor, near: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n, k) of the queries x (n, d) to their neighbors; -inf where there is none."""
        row = torch.arange(len(x)).repeat_interleave(near.shape[1])
        s = dots(x, self.rows, row, torch.from_numpy(near.clip(min=0).reshape(-1)))
        return np.where(near >= 0, s.view(near.shape).numpy(), -np.inf)

    def _encoded(self, x: Tensor, others: csr_array, own: NDArray[np.int64]) -> csr_array:
        """V before the mean, of queries x with these reciprocal neighbors and themselves.

        own: (n,) the item that each query is; -1 for none, and its own part of V is then dropped.
        """
        R = others + self._ones(own[:, None])
        shared = ((R @ self.halves.T) * others).tocoo()
        kept = shared.data >= OVERLAP * self.halves.sum(axis=1)[shared.col]
        shared.data = kept.astype(np.float64)
        star = (R + shared.tocsr() @ self.halves).tocsr()
        star.eliminate_zeros()
        star.sort_indices()
        row = np.repeat(np.arange(len(own)), np.diff(star.indptr))
        columns = star.indices.astype(np.int64)
        s = dots(x, self.rows, torch.from_numpy(row), torch.from_numpy(columns)).numpy()
        star.data = np.where(columns == own[row], 1.0, np.exp(s - 1))
        star.data /= (star.sum(axis=1) + (own < 0))[row]
        return star

    def _averaged(self, V: csr_array, near: NDArray[np.int64]) -> csr_array:
        """V, the mean over the query and its k2 - 1 nearest."""
        nearest = self._ones(near[:, : self.k2 - 1])
        made = (V + nearest @ self.single).tocsr()
        made.data /= np.repeat(1 + nearest.sum(axis=1), np.diff(made.indptr))
        return made


def _neighbors(rows: Tensor, k: int, search: Search) -> Iterator[tuple[slice, Tensor]]:
    """Blocks of the gallery, each with (b, k) the nearest others of its items."""
    for at in range(0, len(rows), BLOCK):
        end = min(at + BLOCK, len(rows))
        yield slice(at, end), search(rows[at:end], k, [[i] for i in range(at, end)], None)


def _check_number(method: object, name: str, most: float = math.inf) -> None:
    value, kind = getattr(method, name), type(method).__name__
    if not isinstance(value, (int, float)) or not (math.isfinite(value) and 0 <= value <= most):
        raise ValueError(f"{kind}: {name} must be finite and in [0, {most:g}], got {value!r}")
