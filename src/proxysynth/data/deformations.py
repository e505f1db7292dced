"""The eight deformations of test images [supplement C.3, Table 3], and the distortion of glyphs.

Each deformation is a function `(image, rng) -> image` of bytes, (h, w) or (h, w, 3); its `summary`
is a format string of its parameters. Zoom, rotation and shearing keep the center, interpolate
linearly and are black outside of the image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.data.transforms import Bytes, Transform, middle

BILINEAR = Image.Resampling.BILINEAR
FIELD = 4  # points per side of the random field that lights the background of a glyph
Segments = NDArray[np.float64]  # of an outline, (s, 4): x0, y0, x1, y1
REACH = 4  # sigmas after which a Gaussian kernel is cut off: less than 0.01% is lost


class Deform(Protocol):
    """From an image and a random generator to an image of the same size."""

    summary: ClassVar[str]

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes: ...


@dataclass(frozen=True)
class Deformed:
    """A test transform, then a deformation drawn by seed, stream and the image's index alone."""

    transform: Transform
    deform: Deform
    size: int  # side of the result in pixels
    seed: int = 0
    stream: int = 0  # distinguishes listings, such as query and gallery
    draws: ClassVar[int] = 2  # they stand for the image's index: they seed the generator

    def __call__(self, image: Image.Image, u: Sequence[float]) -> Bytes:
        key = (int(part * 2**53) for part in u)
        rng = np.random.default_rng([self.seed, self.stream, *key])
        return self.deform(self.transform(image, ()), rng)


@dataclass(frozen=True)
class Cutout:
    """Gray squares at independent positions cover parts of the image."""

    squares: int = 2  # how many
    side: float = 0.2  # of a square, as a fraction of the image's sides
    gray: int = 128  # the value they are filled with
    summary: ClassVar[str] = "{0.squares} x {0.side:.0%}"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        made = image.copy()
        h, w = (max(1, round(self.side * side)) for side in image.shape[:2])
        for _ in range(self.squares):
            top = int(rng.integers(image.shape[0] - h + 1))
            left = int(rng.integers(image.shape[1] - w + 1))
            made[top : top + h, left : left + w] = self.gray
        return made


@dataclass(frozen=True)
class Dropout:
    """Pixels become black, each with a probability drawn once per image, uniform in 0..most."""

    most: float = 0.2
    summary: ClassVar[str] = "0 to {0.most:.0%}"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        made = image.copy()
        made[rng.random(image.shape[:2]) < rng.uniform(0, self.most)] = 0
        return made


@dataclass(frozen=True)
class Zoom:
    """The image seen through a smaller window (zoom in) or a larger one (zoom out).

    The paper prints "zoom-in and zoom-out at scale of 50% and 150%" without saying of what.
    """

    scale: float  # of the window: 0.5 enlarges the middle, 1.5 shows the image smaller, in black
    opposite: bool = False  # of the image instead: 0.5 shows it at half its size
    summary: ClassVar[str] = "window {0.window:.0%}"

    @property
    def window(self) -> float:
        """Side of the window as a multiple of the image's."""
        return 1 / self.scale if self.opposite else self.scale

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        source = Image.fromarray(image)
        w, h = source.size
        if self.window <= 1:
            # Not resize(box=...), which blends pixels from outside the box into its border.
            part = middle(w, h, max(1, round(w * self.window)), max(1, round(h * self.window)))
            return np.asarray(source.crop(part).resize((w, h), BILINEAR))
        place = middle(w, h, max(1, round(w / self.window)), max(1, round(h / self.window)))
        made = Image.new(source.mode, (w, h))
        made.paste(source.resize((place[2] - place[0], place[3] - place[1]), BILINEAR), place)
        return np.asarray(made)


@dataclass(frozen=True)
class Rotation:
    """Rotated by an angle uniform in +-most degrees."""

    most: float = 30.0
    summary: ClassVar[str] = "±{0.most:g}°"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        angle = math.radians(rng.uniform(-self.most, self.most))
        cos, sin = math.cos(angle), math.sin(angle)
        return warped(image, ((cos, -sin), (sin, cos)))


@dataclass(frozen=True)
class Shearing:
    """Rows shifted sideways so that vertical lines lean, by an angle uniform in +-most degrees."""

    most: float = 30.0
    summary: ClassVar[str] = "±{0.most:g}°"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        angle = math.radians(rng.uniform(-self.most, self.most))
        return warped(image, ((1.0, math.tan(angle)), (0.0, 1.0)))


def warped(image: Bytes, matrix: Sequence[Sequence[float]]) -> Bytes:
    """The pixel at (x, y) from the center shows what was at matrix @ (x, y)."""
    (a, b), (c, d) = matrix
    source = Image.fromarray(image)
    x, y = source.width / 2, source.height / 2
    numbers = (a, b, x - a * x - b * y, c, d, y - c * x - d * y)
    return np.asarray(source.transform(source.size, Image.Transform.AFFINE, numbers, BILINEAR))


