"""Claims about the eight deformations, measured on made pictures.                    [C.3]"""

from __future__ import annotations

from math import atan, degrees

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.deformations import DEFORMATIONS
from proxysynth.paper.claims.claim import Evidence, Verdict, held, of_code

SIDE, DRAWS = 101, 300
Bytes = NDArray[np.uint8]


def _drawn(name: str, picture: Bytes, draws: int = DRAWS) -> list[Bytes]:
    rng = np.random.default_rng(0)
    return [DEFORMATIONS[name](picture, rng) for _ in range(draws)]


def _flat(value: int) -> Bytes:
    return np.full((SIDE, SIDE), value, np.uint8)


def _cutout(e: Evidence) -> Verdict:
    covered = [np.argwhere(made != 0) for made in _drawn("cutout", _flat(0))]
    most = max(len(at) for at in covered)
    square = round(0.2 * SIDE) ** 2
    greys = {int(g) for made in _drawn("cutout", _flat(0), 20) for g in np.unique(made) if g}
    tones = ", ".join(map(str, sorted(greys)))
    told = f"at most {most / SIDE**2:.1%} of a picture is covered, in the grey {tones} of 255"
    return held(most == 2 * square and all(64 <= g <= 192 for g in greys), told)


def _dropout(e: Evidence) -> Verdict:
    shares = [float((made == 0).mean()) for made in _drawn("dropout", _flat(255))]
    told = f"{min(shares):.1%} to {max(shares):.1%} of the pixels, {np.mean(shares):.1%} on average"
    return held(max(shares) < 0.21 and max(shares) > 0.19 and min(shares) < 0.01, told)


def _zoom(e: Evidence) -> Verdict:
    """How many sides of the picture are seen: a ramp read at both ends, a white one's border."""
    ramp = np.tile(np.linspace(0, 250, SIDE), (SIDE, 1)).astype(np.uint8)
    (near,) = _drawn("zoom_in", ramp, 1)
    inside = float(near[SIDE // 2, -1]) / 250 - float(near[SIDE // 2, 0]) / 250
    (far,) = _drawn("zoom_out", _flat(255), 1)
    outside = 1 / float((far[SIDE // 2] > 0).mean())
    told = f"zoom-in sees {inside:.0%} of each side, zoom-out {outside:.0%}"
    return held(abs(inside - 0.5) < 0.02 and abs(outside - 1.5) < 0.03, told)


def _angles(e: Evidence) -> Verdict:
    """Where an upright line through the middle meets a row above it."""
    picture, up = _flat(0), SIDE // 4
    picture[:, SIDE // 2] = 255
    told, right = [], True
    for name in ("rotation", "shearing"):
        angles = []
        for made in _drawn(name, picture):
            row = made[SIDE // 2 - up].astype(float)
            shift = float((row * (np.arange(SIDE) - SIDE // 2)).sum() / row.sum())
            angles.append(degrees(atan(shift / up)))
        right = right and -31 < min(angles) < -28 and 28 < max(angles) < 31
        told.append(f"{name} {min(angles):.0f} to {max(angles):.0f} degrees")
    return held(right, ", ".join(told))


def _noise(e: Evidence) -> Verdict:
    sigmas = [float(made.std()) for made in _drawn("gaussian_noise", _flat(128))]
    most = 0.2 * 255
    told = f"deviations of {min(sigmas):.1f} to {max(sigmas):.1f} bytes, 0.2 x 255 is {most:.0f}"
    return held(0.9 * most < max(sigmas) < 1.05 * most and min(sigmas) < 0.05 * most, told)


def _blur(e: Evidence) -> Verdict:
    """The slope of a blurred edge is the kernel."""
    picture = _flat(0)
    picture[:, SIDE // 2 :] = 255
    (made,) = _drawn("gaussian_blur", picture, 1)
    slope = np.diff(made[SIDE // 2].astype(float))
    at = np.arange(len(slope))
    middle = float((slope * at).sum() / slope.sum())
    sigma = float(np.sqrt((slope * (at - middle) ** 2).sum() / slope.sum()))
    return held(abs(sigma - 3.0) < 0.1, f"an edge is blurred with a sigma of {sigma:.2f}")


WHERE = "section C.3"
MANY = f"over {DRAWS} draws"

DEFORMED = (
    of_code(
        "each input image is randomly filled by two grayish pixels that are 20% of the image size",
        WHERE,
        f"the most that is covered {MANY} are two grey squares of 20 % of each side",
        _cutout,
    ),
    of_code(
        "a value p from the range of 0 <= p <= 0.2 is sampled; thereafter, p x 100% of all pixels "
        "is dropped from each image",
        WHERE,
        f"{MANY} from about none to about 20 % of a white picture become black",
        _dropout,
    ),
    of_code(
        "each input image is transformed by zoom-in and zoom-out at scale of 50% and 150%, "
        "respectively",
        WHERE,
        "so much of each side is seen, to a fiftieth",
        _zoom,
    ),
    of_code(
        "each image is rotated and sheared at a randomly sampled degree between -30° and 30°",
        WHERE,
        f"an upright line leans by up to 30 degrees either way {MANY}, to a degree or two",
        _angles,
    ),
    of_code(
        "noise is sampled once per pixel from a normal distribution N(0, s), where s is sampled "
        "between 0 and 0.2 x 255",
        WHERE,
        f"the deviation of a grey picture {MANY} goes from about 0 to about that",
        _noise,
    ),
    of_code(
        "we blur each image with a Gaussian kernel with a sigma of 3.0",
        WHERE,
        "the slope of a blurred edge has a deviation of 3 pixels, to a tenth",
        _blur,
    ),
)
