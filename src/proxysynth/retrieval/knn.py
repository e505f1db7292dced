"""Exact k nearest neighbors by cosine similarity, with the gallery read in blocks.

A matrix product proposes candidates: all that its rounding error leaves a chance. Cosines in
float64, each a function of its two vectors alone, decide among them; so neither the block size nor
the number of queries that share a product changes a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from proxysynth.retrieval.similarity import (
    Array,
    as_embeddings,
    as_matrix,
    check_dimensions,
    check_size,
    compute_type,
    dots,
    is_integer,
    nonzero,
    summation_error,
    unit,
)

ROWS = 1024
"""Queries that share a product, at most."""

CELLS = 2**20
"""Similarities, and numbers of the gallery, held at once: about what stays in the cache."""

Exclude = Tensor | Sequence[int | Sequence[int] | None]


class Neighbors(NamedTuple):
    """The k nearest neighbors of each of n queries, nearest first.

    Where fewer than k rows could be found, the rest has similarity -inf and index -1.

    Attributes:
        similarities: (n, k) float64 cosines, descending.
        indices: (n, k) int64 rows of the gallery.
    """

    similarities: Tensor
    indices: Tensor


def nearest(
    queries: Array,
    gallery: Array,
    k: int,
    *,
    exclude: Exclude | None = None,
    among: Array | None = None,
    block: int | None = None,
) -> Neighbors:
    """The k rows of the gallery most similar to each query; ties go to the lower index.

    The gallery is read once, block by block, and neither copied as a whole nor changed, so it may
    be memory-mapped and of any floating-point type. Its rows need not be normalized. Rows with NaN
    or infinity are never found.

    Args:
        queries: (n, d).
        gallery: (N, d).
        k: an integer from 1 to N.
        exclude: for each query, the gallery indices it must not find: (n,) integers, negative for
            none, or a sequence with an index, None or several indices for each query. For the
            neighbors of a set within itself: `torch.arange(n)`.
        among: the only gallery indices to consider, ascending. Default: all.
        block: gallery rows per block; affects speed and memory only.
    """
    x, g = as_embeddings(queries, "queries"), as_matrix(gallery, "gallery")
    check_dimensions(x, g, "queries")
    if not is_integer(k) or not 1 <= k <= len(g):
        raise ValueError(f"k must be an integer from 1 to {len(g)}, the gallery's size, got {k!r}")
    device = x.device
    x = x.to(compute_type(x, g))
    exact = unit(x.to(torch.float64, copy=True))
    x = exact.to(x.dtype)
    numbers = None if among is None else torch.as_tensor(among, device=device)
    n, N, d = len(x), len(g) if numbers is None else len(numbers), x.shape[1]
    hidden = _hidden(exclude, n, numbers, device)
    height = min(n, ROWS, max(1, CELLS // (4 * k)))
    # Much wider than k, so that few of a block are among its own k nearest.
    width = check_size(block, max(4 * k, CELLS // max(height, d)), "block")

    best = Neighbors(
        torch.full((n, k), -torch.inf, dtype=torch.float64, device=device),
        torch.full((n, k), -1, dtype=torch.int64, device=device),
    )
    for low in range(0, N, width):
        if numbers is None:
            here = torch.arange(low, min(low + width, N), device=device)
            part = g[low : low + width].to(device, x.dtype)
        else:
            here = numbers[low : low + width]
            part = g[here.to(g.device)].to(device, x.dtype)
        part, scale = _scaled(part)
        row, column = (each[slice(*hidden.span(low, low + len(part)))] for each in hidden.pairs)
        for at in range(0, n, height):
            rows = slice(at, min(at + height, n))
            S = _product(x[rows], part).mul_(scale)
            inside = (row >= rows.start) & (row < rows.stop)
            S[row[inside] - at, column[inside] - low] = -torch.inf
            S.masked_fill_(S.isnan(), -torch.inf)
            _merge(best, rows, S, exact, part, here)
    return best


def top(queries: Tensor, gallery: Tensor, row: Tensor, column: Tensor, k: int) -> Neighbors:
    """The k nearest of candidate pairs (queries[row], gallery[column]), by cosines in float64.

    Args:
        queries: (n, d).
        gallery: (N, d) of any floating-point type; may be memory-mapped.
        row, column: (p,) with `row` ascending, and `column` ascending within a row.
    """
    n = len(queries)
    best = Neighbors(
        torch.full((n, k), -torch.inf, dtype=torch.float64, device=queries.device),
        torch.full((n, k), -1, dtype=torch.int64, device=queries.device),
    )
    exact = unit(queries.to(torch.float64, copy=True))
    s = cosines(exact, gallery, row, column)
    finite = s.isfinite()
    _insert(best, torch.arange(n, device=row.device), row[finite], s[finite], column[finite])
    return best


def _product(x: Tensor, part: Tensor) -> Tensor:
    if len(x) > 8:
        return x @ part.T
    return (part @ x.T).T.contiguous()  # much faster for few queries


def _scaled(part: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, and what their dot products with unit vectors are to be multiplied by.

    NaN marks rows that are not finite; rows of zeros have similarity 0 to everything.
    """
    length = torch.linalg.vector_norm(part, dim=1)
    info = torch.finfo(part.dtype)
    ordinary = (length > info.tiny**0.25) & (length < info.max**0.25)
    if bool(ordinary.all()):
        return part, length.reciprocal_()
    finite = part.isfinite().all(1)
    part = unit(part.where(finite[:, None], 0).clone())
    return part, torch.ones_like(length).masked_fill_(~finite, torch.nan)


