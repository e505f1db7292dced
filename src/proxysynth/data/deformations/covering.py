"""Parts of a picture are hidden: cutout and pixel dropout.                    [supplement C.3]"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..transforms import Bytes


@dataclass(frozen=True)
class Cutout:
    """Grey squares cover parts of the picture.

    Each lies anywhere inside it, independent of the others, which it may overlap.

    Args:
        squares: how many.
        side: of a square, as a part of each of the picture's sides.
        grey: what it is filled with.
    """

    squares: int = 2
    side: float = 0.2
    grey: int = 128

    def __post_init__(self) -> None:
        if not 0 < self.side <= 1 or self.squares < 1 or not 0 <= self.grey <= 255:
            raise ValueError(
                f"a cutout has squares from 1 on, a side in 0..1 and a byte, got {self}"
            )

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        made = picture.copy()
        h, w = (max(1, round(self.side * side)) for side in picture.shape[:2])
        for _ in range(self.squares):
            top = int(rng.integers(picture.shape[0] - h + 1))
            left = int(rng.integers(picture.shape[1] - w + 1))
            made[top : top + h, left : left + w] = self.grey
        return made


@dataclass(frozen=True)
class Dropout:
    """Single pixels become black, each with a probability that is drawn once for the picture.

    Args:
        most: the probability is uniform in 0..most.
    """

    most: float = 0.2

    def __post_init__(self) -> None:
        if not 0 <= self.most <= 1:
            raise ValueError(f"a dropout has a probability in 0..1, got {self.most}")

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        made = picture.copy()
        made[rng.random(picture.shape[:2]) < rng.uniform(0, self.most)] = 0
        return made
