"""A picture is moved about its middle: zoom, rotation, shearing. Outside is black. [supplement C.3]

Pixels in between are interpolated linearly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from ..transforms import Bytes

BILINEAR = Image.Resampling.BILINEAR


@dataclass(frozen=True)
class Zoom:
    """A window of another size is seen in place of the picture.

    A smaller window is a part of the picture, enlarged: in. A larger one shows the picture shrunk,
    with black around it: out.

    Args:
        scale: 0.5 sees half of each side, 1.5 sees half as much again as there is.
        opposite: the paper prints "zoom-in and zoom-out at scale of 50% and 150%" and not of what.
            Read as the size of the picture and not of the window, 0.5 shows it at half its size,
            through a window of 1 / 0.5 = 2 sides, and 1.5 enlarges it.
    """

    scale: float
    opposite: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise ValueError(f"the scale of a zoom must be a number above 0, got {self.scale}")

    @property
    def window(self) -> float:
        """The side of what is seen, over the picture's."""
        return 1 / self.scale if self.opposite else self.scale

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        image, (w, h) = Image.fromarray(picture), picture.shape[1::-1]
        if self.window <= 1:
            # Not resize(box=...), which lets what lies around the window shine in at its border.
            part = max(1, round(w * self.window)), max(1, round(h * self.window))
            left, top = (w - part[0]) // 2, (h - part[1]) // 2
            seen = image.crop((left, top, left + part[0], top + part[1]))
            return np.asarray(seen.resize((w, h), BILINEAR))
        small = max(1, round(w / self.window)), max(1, round(h / self.window))
        made = Image.new(image.mode, (w, h))
        made.paste(image.resize(small, BILINEAR), ((w - small[0]) // 2, (h - small[1]) // 2))
        return np.asarray(made)


@dataclass(frozen=True)
class Rotation:
    """Turned by an angle that is uniform in +-most degrees."""

    most: float = 30.0

    def __post_init__(self) -> None:
        _check_angle(self.most)

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        angle = math.radians(rng.uniform(-self.most, self.most))
        return warped(picture, ((math.cos(angle), -math.sin(angle)),
                                (math.sin(angle), math.cos(angle))))  # fmt: skip


@dataclass(frozen=True)
class Shearing:
    """Rows shifted sideways so that upright lines lean, by an angle uniform in +-most degrees."""

    most: float = 30.0

    def __post_init__(self) -> None:
        _check_angle(self.most)

    def __call__(self, picture: Bytes, rng: np.random.Generator) -> Bytes:
        angle = math.radians(rng.uniform(-self.most, self.most))
        return warped(picture, ((1.0, math.tan(angle)), (0.0, 1.0)))


Matrix = tuple[tuple[float, float], tuple[float, float]]


def warped(picture: Bytes, matrix: Matrix) -> Bytes:
    """The pixel at a distance (x, y) from the middle shows what was at matrix (x, y)."""
    (a, b), (c, d) = matrix
    w, h = picture.shape[1], picture.shape[0]
    x, y = w / 2, h / 2
    numbers = (a, b, x - a * x - b * y, c, d, y - c * x - d * y)
    image = Image.fromarray(picture)
    return np.asarray(image.transform((w, h), Image.Transform.AFFINE, numbers, BILINEAR))


def _check_angle(most: float) -> None:
    if not 0 <= most < 90:
        raise ValueError(f"the largest angle must lie in 0..90 degrees, 90 left out, got {most}")
