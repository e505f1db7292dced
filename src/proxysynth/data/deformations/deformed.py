"""A transform of test pictures with a deformation after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from PIL import Image

from ..transforms import Bytes, Transform


class Deform(Protocol):
    """A picture and random numbers in, a picture of the same size out."""

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes: ...


@dataclass(frozen=True)
class Deformed:
    """Crop as in testing, then deform.

    What is drawn for a picture depends on the seed, the stream and its index in the listing alone.

    Args:
        transform: makes the picture its size.
        deform: changes it.
        size: side of the result in pixels.
        seed: of what is drawn.
        stream: keeps pictures of one index in two listings apart, as of query and gallery.
    """

    transform: Transform
    deform: Deform
    size: int
    seed: int = 0
    stream: int = 0

    # The loader hands over two numbers that stand for the picture's index; whatever a deformation
    # needs, be it two corners or a value per pixel, is drawn from a generator that they seed.
    draws: ClassVar[int] = 2

    def __post_init__(self) -> None:
        if self.transform.draws:
            raise ValueError(
                f"deformations are for testing, got the random transform {self.transform}: "
                "give one that always makes the same of a picture"
            )

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        key = [int(part * 2**53) for part in u]
        rng = np.random.default_rng([self.seed, self.stream, *key])
        return self.deform(self.transform(image, ()), rng)
