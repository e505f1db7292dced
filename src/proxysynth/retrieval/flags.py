"""Where the few ones are in a large matrix of zeros and ones."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 128
"""Neighbouring flags that are counted together; few groups have a one."""


def count(flags: Tensor) -> Tensor:
    """How many ones each group of neighbours in memory has; of booleans, whether any (above 0)."""
    flat = flags if flags.is_contiguous() else flags.T
    size = GROUP if flags.numel() % GROUP == 0 else 8
    if flags.dtype == torch.bool:
        return flat.view(-1).view(torch.int64).view(-1, size // 8).sum(1)
    return flat.view(-1, size).sum(1, dtype=flags.dtype)


def ones(flags: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the ones, in the order in which the matrix lies in memory.

    Groups without a one are passed over. Of the others eight flags at a time are looked at as one
    machine word, which is several times as fast as `nonzero` itself. So a matrix has a multiple of
    eight columns; transposed, of rows.

    Args:
        counts: of `count`.
    """
    if not flags.is_contiguous():
        column, row = ones(flags.T, counts)
        return row, column
    groups = flags.view(len(counts), -1)
    full = counts.nonzero().squeeze(1)
    words = groups.index_select(0, full).to(torch.bool).view(torch.int64)
    group, word = words.nonzero(as_tuple=True)
    hit, byte = words[group, word][:, None].view(torch.bool).nonzero(as_tuple=True)
    place = full[group[hit]] * groups.shape[1] + word[hit] * 8 + byte
    row = place.div(flags.shape[1], rounding_mode="floor")
    return row, place - row * flags.shape[1]
