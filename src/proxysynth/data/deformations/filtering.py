"""Every pixel changes a little: Gaussian noise and Gaussian blur.              [supplement C.3]"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..transforms import Bytes

REACH = 4  # the kernel is cut off after so many sigmas, where less than 0.01 % of it is left


@dataclass(frozen=True)
class GaussianNoise:
    """A number from N(0, sigma) is added to each pixel, the same to all its channels.

    Args:
        most: sigma is drawn once for the picture, uniform in 0..most, on the scale of bytes.
    """

    most: float = 0.2 * 255

    def __post_init__(self) -> None:
        if not 0 <= self.most < math.inf:
            raise ValueError(f"the largest sigma must be a number from 0 on, got {self.most}")

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        noise = rng.uniform(0, self.most) * rng.standard_normal(picture.shape[:2], np.float32)
        noise = noise.reshape(*noise.shape, *(1,) * (picture.ndim - 2))
        return _bytes(picture + noise)


@dataclass(frozen=True)
class GaussianBlur:
    """Each pixel becomes the mean of those around it, weighted by a Gaussian; the picture goes on
    mirrored beyond its border.

    Args:
        sigma: of the Gaussian, in pixels.
    """

    sigma: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.sigma < math.inf:
            raise ValueError(f"sigma must be a number of pixels above 0, got {self.sigma}")

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        h, w = picture.shape[:2]
        rows, columns = _weights(h, self.sigma), _weights(w, self.sigma)
        down = rows @ picture.reshape(h, -1).astype(np.float32)
        across = columns @ down.reshape(h, w, -1)  # a product for each row, over its pixels
        return _bytes(across.reshape(picture.shape))


@lru_cache(maxsize=16)
def _weights(n: int, sigma: float) -> NDArray[np.float32]:
    """(n, n): how much of each of n pixels in a line each of them becomes."""
    reach = int(REACH * sigma + 0.5)
    offsets = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (offsets / sigma) ** 2)
    made = np.zeros((n, n))
    source = (np.arange(n)[:, None] + offsets) % max(1, 2 * (n - 1))
    source = np.minimum(source, 2 * (n - 1) - source)  # ... 2 1 0 1 2 ... n-1 n-2 ...
    np.add.at(made, (np.arange(n)[:, None], source), kernel / kernel.sum())
    return made.astype(np.float32)


def _bytes(values: NDArray[np.float32]) -> Bytes:
    return np.rint(values).clip(0, 255).astype(np.uint8)
