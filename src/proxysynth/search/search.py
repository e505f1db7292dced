"""The k nearest rows of an index: exact, the rows streamed from the file in blocks.

A matrix product finds the candidates in float32, a few more than asked for; float64 decides among
them. So a similarity does not depend on how many queries shared the product.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

QUERIES = 1024  # that share one product
CELLS = 1 << 22  # similarities held at once
SPARE = 16  # candidates beyond k: what float32 may have put in the wrong order

Ranked = tuple[NDArray[np.int64], NDArray[np.float64]]
"""Rows, the nearest first, and their cosines."""


def nearest_rows(
    x: Tensor,
    rows: Tensor,
    k: int,
    *,
    among: NDArray[np.int64] | None = None,
    leave_out: Sequence[Sequence[int]] | None = None,
) -> list[Ranked]:
    """The k rows nearest to each query by cosine; ties go to the lower row.

    Args:
        x: (q, d) queries of unit length.
        rows: (n, d) of unit length; may be mapped from a file, and is read block by block.
        among: the only rows to look at, ascending; all unless given.
        leave_out: for each query, rows that it must not find.
    """
    out: Sequence[Sequence[int]] = leave_out if leave_out is not None else [()] * len(x)
    found: list[Ranked] = []
    for at in range(0, len(x), QUERIES):
        cut = slice(at, at + QUERIES)
        candidates = _candidates(x[cut], rows, k, among, out[cut])
        found += [
            decide(one, rows, taken, k) for one, taken in zip(x[cut], candidates, strict=True)
        ]
    return found


def decide(query: Tensor, rows: Tensor, numbers: NDArray[np.int64], k: int) -> Ranked:
    """The k best of these rows, by cosines in float64."""
    near, one = rows[torch.from_numpy(numbers)].double(), query.double()
    lengths = torch.linalg.vector_norm(near, dim=1) * torch.linalg.vector_norm(one)
    cosines = ((near @ one) / lengths.where(lengths > 0, 1)).clamp_(-1, 1).numpy()
    order = np.lexsort((numbers, -cosines))
    order = order[np.isfinite(cosines[order])][:k]
    return numbers[order], cosines[order]


def _candidates(
    x: Tensor,
    rows: Tensor,
    k: int,
    among: NDArray[np.int64] | None,
    leave_out: Sequence[Sequence[int]],
) -> list[NDArray[np.int64]]:
    """The k + SPARE rows nearest to each query by a product in float32."""
    n = len(rows) if among is None else len(among)
    keep, width = min(n, k + SPARE), max(1024, CELLS // max(1, len(x)))
    best, index = x.new_empty(len(x), 0), torch.empty(len(x), 0, dtype=torch.int64)
    for low in range(0, n, width):
        columns = None if among is None else torch.from_numpy(among[low : low + width])
        part = rows[low : low + width] if columns is None else rows[columns]
        S = (part @ x.T).T.contiguous()  # for few queries much faster than x @ part.T
        _hide(S, low, columns, leave_out)
        near = S.topk(min(keep, S.shape[1]), dim=1)
        numbers = near.indices + low if columns is None else columns[near.indices]
        best = torch.cat([best, near.values], dim=1)
        index = torch.cat([index, numbers], dim=1)
        if best.shape[1] > keep:
            best, order = best.topk(keep, dim=1)
            index = index.gather(1, order)
    return [row[score > -torch.inf].numpy() for row, score in zip(index, best, strict=True)]


def _hide(S: Tensor, low: int, columns: Tensor | None, leave_out: Sequence[Sequence[int]]) -> None:
    """-inf where a query must not find a row; `columns` are the rows of S's columns, ascending,
    or None where they are all from `low` on."""
    for query, left_out in enumerate(leave_out):
        for number in left_out:
            at = number - low if columns is None else int(torch.searchsorted(columns, number))
            if 0 <= at < S.shape[1] and (columns is None or int(columns[at]) == number):
                S[query, at] = -torch.inf
