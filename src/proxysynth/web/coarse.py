"""The rows of an index in few bits, held in memory: the first look of an exact search.

A search in float32 is as slow as memory: every row is read for every batch of queries. In eight
bits it is a quarter of that, and processors multiply bytes faster. How far such a similarity may
be off is known (`retrieval/similarity`), so few rows remain that may be among the nearest,

    s'(x, y) >= s'_k - 2 e          s'_k the k-th largest,  e the most that one may be off

and float64 decides among these. The answer is that of `Index.search_vectors`, number by number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.similarity import Rounded, error_bound, fast_types, rounded, unit
from proxysynth.search.search import Ranked, decide, nearest_rows

LARGEST = 2**28
"""Numbers of an index that is held; a larger one is searched in its file."""

OPEN = 1 / 16
"""The part of the rows that may be left open; with more, float32 is as fast."""


class Coarse:
    """Rows in few bits.

    Args:
        rows: (n, d) of unit length, nearly.
        held: the same in a shorter type.
    """

    def __init__(self, rows: Tensor, held: Rounded) -> None:
        self._rows = rows
        self._held = held

    def nearest(
        self,
        x: Tensor,
        k: int,
        among: NDArray[np.int64] | None = None,
        leave_out: Sequence[int | None] | None = None,
    ) -> list[Ranked]:
        """The k rows nearest to each query by cosine; see `search.search.nearest_rows`.

        Args:
            x: (q, d) queries of unit length.
            among: the only rows to look at, ascending.
            leave_out: for each query a row that it must not find, or None.
        """
        short = rounded(x, self._held.x.dtype)
        S = _product(short, self._held)
        e = error_bound(short.error, self._held.error) + 1.1 * short.grain
        numbers = None if among is None else torch.from_numpy(among)
        for query, row in enumerate(leave_out or ()):
            if row is not None:
                S[query, row] = -torch.inf
        if numbers is not None:
            S = S[:, numbers]
        width = S.shape[1]
        if not width:
            return [(np.empty(0, np.int64), np.empty(0)) for _ in x]
        low = S.topk(min(k, width), dim=1).values[:, -1:] - 2 * e
        near = (low <= S) & (-torch.inf < S)
        few = near.sum(1) <= max(4 * k, 1024, OPEN * width)
        found = []
        for query, one in enumerate(x):
            if few[query]:
                taken = near[query].nonzero().squeeze(1)
                taken = taken if numbers is None else numbers[taken]
                found.append(decide(one, self._rows, taken.numpy(), k))
            else:
                row = None if leave_out is None else leave_out[query]
                out = [[] if row is None else [row]]
                found += nearest_rows(one[None], self._rows, k, among=among, leave_out=out)
        return found


def coarse(rows: Tensor) -> Coarse | None:
    """The rows in the shortest type that pays here; None where none does, or they are too many."""
    if rows.numel() > LARGEST:
        return None
    dtype = fast_types(rows.device, rows.shape[1])[0]
    if dtype == torch.float32:
        return None
    held = rounded(unit(rows.clone()), dtype)
    # A damaged file may hold what is no number: nothing is known of such a row's error.
    return Coarse(rows, held) if bool(held.error.isfinite().all()) else None


def _product(x: Rounded, y: Rounded) -> Tensor:
    """(q, n) similarities, nearly."""
    if x.x.dtype == torch.int8:
        return torch._int_mm(x.x, y.x.T).float().mul_(x.unit * y.unit)
    return (x.x @ y.x.T).float()
