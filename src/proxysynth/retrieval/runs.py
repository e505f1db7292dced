"""Many runs of whole numbers as one list: where things of one class stand side by side."""

from __future__ import annotations

import torch
from torch import Tensor


def spread(start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """The numbers from start[i] on, size[i] of them, for every i; and, first, the i of each."""
    i = torch.arange(len(size), device=size.device).repeat_interleave(size)
    step = torch.arange(len(i), device=size.device) - (size.cumsum(0) - size)[i]
    return i, start[i] + step
