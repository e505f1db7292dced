"""Memory for batches, used again once nobody holds the batch.

Fresh memory for tens of megabytes costs as much as a third of loading: the system clears each page
before it hands it out.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Buffers:
    """Float32 tensors of one shape but for their first dimension.

    A tensor made from an array holds a reference to it, as does everything made from the tensor
    without a copy, a network's saved input among it. When only this object still refers to the
    array, it is free again.

    Args:
        shape: (h, w, channels) of a picture.
        most: how many arrays are kept; more are made where they are needed, and not kept.
    """

    def __init__(self, shape: tuple[int, ...], most: int) -> None:
        self._shape = shape
        self._most = most
        self._arrays: list[NDArray[np.float32]] = []
        self._unused = 0

    def take(self, n: int) -> Tensor:
        """A tensor (n, *shape) with any content."""
        for i in range(len(self._arrays)):
            if len(self._arrays[i]) == n and self._references(i) == self._unused:
                return torch.from_numpy(self._arrays[i])
        if len(self._arrays) >= self._most:
            return torch.empty((n, *self._shape))
        self._arrays.append(np.empty((n, *self._shape), dtype=np.float32))
        # Counted rather than assumed: interpreters differ in what they count.
        self._unused = self._references(-1)
        return torch.from_numpy(self._arrays[-1])

    def _references(self, i: int) -> int:
        return sys.getrefcount(self._arrays[i])
