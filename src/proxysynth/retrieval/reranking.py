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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.knn import dots, nearest, unit
from proxysynth.values import check_integers, look_up, parse_field

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Excluded = Sequence[Sequence[int]]
Among = NDArray[np.int64] | None
Search = Callable[[Tensor, int, Excluded, Among], Tensor]
"""(n, k) gallery indices, the nearest first, of queries (n, d); -1 where there are fewer.

Called with the queries, k, for each query the indices that it must not find, and the only indices
to consider. A query that must not find one item is taken to be that item.
"""

OVERLAP = 2 / 3
"""The share of its own neighborhood that a neighbor must have in common to add the rest of it."""

BLOCK = 1024
"""Items of the gallery whose neighbors are searched at once."""


@dataclass(frozen=True)
class QueryExpansion:
    """Search with the weighted mean of the query and its nearest neighbors.

    Args:
        k: neighbors that are added.
        alpha: exponent of their similarity, their weight; 0 weighs all alike.
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
class DatabaseAugmentation:
    """Replace every item of the gallery by the weighted mean of itself and its nearest neighbors.

    Args:
        k, alpha: as in `QueryExpansion`.
    """

    k: int = 5
    alpha: float = 3.0

    def __post_init__(self) -> None:
        check_integers(self, k=1)
        _check_number(self, "alpha")

    def prepare(self, rows: Tensor, search: Search) -> tuple[Tensor, Search]:
        made = torch.empty_like(rows, dtype=torch.float32)
        k = min(self.k, len(rows))
        for at in range(0, len(rows), BLOCK):
            x = rows[at : at + BLOCK]
            found = search(x, k, _themselves(at, len(rows)), None)
            made[at : at + BLOCK] = expand(x, rows, found, self.alpha)
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
        values: dict[str, Any] = {}
        for setting in filter(None, settings.split(",")):
            key, _, value = setting.partition("=")
            values[key] = parse_field(kind, key, value, {})
        made.append(kind(**values))
    return tuple(made)


def reranked(rows: Tensor, methods: str | Sequence[Method], search: Search | None = None) -> Search:
    """A search of the gallery with these methods, prepared once.

    Args:
        rows: (N, d) the gallery.
        methods: applied in this order; a text is parsed by `parse_methods`.
        search: plain search of the gallery; default: exact.
    """
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
    x = unit(x.to(torch.float32, copy=True))
    made = x.clone()
    for column in found.T:  # one neighbor of every query at a time: (n, d), not (n, k, d)
        near = unit(rows[column.clamp(min=0)].to(torch.float32, copy=True))
        weight = (x * near).sum(1).clamp_(min=0).pow_(alpha)
        made += near * weight.where(column >= 0, 0)[:, None]
    return unit(made)


class _Neighborhoods:
    """The neighborhoods of a gallery, and a search by their overlap with a query's."""

    def __init__(self, method: KReciprocal, rows: Tensor, search: Search) -> None:
        from scipy.sparse import csr_array

        n = len(rows)
        self.method, self.plain = method, search
        self.rows = unit(rows.to(torch.float64, copy=True))
        # At least one neighbor, and no more than there are others.
        self.k1 = max(1, min(method.k1, n - 1))
        self.k2 = min(method.k2, n)
        most = max(self.k1, self.k2 - 1)
        starts = range(0, n, BLOCK)
        parts = [search(rows[i : i + BLOCK], most, _themselves(i, n), None) for i in starts]
        near = torch.cat(parts)[:, :most]
        found = near >= 0
        near = torch.where(found, near, torch.arange(n)[:, None])
        s = self._similarities(torch.arange(n).repeat_interleave(most), near.reshape(-1))
        s = s.view(n, most).masked_fill_(~found, -torch.inf)
        self.reach = s[:, self.k1 - 1].numpy()  # the similarity of the last neighbor

        def lists(k: int) -> csr_array:
            """N(p, k) as rows of ones."""
            columns = torch.cat([torch.arange(n)[:, None], near[:, :k]], 1).numpy()
            start = np.arange(n + 1) * (k + 1)
            made = csr_array((np.ones(columns.size), columns.reshape(-1), start), shape=(n, n))
            made.sum_duplicates()
            made.data[:] = 1
            return made

        def reciprocal(k: int) -> csr_array:
            made = lists(k)
            return csr_array(made * made.T)

        whole, self.halves = reciprocal(self.k1), reciprocal(max(1, round(self.k1 / 2)))
        self.sizes = self.halves.sum(axis=1)
        shared = csr_array((whole @ self.halves.T) * whole).tocoo()
        kept = shared.data >= OVERLAP * self.sizes[shared.col]
        row, column = shared.row[kept], shared.col[kept]
        added = csr_array((np.ones(len(row)), (row, column)), shape=(n, n)) @ self.halves
        star = csr_array(whole + added)
        star.sort_indices()
        row = np.repeat(np.arange(n), np.diff(star.indptr))
        s = self._similarities(
            torch.from_numpy(row), torch.from_numpy(star.indices.astype(np.int64))
        )
        star.data = np.exp(s.numpy() - 1)
        star.data /= np.add.reduceat(star.data, star.indptr[:-1])[row]
        self.single = star
        mean = csr_array(lists(self.k2 - 1) @ star) if self.k2 > 1 else star.copy()
        mean.data /= np.repeat(mean.sum(axis=1), np.diff(mean.indptr))
        self.columns = mean.tocsc()

    def _similarities(self, row: Tensor, column: Tensor) -> Tensor:
        return dots(self.rows, self.rows, row, column)

    def search(self, x: Tensor, k: int, exclude: Excluded, among: Among) -> Tensor:
        wide = max(k, self.k1, self.k2)
        near = self.plain(x, wide, exclude, None)
        filtered = near if among is None else self.plain(x, k, exclude, among)
        exact = unit(x.to(torch.float64, copy=True))
        made = torch.full((len(x), k), -1, dtype=torch.int64)
        for query in range(len(x)):
            own = exclude[query][0] if len(exclude[query]) == 1 else None
            overlap = self._overlap(exact[query], _numbers(near[query]), own)
            overlap[list(exclude[query])] = 0
            reached = np.flatnonzero(overlap)
            if among is not None:
                reached = np.intersect1d(reached, among)
            # What overlaps nothing is ordered by similarity alone, so k of it are enough.
            chosen = np.union1d(reached, _numbers(filtered[query])[:k])
            m = overlap[chosen]
            s = (self.rows[torch.from_numpy(chosen)] @ exact[query]).numpy()
            weight = self.method.weight
            distance = (1 - weight) * (1 - m / (2 - m)) + weight * (1 - s)
            best = chosen[np.argsort(distance, kind="stable")[:k]]
            made[query, : len(best)] = torch.from_numpy(best)
        return made

    def _overlap(self, x: Tensor, near: NDArray[np.int64], own: int | None) -> NDArray[np.float64]:
        """(N,) sum_j min(V_x[j], V_g[j]) for every g; `own` is the item that x is, if any."""
        n = len(self.rows)
        s = (self.rows[torch.from_numpy(near)] @ x).numpy()
        mine = near[: self.k1]
        # A query that is an item may be the last neighbor itself, up to rounding.
        mine = mine[s[: self.k1] >= self.reach[mine] - 1e-12]
        inside = np.zeros(n)
        inside[mine] = 1
        if own is not None:
            inside[own] = 1
        star = inside.copy()
        for g in mine.tolist():
            half = self.halves.indices[self.halves.indptr[g] : self.halves.indptr[g + 1]]
            if inside[half].sum() >= OVERLAP * len(half):
                star[half] = 1
        members = np.flatnonzero(star)
        value = np.zeros(n)
        value[members] = np.exp((self.rows[torch.from_numpy(members)] @ x).numpy() - 1)
        if own is not None:
            value[own] = 1.0
        value /= value.sum() + (own is None)  # x itself is no item
        others = near[: self.k2 - 1] if self.k2 > 1 else near[:0]
        if len(others):
            value += self.single[others].sum(axis=0)
        value /= 1 + len(others)
        used = np.flatnonzero(value)
        part = self.columns[:, used]
        least = np.minimum(part.data, np.repeat(value[used], np.diff(part.indptr)))
        return np.bincount(part.indices, least, minlength=n).astype(np.float64)


def _themselves(at: int, n: int) -> list[list[int]]:
    return [[i] for i in range(at, min(at + BLOCK, n))]


def _numbers(indices: Tensor) -> NDArray[np.int64]:
    return np.asarray(indices[indices >= 0].numpy())


def _check_number(method: object, name: str, most: float = math.inf) -> None:
    value, kind = getattr(method, name), type(method).__name__
    if not isinstance(value, (int, float)) or not (math.isfinite(value) and 0 <= value <= most):
        raise ValueError(f"{kind}: {name} must be finite and in [0, {most:g}], got {value!r}")
