"""The k nearest of a gallery: exact, by cosine similarity, streamed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.dots import dots
from proxysynth.retrieval.flags import count, ones
from proxysynth.retrieval.inputs import (
    Array,
    as_block,
    as_embeddings,
    as_matrix,
    check_dimensions,
    check_finite,
    compute_type,
    is_whole,
    unit,
)
from proxysynth.retrieval.rounding import summing
from proxysynth.retrieval.shelf import up

ROWS = 1024
"""Queries of a block, at most."""

CELLS = 2**20
"""Similarities, and numbers of the gallery, held at once: about what stays in the cache."""


@dataclass(frozen=True)
class Neighbours:
    """The k nearest of each of n queries, the nearest first.

    Attributes:
        similarity: (n, k) cosines, descending.
        index: (n, k) rows of the gallery.
    """

    similarity: Tensor
    index: Tensor


def nearest(
    query: Array,
    gallery: Array,
    k: int,
    *,
    exclude_self: bool = False,
    block: int | None = None,
) -> Neighbours:
    """The k rows of the gallery that are most similar to each query; ties by the lower index.

    The gallery is read once, a block at a time, and is neither copied nor changed, so one query
    against millions takes little memory beside them.

    Args:
        query: (n, d).
        gallery: (N, d).
        k: from 1 to N, or to N - 1 with `exclude_self`.
        exclude_self: query i is row i of the gallery and is left out, whatever its duplicates.
        block: rows of the gallery taken at a time; only speed and memory depend on it.
    """
    x, g = as_embeddings(query, "query"), as_matrix(gallery, "gallery")
    check_dimensions(x, g, "query")
    n, most = len(x), len(g) - int(exclude_self)
    if exclude_self and n > len(g):
        raise ValueError(
            f"exclude_self needs query i to be row i of the gallery, but there are {n} queries "
            f"and {len(g)} rows: leave it out"
        )
    if not is_whole(k) or not 1 <= k <= most:
        raise ValueError(f"k must be a whole number from 1 to {most}, what there is, got {k!r}")

    x = unit(x.to(compute_type(x, g), copy=True))
    d = x.shape[1]
    height = min(n, ROWS, max(1, CELLS // (4 * k)))
    # A block much wider than k, so that few of it are among its own k nearest.
    width = min(up(as_block(block, max(4 * k, CELLS // max(height, d)))), up(len(g)))
    best = x.new_full((n, k), -torch.inf)
    index = torch.full((n, k), -1, dtype=torch.int64, device=x.device)
    part, buffer = x.new_empty(width, d), x.new_empty(height, width)
    for low in range(0, len(g), width):
        columns = min(width, len(g) - low)
        part[:columns] = g[low : low + columns]
        part[columns:] = 0
        check_finite(part, "gallery", low)
        unit(part)
        for at in range(0, n, height):
            rows = slice(at, min(at + height, n))
            S = torch.mm(x[rows], part.T, out=buffer[: rows.stop - at])
            S[:, columns:] = -torch.inf
            if exclude_self:
                S.diagonal(at - low).fill_(-torch.inf)  # query at + i is gallery row low + j
            _merge(best[rows], index[rows], S, low, x[rows], part)
    return Neighbours(best, index)


def _merge(best: Tensor, index: Tensor, S: Tensor, low: int, x: Tensor, y: Tensor) -> None:
    """Put what is nearer of S among the best so far.

    Args:
        best, index: (b, k) the best so far, of lower gallery indices, to be changed.
        S: (b, w) similarities, rounded as a product does; -inf for what is not to be found.
        low: the gallery index of the first column.
        x, y: (b, d) and (w, d) the rows, whose exact similarities decide.
    """
    k, off = best.shape[1], 2 * summing(x.shape[1], x.dtype)
    rows = (S.amax(1) >= best[:, -1] - off).nonzero().squeeze(1)
    if not len(rows):
        return
    S = S[rows]
    least = S.topk(min(k, S.shape[1]), dim=1).values[:, -1] - 2 * off
    near = S.ge(least.maximum(best[rows, -1] - off)[:, None]) & S.isfinite()
    row, column = ones(near, count(near))
    found = torch.bincount(row, minlength=len(rows))
    # Side by side with the best: they come first, and ties keep their order.
    at = k + torch.arange(len(row), device=row.device) - (found.cumsum(0) - found)[row]
    both = best.new_full((len(rows), k + int(found.max())), -torch.inf)
    which = index.new_full(both.shape, -1)
    both[:, :k], which[:, :k] = best[rows], index[rows]
    both[row, at], which[row, at] = dots(x[rows], y, row, column), column + low
    both, order = both.sort(dim=1, descending=True, stable=True)
    best[rows] = both[:, :k]
    index[rows] = which.gather(1, order[:, :k])
