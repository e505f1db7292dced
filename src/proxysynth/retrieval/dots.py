"""Exact similarities of chosen pairs: the numbers by which everything is decided.

A large product rounds differently here and there, depending on its shape, the library and the
threads. A pair measured here depends on its two vectors alone: equal vectors have equal
similarities wherever they stand, ties are ties, and no result depends on how the work was cut.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

CHUNK = 2**22
"""Numbers gathered at once where there is no product that takes chosen pairs only."""


def dots(x: Tensor, y: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(p,) x[row] . y[column], with `row` ascending."""
    if x.device.type != "cpu":
        parts = max(1, CHUNK // x.shape[1])
        pairs = zip(row.split(parts), column.split(parts), strict=True)
        return torch.cat([(x[i] * y[j]).sum(1) for i, j in pairs])
    begin = torch.searchsorted(row, torch.arange(len(x) + 1))
    wanted = _sparse(begin, column, x.new_zeros(len(row)), len(x), len(y))
    return torch.sparse.sampled_addmm(wanted, x, y.T, beta=0.0).values()


def _sparse(begin: Tensor, column: Tensor, values: Tensor, rows: int, columns: int) -> Tensor:
    return torch.sparse_csr_tensor(begin, column, values, (rows, columns), check_invariants=False)


# torch announces the first sparse matrix of a process as something new. It is made here, since
# warnings cannot be silenced in threads.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    _sparse(torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(1), 1, 1)
