"""Which characters the glyph set is made of: those that many faces draw, look-alikes kept once."""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray

from .outlines import characters, draw, has_ink, open_font, outline

# Four families in regular, bold, italic and bold italic, as matplotlib names their files.
FACES = tuple(
    family + style
    for family, styles in (
        ("DejaVuSans", ("", "-Bold", "-Oblique", "-BoldOblique")),
        ("DejaVuSansMono", ("", "-Bold", "-Oblique", "-BoldOblique")),
        ("DejaVuSerif", ("", "-Bold", "-Italic", "-BoldItalic")),
        ("STIXGeneral", ("", "Bol", "Italic", "BolIta")),
    )
    for style in styles
)
SIDE = 32  # pixels of a picture's side
EM = 28.0  # pixels per em: capitals are 20 high, with accents 27
FIT = 30.0  # a glyph wider or higher than this is shrunk to it
ALIKE = 0.05  # squared difference over squared ink below which two pictures are the same character
MIN_FACES = 5  # a character drawn by fewer faces makes no class
# Beginnings of Unicode categories: letters, numbers, punctuation, mathematics, currency. Neither
# lone accents (Sk) nor box drawings and the like (So), which faces copy from each other.
TEXT = ("L", "N", "P", "Sm", "Sc")


@lru_cache(maxsize=len(FACES))
def font(face: str) -> FT2Font:
    """One of matplotlib's own faces."""
    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    if not path.is_file():
        raise ValueError(
            f"matplotlib's font {face}.ttf is missing: the glyph set is drawn from it, "
            "reinstall matplotlib or train on a folder of pictures"
        )
    return open_font(path)


def draw_characters(pairs: list[tuple[int, str]]) -> NDArray[np.uint8]:
    """Pictures (n, 32, 32) of (code point, face) pairs; ink is 255."""
    return draw([outline(font(face), code) for code, face in pairs], SIDE, EM, FIT)


@lru_cache(maxsize=4)
def alphabet(min_faces: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """(code point, its faces) of all characters that at least `min_faces` faces draw.

    Characters drawn by more faces come first, then lower code points; one that looks like an
    earlier one in DejaVu Sans (A, Alpha and the Cyrillic A) is left out. So the characters of all
    sixteen faces are the same whatever `min_faces` is.
    """
    faces: dict[int, list[str]] = {}
    for face in FACES:
        for code in characters(font(face)):
            if unicodedata.category(chr(code)).startswith(TEXT):
                faces.setdefault(code, []).append(face)
    pool = [code for code, have in faces.items() if len(have) >= min_faces and FACES[0] in have]
    pool.sort(key=lambda code: (-len(faces[code]), code))
    pool = [code for code in pool if all(has_ink(font(face), code) for face in faces[code])]
    return tuple((pool[i], tuple(faces[pool[i]])) for i in _distinct(pool))


def _distinct(pool: list[int]) -> list[int]:
    """Places in `pool` of the characters that look like none before them."""
    ink = draw_characters([(code, FACES[0]) for code in pool]).reshape(len(pool), -1)
    # Sums of whole numbers below 2^53: exact in float64, in whatever order they are added.
    ink = ink.astype(np.float64)
    size = (ink * ink).sum(axis=1)
    kept: list[int] = []
    for i in range(len(pool)):
        others = np.array(kept, dtype=np.int64)
        apart = size[i] + size[others] - 2 * (ink[others] @ ink[i])
        if not len(others) or np.all(apart >= ALIKE * np.maximum(size[i], size[others])):
            kept.append(i)
    return kept
