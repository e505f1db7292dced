"""The paper's statements about the eight deformations, measured on synthetic images.   [C.3]"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import atan, degrees
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from proxysynth.data.deformations import (
    DEFORMATIONS,
    Cutout,
    Dropout,
    GaussianBlur,
    GaussianNoise,
    Rotation,
    Shearing,
    Zoom,
)

SIDE, DRAWS = 101, 300
Bytes = NDArray[np.uint8]


def _drawn(deformation: Any, image: Bytes, draws: int = DRAWS) -> list[Bytes]:
    rng = np.random.default_rng(0)
    return [deformation(image, rng) for _ in range(draws)]


def _flat(value: int) -> Bytes:
    return np.full((SIDE, SIDE), value, np.uint8)


def two_gray_squares(cutout: Any) -> None:
    """ "randomly filled by two grayish pixels that are 20% of the image size"."""
    images = _drawn(cutout, _flat(0))
    assert max(int((image != 0).sum()) for image in images) == 2 * round(0.2 * SIDE) ** 2
    grays = {int(gray) for image in images[:20] for gray in np.unique(image) if gray}
    assert all(64 <= gray <= 192 for gray in grays)


def up_to_a_fifth_of_the_pixels(dropout: Any) -> None:
    """ "p from the range of 0 <= p <= 0.2 is sampled; thereafter, p x 100% of all pixels is
    dropped"."""
    shares = [float((image == 0).mean()) for image in _drawn(dropout, _flat(255))]
    assert 0.19 < max(shares) < 0.21
    assert min(shares) < 0.01


def half_of_each_side(zoom_in: Any) -> None:
    """ "zoom-in and zoom-out at scale of 50% and 150%, respectively": a ramp read at both ends."""
    ramp = np.tile(np.linspace(0, 250, SIDE), (SIDE, 1)).astype(np.uint8)
    (image,) = _drawn(zoom_in, ramp, 1)
    assert abs((float(image[SIDE // 2, -1]) - float(image[SIDE // 2, 0])) / 250 - 0.5) < 0.02


def one_and_a_half_sides(zoom_out: Any) -> None:
    """The same sentence: the black border around a white image."""
    (image,) = _drawn(zoom_out, _flat(255), 1)
    assert abs(1 / float((image[SIDE // 2] > 0).mean()) - 1.5) < 0.03


def up_to_thirty_degrees(deformation: Any) -> None:
    """ "rotated and sheared at a randomly sampled degree between -30° and 30°": where an upright
    line through the middle meets a row above it."""
    image, up = _flat(0), SIDE // 4
    image[:, SIDE // 2] = 255
    angles = []
    for made in _drawn(deformation, image):
        row = made[SIDE // 2 - up].astype(float)
        shift = float((row * (np.arange(SIDE) - SIDE // 2)).sum() / row.sum())
        angles.append(degrees(atan(shift / up)))
    assert -31 < min(angles) < -28
    assert 28 < max(angles) < 31


def noise_up_to_a_fifth(noise: Any) -> None:
    """ "N(0, s), where s is sampled between 0 and 0.2 x 255"."""
    sigmas = [float(image.std()) for image in _drawn(noise, _flat(128))]
    assert 0.9 * 51 < max(sigmas) < 1.05 * 51
    assert min(sigmas) < 0.05 * 51


def blur_with_sigma_three(blur: Any) -> None:
    """ "a Gaussian kernel with a sigma of 3.0": the slope of a blurred edge is the kernel."""
    image = _flat(0)
    image[:, SIDE // 2 :] = 255
    (made,) = _drawn(replace(blur, side=SIDE), image, 1)
    assert blur.side == 224  # the paper's images
    slope = np.diff(made[SIDE // 2].astype(float))
    at = np.arange(len(slope))
    center = float((slope * at).sum() / slope.sum())
    assert abs(float(np.sqrt((slope * (at - center) ** 2).sum() / slope.sum())) - 3.0) < 0.1


@pytest.mark.parametrize(
    ("name", "statement", "wrong"),
    [
        ("cutout", two_gray_squares, (Cutout(side=0.3), Cutout(squares=1), Cutout(gray=255))),
        ("dropout", up_to_a_fifth_of_the_pixels, (Dropout(0.3), Dropout(0.1))),
        ("zoom_in", half_of_each_side, (Zoom(0.6),)),
        ("zoom_out", one_and_a_half_sides, (Zoom(1.5, opposite=True),)),
        ("rotation", up_to_thirty_degrees, (Rotation(20.0),)),
        ("shearing", up_to_thirty_degrees, (Shearing(40.0),)),
        ("gaussian_noise", noise_up_to_a_fifth, (GaussianNoise(0.3 * 255),)),
        ("gaussian_blur", blur_with_sigma_three, (GaussianBlur(2.5),)),
    ],
)
def test_deformations_match_the_paper(
    name: str, statement: Callable[[Any], None], wrong: tuple[Any, ...]
) -> None:
    statement(DEFORMATIONS[name])
    for other in wrong:
        with pytest.raises(AssertionError):
            statement(other)