def _merge(
    best: Neighbors, rows: slice, S: Tensor, exact: Tensor, part: Tensor, here: Tensor
) -> None:
    """Insert those of a block that are nearer than the best so far.

    Args:
        best: so far, of lower gallery indices; changed in place.
        rows: the queries of S.
        S: (b, w) similarities with rounding errors; -inf for what must not be found.
        exact: (n, d) the queries in float64.
        part: (w, d) the gallery's rows, with the indices `here`.
    """
    worst = best.similarities[rows, -1]
    error = 2 * summation_error(part.shape[1], part.dtype)
    promising = (S.amax(1) >= worst - error).nonzero().squeeze(1)
    if not len(promising):
        return
    S = S[promising]
    low = S.topk(min(best.indices.shape[1], S.shape[1]), dim=1).values[:, -1] - 2 * error
    low = low.double().maximum(worst[promising] - error)
    # Rounded down, so that a comparison in the type of S loses nothing.
    low = low.to(S.dtype).nextafter(S.new_tensor(-torch.inf)).clamp_(min=-4)
    row, column = nonzero(S.ge(low[:, None]))
    at = promising + rows.start
    _insert(best, at, row, cosines(exact[at], part, row, column), here[column])


def cosines(exact: Tensor, gallery: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(p,) float64 cosines of unit rows and rows of the gallery, with `row` ascending."""
    used, slot = torch.unique(column, return_inverse=True)
    near = unit(gallery[used.to(gallery.device)].to(exact.device, torch.float64, copy=True))
    return dots(exact, near, row, slot).clamp_(-1, 1)


def _insert(best: Neighbors, at: Tensor, row: Tensor, s: Tensor, index: Tensor) -> None:
    """Insert pairs of query at[row] and gallery `index`, all beyond those in `best`."""
    k = best.indices.shape[1]
    found = torch.bincount(row, minlength=len(at))
    place = k + torch.arange(len(row), device=row.device) - (found.cumsum(0) - found)[row]
    both = best.similarities.new_full((len(at), k + int(found.max())), -torch.inf)
    which = best.indices.new_full(both.shape, -1)
    both[:, :k], which[:, :k] = best.similarities[at], best.indices[at]
    both[row, place], which[row, place] = s, index
    both, order = both.sort(dim=1, descending=True, stable=True)
    best.similarities[at] = both[:, :k]
    best.indices[at] = which.gather(1, order[:, :k])


class _Hidden(NamedTuple):
    """Pairs of query and gallery position that must not be found, by ascending position."""

    pairs: tuple[Tensor, Tensor]

    def span(self, low: int, high: int) -> tuple[int, int]:
        bounds = torch.tensor([low, high], device=self.pairs[1].device)
        start, stop = torch.searchsorted(self.pairs[1], bounds).tolist()
        return start, stop


def _hidden(
    exclude: Exclude | None, n: int, numbers: Tensor | None, device: torch.device
) -> _Hidden:
    """`exclude` as pairs; positions are indices, or places in the ascending `numbers`."""
    if exclude is None:
        none = torch.empty(0, dtype=torch.int64, device=device)
        return _Hidden((none, none))
    if len(exclude) != n:
        raise ValueError(f"exclude must have one entry per query, {n}, got {len(exclude)}")
    if isinstance(exclude, Tensor | np.ndarray):
        column = torch.as_tensor(exclude, device=device).long()
        row = torch.arange(n, device=device)
    else:
        several = [
            () if one is None else tuple(one) if isinstance(one, Sequence) else (one,)
            for one in exclude
        ]
        row = torch.tensor([i for i, each in enumerate(several) for _ in each], dtype=torch.int64)
        column = torch.tensor([j for each in several for j in each], dtype=torch.int64)
        row, column = row.to(device), column.to(device)
    if numbers is not None:
        place = torch.searchsorted(numbers, column)
        known = numbers[place.clamp(max=len(numbers) - 1)] == column
        column = place.where(known, -1)
    column, order = column.sort()
    return _Hidden((row[order], column))
