"""The k nearest of a gallery: exact, by cosine similarity, streamed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.inputs import (
    Array,
    as_block,
    as_embeddings,
    as_matrix,
    check_dimensions,
    check_finite,
    compute_type,
    unit,
)
from proxysynth.retrieval.shelf import up

ROWS = 16
"""Queries of a product come in multiples of this, gallery rows in multiples of STEP: no edge."""

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
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= most:
        raise ValueError(f"k must be a whole number from 1 to {most}, what there is, got {k!r}")

    x = x.to(compute_type(x, g))
    d = x.shape[1]
    height = min(-(-n // ROWS), max(1, CELLS // (64 * k)), 64) * ROWS
    # A block much wider than k, so that few of it are among its own k nearest.
    width = min(up(as_block(block, max(4 * k, CELLS // max(height, d)))), up(len(g)))
    padded = x.new_zeros(-(-n // height) * height, d)
    padded[:n] = x
    unit(padded)
    best = x.new_full((len(padded), k), -torch.inf)
    index = torch.full(best.shape, -1, dtype=torch.int64, device=x.device)
    part, S = x.new_empty(width, d), x.new_empty(height, width)
    for low in range(0, len(g), width):
        columns = min(width, len(g) - low)
        part[:columns] = g[low : low + columns]
        part[columns:] = 0
        check_finite(part, "gallery", low)
        unit(part)
        for at in range(0, n, height):
            rows = slice(at, at + height)
            torch.mm(padded[rows], part.T, out=S)
            S[:, columns:] = -torch.inf
            if exclude_self:
                S.diagonal(at - low).fill_(-torch.inf)  # query at + i is gallery row low + j
            _merge(best[rows], index[rows], S, low)
    return Neighbours(best[:n], index[:n])


def _merge(best: Tensor, index: Tensor, S: Tensor, low: int) -> None:
    """Put what is nearer of S, whose columns are the gallery from `low` on, among the best."""
    # A tie with the k-th changes nothing: what came earlier has the lower index.
    rows = (S.amax(1) > best[:, -1]).nonzero().squeeze(1)
    if not len(rows):
        return
    found, column = _top(S[rows], min(best.shape[1], S.shape[1]))
    both = torch.cat([best[rows], found], 1)
    which = torch.cat([index[rows], column + low], 1)
    both, order = both.sort(dim=1, descending=True, stable=True)
    k = best.shape[1]
    best[rows] = both[:, :k]
    index[rows] = which.gather(1, order[:, :k])


def _top(S: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest of each row, by ascending column; of ties, those of the lower columns."""
    value, column = S.topk(k, dim=1)
    # topk takes any of those that tie for the last place: look at such rows again.
    tied = (S.ge(value[:, -1:]).sum(1) > k).nonzero().squeeze(1)
    if len(tied):
        again = S[tied].sort(dim=1, descending=True, stable=True)
        value[tied], column[tied] = again.values[:, :k], again.indices[:, :k]
    column, order = column.sort(dim=1)
    return value.gather(1, order), column
