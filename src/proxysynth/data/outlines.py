"""Font outlines to grey pictures, the same bytes on every machine.

A font library's own bitmaps change with its version and its hinting. Outlines in font units are
whole numbers and never change, so glyphs are drawn from them here, with arithmetic that rounds the
same way everywhere: sixteen scan lines per row of pixels, exact coverage along each line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
from matplotlib import ft2font
from numpy.typing import NDArray

LINES = 16  # scan lines per row of pixels
CURVE_STEPS = 8  # straight pieces per curve: at 32 pixels a finer curve gives the same picture
CHUNK = 64  # glyphs drawn at once, so that memory stays small

MOVE, LINE, QUADRATIC, CUBIC, CLOSE = 1, 2, 3, 4, 79  # matplotlib's path codes

Segments = NDArray[np.float64]  # (s, 4): x0, y0, x1, y1 of straight pieces, y upwards


def open_font(path: str | os.PathLike[str]) -> ft2font.FT2Font:
    """A font whose outlines come in its own units."""
    # Before 3.11, matplotlib squeezes outlines to an eighth of their width unless told not to.
    unsqueezed: dict[str, Any] = {}
    if matplotlib.__version_info__ < (3, 11):
        unsqueezed["hinting_factor"] = 1
    return ft2font.FT2Font(os.fspath(path), **unsqueezed)


def characters(font: ft2font.FT2Font) -> frozenset[int]:
    """Code points that the font maps to a glyph."""
    return frozenset(font.get_charmap())


def has_ink(font: ft2font.FT2Font, code_point: int) -> bool:
    """Whether the glyph has an outline at all: a blank Braille cell has none."""
    left, bottom, right, top = font.load_char(code_point, flags=_unscaled()).bbox
    return right > left and top > bottom


def outline(font: ft2font.FT2Font, code_point: int) -> Segments:
    """The outline of one character as straight pieces of closed contours, in units of the em."""
    font.load_char(code_point, flags=_unscaled())
    vertices, codes = font.get_path()
    # matplotlib divides by 64 what it takes for 26.6 fixed point; in font units it is not.
    points = np.asarray(vertices, dtype=np.float64) * (64.0 / font.units_per_EM)
    codes = np.asarray(codes)
    places = np.arange(len(codes))
    # Each entry starts where the one before it ended; a contour closes where it was begun.
    begun = np.maximum.accumulate(np.where(codes == MOVE, places, 0))
    closing = places[codes == CLOSE]
    pieces = [np.concatenate([points[closing - 1], points[begun[closing]]], axis=1)]
    for code, size in ((LINE, 1), (QUADRATIC, 2), (CUBIC, 3)):
        first = places[codes == code].reshape(-1, size)[:, 0]
        pieces.append(_pieces([points[first + i] for i in range(-1, size)]))
    return np.concatenate(pieces)


def draw(outlines: Sequence[Segments], side: int, em: float, fit: float) -> NDArray[np.uint8]:
    """Pictures (n, side, side): ink is 255, paper 0, the middle of the glyph in the middle.

    Args:
        em: pixels per em.
        fit: the largest width or height in pixels; a larger glyph is shrunk to it.
    """
    made = np.zeros((len(outlines), side, side), dtype=np.uint8)
    for start in range(0, len(outlines), CHUNK):
        part = [_placed(o, side, em, fit) for o in outlines[start : start + CHUNK]]
        made[start : start + len(part)] = _fill(part, side)
    return made


def _unscaled() -> Any:
    """The flag for font units: an enum's since matplotlib 3.10, a plain constant before."""
    flags = getattr(ft2font, "LoadFlags", None)
    return flags.NO_SCALE if flags is not None else getattr(ft2font, "LOAD_NO_SCALE")  # noqa: B009


def _pieces(control: list[NDArray[np.float64]]) -> Segments:
    """Bezier curves, given by their control points (s, 2), cut into straight pieces."""
    steps = 1 if len(control) == 2 else CURVE_STEPS
    t = (np.arange(steps + 1) / steps)[:, None, None]
    level = [point[None] for point in control]
    while len(level) > 1:  # de Casteljau
        level = [a + t * (b - a) for a, b in pairwise(level)]
    along = level[0]
    along[-1] = control[-1]  # exactly, or the contour would have a gap of a rounding error
    return np.concatenate([along[:-1], along[1:]], axis=2).reshape(-1, 4)


def _placed(segments: Segments, side: int, em: float, fit: float) -> Segments:
    """The outline in pixels, y downwards, its bounding box centred in the picture."""
    if not len(segments):
        return segments
    x, y = segments[:, 0], segments[:, 1]
    width, height = x.max() - x.min(), y.max() - y.min()
    scale = min(em, fit / max(width, height, 1e-9))
    middle = np.array([(x.max() + x.min()) / 2, (y.max() + y.min()) / 2] * 2)
    return (segments - middle) * (np.array([1.0, -1.0, 1.0, -1.0]) * scale) + side / 2


def _fill(glyphs: Sequence[Segments], side: int) -> NDArray[np.uint8]:
    """Coverage of each pixel by the inside of the outlines (non-zero winding), 0 to 255."""
    owner = np.repeat(np.arange(len(glyphs)), [len(g) for g in glyphs])
    x0, y0, x1, y1 = np.concatenate(glyphs).T if len(owner) else np.zeros((4, 0))
    rows = side * LINES
    # The scan lines j + 1/2 that a piece crosses, in units of a line.
    low, high = np.minimum(y0, y1) * LINES, np.maximum(y0, y1) * LINES
    first = np.clip(np.ceil(low - 0.5), 0, rows).astype(np.int64)
    count = np.clip(np.ceil(high - 0.5), 0, rows).astype(np.int64) - first
    piece = np.repeat(np.arange(len(owner)), count)
    line = first[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    t = ((line + 0.5) / LINES - y0[piece]) / (y1[piece] - y0[piece])
    x = np.clip(x0[piece] + t * (x1[piece] - x0[piece]), 0, side)
    turn = np.where(y1[piece] > y0[piece], 1.0, -1.0)
    # A crossing at x covers what lies to its right: its own pixel in part, all later ones wholly.
    column = np.floor(x).astype(np.int64)
    spot = (owner[piece] * rows + line) * (side + 2) + column
    size = len(glyphs) * rows * (side + 2)
    change = np.zeros(size)
    change += np.bincount(spot, turn * (1 - (x - column)), size)
    change += np.bincount(spot + 1, turn * (x - column), size)
    winding = np.cumsum(change.reshape(len(glyphs), side, LINES, side + 2), axis=-1)[..., :side]
    covered = np.minimum(np.abs(winding, out=winding), 1.0, out=winding)
    # Whole numbers before the sum, so that its order cannot matter; a hair above the half, so that
    # a half goes up even where rounding errors left it a hair below.
    levels = np.floor(covered * 255 + (0.5 + 1e-6)).sum(axis=2)
    return ((levels + LINES / 2) // LINES).astype(np.uint8)
