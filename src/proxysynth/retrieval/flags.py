"""Where the few ones are in a large matrix of zeros and ones."""

from __future__ import annotations

import torch
from torch import Tensor

GROUP = 128
"""Neighbouring flags that are counted together."""

SPARSE = 1 / 8
"""Groups with a one, as a part of all, up to which it pays to gather them."""


def count(flags: Tensor) -> Tensor:
    """How many ones each group of neighbours in memory has; of booleans, whether any (above 0)."""
    flat = flags if flags.is_contiguous() else flags.T
    size = GROUP if flags.numel() % GROUP == 0 else 8
    if flags.dtype == torch.bool:
        return flat.view(-1).view(torch.int64).view(-1, size // 8).sum(1)
    return flat.view(-1, size).sum(1, dtype=flags.dtype)


def ones(flags: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the ones, in the order in which the matrix lies in memory.

    Eight flags at a time are looked at as one machine word, which is several times as fast as
    `nonzero` itself; where ones are few, groups without one are passed over. A matrix has a
    multiple of eight columns; transposed, of rows.

    Args:
        counts: of `count`.
    """
    if not flags.is_contiguous():
        column, row = ones(flags.T, counts)
        return row, column
    full = counts.nonzero().squeeze(1)
    if len(full) > SPARSE * len(counts):
        return _in_words(flags)
    groups = flags.view(len(counts), -1)
    group, place = _in_words(groups.index_select(0, full))
    place += full[group] * groups.shape[1]
    row = place.div(flags.shape[1], rounding_mode="floor")
    return row, place - row * flags.shape[1]


def _in_words(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the ones, eight flags at a time as one machine word."""
    words = flags.to(torch.bool).view(torch.int64)
    row, word = words.nonzero(as_tuple=True)
    hit, byte = words[row, word][:, None].view(torch.bool).nonzero(as_tuple=True)
    return row[hit], word[hit] * 8 + byte
