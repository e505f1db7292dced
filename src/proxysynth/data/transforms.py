"""From a picture of any size to the square one that a network takes.

Each transform is a value and a pure function of the picture and of `draws` numbers in [0, 1): the
same numbers give the same crop. `uniforms` makes them from seed, epoch and picture alone, so that
neither a worker nor a rank nor a resumed run changes what a picture looks like.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Bytes = NDArray[np.uint8]  # (h, w) for a grey picture, (h, w, 3) for RGB

TRIES = 10  # random crops that are tried before the centre is taken
LONGEST = 16  # a picture longer than this many times its width is cropped before it is enlarged


class Transform(Protocol):
    """What the loader applies to each picture."""

    @property
    def size(self) -> int | None:
        """Side of the result in pixels; None where pictures stay as they are."""
        ...

    @property
    def draws(self) -> int:
        """How many random numbers a picture takes; 0 for evaluation."""
        ...

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes: ...


@dataclass(frozen=True)
class AsIs:
    """No change, for pictures that already have one size, such as glyphs."""

    size: ClassVar[None] = None
    draws: ClassVar[int] = 0

    def __call__(self, image: Image.Image, u: Sequence[float] = ()) -> Bytes:
        return np.asarray(image)


@dataclass(frozen=True)
class RandomResizedCrop:
    """Training: a random part of the picture, resized to a square, perhaps mirrored.

    The part has an area uniform in `scale` times the picture's and a ratio of width to height
    log-uniform in `ratio`, and lies anywhere. After ten parts that do not fit, the largest one in
    the centre whose ratio is allowed.

    Args:
        size: side of the result in pixels.
        scale: least and most of the area.
        ratio: least and most of width over height.
        flip: how often the result is mirrored, left to right.
        resize: what the short side is brought to first; None takes the part of the picture itself.
    """

    size: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    resize: int | None = None

    draws: ClassVar[int] = 2 * TRIES + 3

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"the size of a crop must be at least 1 pixel, got {self.size}")
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale must be two rising fractions of the area, got {self.scale}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio must be two rising numbers above 0, got {self.ratio}")
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must lie in [0, 1], got {self.flip}")
        if self.resize is not None and self.resize < 1:
            raise ValueError(f"resize must be at least 1 pixel or None, got {self.resize}")

    def box(self, width: int, height: int, u: Sequence[float]) -> tuple[int, int, int, int]:
        """left, top, right, bottom of the part, in whole pixels."""
        (small, large), (narrow, wide) = self.scale, self.ratio
        for i in range(TRIES):
            area = width * height * (small + (large - small) * u[2 * i])
            ratio = narrow * (wide / narrow) ** u[2 * i + 1]
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left = int(u[2 * TRIES] * (width - w + 1))
                top = int(u[2 * TRIES + 1] * (height - h + 1))
                return left, top, left + w, top + h
        w = min(width, max(1, round(height * wide)))
        h = min(height, max(1, round(width / narrow)))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        if self.resize is not None:
            image = resized(_shortened(image), self.resize)
        # Not resize(box=...), which lets pixels from outside the part shine in at its border.
        part = image.crop(self.box(image.width, image.height, u))
        made = np.asarray(part.resize((self.size, self.size), Image.Resampling.BILINEAR))
        return made[:, ::-1] if u[2 * TRIES + 2] < self.flip else made


@dataclass(frozen=True)
class PadCrop:
    """Training on small pictures: a border of zeros, a random square of `size`, perhaps mirrored.

    Args:
        size: side of the result in pixels; the picture with its border must be as large.
        pad: width of the border in pixels.
        flip: how often the result is mirrored, left to right.
    """

    size: int = 32
    pad: int = 4
    flip: float = 0.5

    draws: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if self.size < 1 or self.pad < 0:
            raise ValueError(
                f"the crop must have at least 1 pixel and the border at least 0, got size "
                f"{self.size} and pad {self.pad}"
            )
        if not 0 <= self.flip <= 1:
            raise ValueError(f"flip must lie in [0, 1], got {self.flip}")

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        room = image.width + 2 * self.pad - self.size, image.height + 2 * self.pad - self.size
        if min(room) < 0:
            raise ValueError(
                f"a picture of {image.width} x {image.height} with a border of {self.pad} is "
                f"smaller than the crop of {self.size}: crop less or take larger pictures"
            )
        left = int(u[0] * (room[0] + 1)) - self.pad
        top = int(u[1] * (room[1] + 1)) - self.pad
        # What lies outside of the picture is filled with zeros.
        made = np.asarray(image.crop((left, top, left + self.size, top + self.size)))
        return made[:, ::-1] if u[2] < self.flip else made


@dataclass(frozen=True)
class CenterCrop:
    """Evaluation: the short side resized to `resize`, then the square of `size` in the middle."""

    resize: int = 256
    size: int = 224

    draws: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.resize:
            raise ValueError(
                f"the crop must be at least 1 and at most the resized side, got size {self.size} "
                f"and resize {self.resize}"
            )

    def __call__(self, image: Image.Image, u: Sequence[float] = ()) -> Bytes:
        image = resized(_shortened(image), self.resize)
        left = round((image.width - self.size) / 2)
        top = round((image.height - self.size) / 2)
        return np.asarray(image.crop((left, top, left + self.size, top + self.size)))


def resized(image: Image.Image, short: int) -> Image.Image:
    """The picture with its short side at `short` pixels, the long one in proportion, cut to whole
    pixels; bilinear, averaging over what a pixel covers."""
    width, height = image.size
    least = min(width, height)
    size = (short * width // least, short * height // least)
    return image if size == image.size else image.resize(size, Image.Resampling.BILINEAR)


def uniforms(seed: int, epoch: int, index: int, count: int) -> list[float]:
    """`count` numbers in [0, 1) that depend on seed, epoch and picture, and on nothing else."""
    key = np.array([seed % (1 << 64), epoch], dtype=np.uint64)
    stream = np.random.Philox(key=key, counter=np.array([0, 0, 0, index], dtype=np.uint64))
    return np.random.Generator(stream).random(count).tolist()


def _shortened(image: Image.Image) -> Image.Image:
    """The middle of a very long picture: enlarging all of it could fill the memory."""
    most = LONGEST * min(image.size)
    if max(image.size) <= most:
        return image
    width, height = min(image.width, most), min(image.height, most)
    left, top = (image.width - width) // 2, (image.height - height) // 2
    return image.crop((left, top, left + width, top + height))
