"""Glyphs as if photographed: rotated, sheared, scaled, shifted, blurred, unevenly lit, noisy.

Black on white, every character looks almost the same in every face, and a small network finds 97 of
100 unseen ones. Distorted, they leave room for one method to be better than another. Everything is
drawn from the seed, the character and the number of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.data.deformations import GaussianBlur

FIELD = 4  # points per side of the random field that lights the background


@dataclass(frozen=True)
class Distortion:
    """Ranges of uniform draws at strength 1; each grows in proportion to the strength."""

    angle: float = 25.0  # degrees of rotation
    shear: float = 0.25  # sideways shift of the top against the middle, as a fraction of the height
    # logarithm of the factor on the size, and of that on the ratio of the two sides
    scale: float = 0.2
    shift: float = 0.06  # fraction of the image's side
    blur: float = 0.025  # sigma of a Gaussian, as a fraction of the image's side
    ink: float = 60.0  # how far the levels of ink and paper move toward each other, of 255
    paper: float = 60.0
    light: float = 40.0  # amplitude of a smooth random field that is added to the image, of 255
    noise: float = 25.0  # sigma of the noise of each pixel, of 255

    def place(
        self, segments: NDArray[np.float64], side: int, strength: float, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        """An outline in pixels, (s, 4), moved about the center of the image."""
        u = strength * rng.uniform(-1, 1, 6)
        angle, size, ratio = math.radians(self.angle * u[0]), self.scale * u[2], self.scale * u[3]
        turn = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        lean = np.array([[1.0, 2 * self.shear * u[1]], [0.0, 1.0]])
        stretch = np.diag([math.exp(size + ratio / 2), math.exp(size - ratio / 2)])
        points = segments.reshape(-1, 2) - side / 2
        moved = points @ (turn @ lean @ stretch).T + side * (0.5 + self.shift * u[4:6])
        return moved.reshape(-1, 4)

    def expose(
        self, ink: NDArray[np.uint8], strength: float, rng: np.random.Generator
    ) -> NDArray[np.uint8]:
        """A gray image of drawn ink (255 where it is), (side, side)."""
        side, u = len(ink), strength * rng.uniform(0, 1, 4)
        if u[0] > 0:
            ink = GaussianBlur(self.blur * u[0], side=1)(ink, rng)
        low, high = self.ink * u[1], 255 - self.paper * u[2]
        field = rng.uniform(-1, 1, (FIELD, FIELD)).astype(np.float32)
        light = np.asarray(Image.fromarray(field).resize((side, side), Image.Resampling.BICUBIC))
        noise = self.noise * u[3] * rng.standard_normal((side, side))
        made = high - ink / 255.0 * (high - low) + self.light * strength * light + noise
        return np.rint(made).clip(0, 255).astype(np.uint8)
