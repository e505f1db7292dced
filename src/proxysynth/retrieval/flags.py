"""Where the few ones are in a large matrix of zeros and ones."""

from __future__ import annotations

import torch
from torch import Tensor


def ones(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the ones, in the order in which the matrix lies in memory.

    Eight flags are looked at as one machine word, which is several times as fast as `nonzero`
    itself. So the matrix has a multiple of eight columns; transposed, of rows.
    """
    if not flags.is_contiguous():
        column, row = ones(flags.T)
        return row, column
    words = flags.to(torch.bool).view(torch.int64)
    row, word = words.nonzero(as_tuple=True)
    hit, byte = words[row, word][:, None].view(torch.bool).nonzero(as_tuple=True)
    return row[hit], word[hit] * 8 + byte