@dataclass(frozen=True)
class GaussianNoise:
    """N(0, sigma) is added to each pixel, the same to all its channels."""

    most: float = 0.2 * 255  # sigma is drawn once per image, uniform in 0..most, in units of bytes
    summary: ClassVar[str] = "sigma 0 to {0.most:.0f}"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        noise = rng.uniform(0, self.most) * rng.standard_normal(image.shape[:2], np.float32)
        return _bytes(image + (noise if image.ndim == 2 else noise[..., None]))


@dataclass(frozen=True)
class GaussianBlur:
    """Convolution with a Gaussian, proportional to the image; it is mirrored at its border."""

    sigma: float = 3.0  # in pixels of an image of `side` pixels
    side: int = 224  # of the paper's images
    summary: ClassVar[str] = "sigma {0.sigma:g}/{0.side}"

    def __call__(self, image: Bytes, rng: np.random.Generator) -> Bytes:
        h, w = image.shape[:2]
        sigma = self.sigma * min(h, w) / self.side
        down = _weights(h, sigma) @ image.reshape(h, -1).astype(np.float32)
        across = _weights(w, sigma) @ down.reshape(h, w, -1)  # a product per row
        return _bytes(across.reshape(image.shape))


@lru_cache(maxsize=16)
def _weights(n: int, sigma: float) -> NDArray[np.float32]:
    """(n, n): the weight of each of n pixels in a line for each of them."""
    from scipy import ndimage

    made = ndimage.gaussian_filter1d(np.eye(n), sigma, axis=0, mode="mirror", truncate=REACH)
    return np.asarray(made, dtype=np.float32)


def _bytes(values: NDArray[np.floating]) -> Bytes:
    return np.rint(values).clip(0, 255).astype(np.uint8)


# Those of Table 3, in its order and with its settings.
DEFORMATIONS: Mapping[str, Deform] = {
    "cutout": Cutout(),
    "dropout": Dropout(),
    "zoom_in": Zoom(0.5),
    "zoom_out": Zoom(1.5),
    "rotation": Rotation(),
    "shearing": Shearing(),
    "gaussian_noise": GaussianNoise(),
    "gaussian_blur": GaussianBlur(),
}


# The distortion of glyphs, as if photographed; without it, a small network finds 97 of 100 unseen
# characters, and methods cannot be compared. The numbers are ranges of draws at strength 1.
ANGLE = 25.0  # degrees of rotation
SHEAR = 0.25  # sideways shift of the top against the middle, as a fraction of the height
SCALE = 0.2  # logarithm of the factor on the size, and of that on the ratio of the sides
SHIFT = 0.06  # fraction of the image's side
BLUR = 0.025  # sigma of a Gaussian, as a fraction of the image's side
INK = PAPER = 60.0  # how far the levels of ink and paper move toward each other, of 255
LIGHT = 40.0  # amplitude of a smooth random field that is added to the image, of 255
NOISE = 25.0  # sigma of the noise of each pixel, of 255


def displaced(segments: Segments, side: int, strength: float, rng: np.random.Generator) -> Segments:
    """An outline in pixels: rotated, sheared and scaled about the center, and shifted."""
    u = strength * rng.uniform(-1, 1, 6)
    angle, size, ratio = math.radians(ANGLE * u[0]), SCALE * u[2], SCALE * u[3]
    turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    lean = np.array([[1.0, 2 * SHEAR * u[1]], [0.0, 1.0]])
    stretch = np.diag([math.exp(size + ratio / 2), math.exp(size - ratio / 2)])
    points = segments.reshape(-1, 2) - side / 2
    moved = points @ (turn @ lean @ stretch).T + side * (0.5 + SHIFT * u[4:6])
    return moved.reshape(-1, 4)


def degraded(ink: Bytes, strength: float, rng: np.random.Generator) -> Bytes:
    """A gray image of ink (255 where it is), (side, side): blurred, unevenly lit, noisy."""
    side, u = len(ink), strength * rng.uniform(0, 1, 4)
    if u[0] > 0:
        ink = GaussianBlur(BLUR * u[0], side=1)(ink, rng)
    low, high = INK * u[1], 255 - PAPER * u[2]
    field = rng.uniform(-1, 1, (FIELD, FIELD)).astype(np.float32)
    light = np.asarray(Image.fromarray(field).resize((side, side), Image.Resampling.BICUBIC))
    noise = NOISE * u[3] * rng.standard_normal((side, side))
    return _bytes(high - ink / 255.0 * (high - low) + LIGHT * strength * light + noise)
