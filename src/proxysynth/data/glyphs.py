"""The embedded default: glyphs from the fonts that matplotlib ships. Nothing to download.

One class per character, one image per face, 32 x 32 gray, black on white. Training and test use
different characters. With `distortion`, any number of images per character.
"""

from __future__ import annotations

import io
import unicodedata
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.data.deformations import Segments, degraded, displaced
from proxysynth.data.images import cache_folder
from proxysynth.data.listing import Listing, Splits, cumcount, shuffled_names
from proxysynth.files import write_atomically
from proxysynth.values import digest

if TYPE_CHECKING:  # slow to import, and not needed once the glyphs are cached
    from matplotlib.ft2font import FT2Font

RECIPE = 1  # raised whenever the images change
EXPECTED = "1d1b9a4302d3"  # fingerprint of glyphs() as this version draws it


def glyphs(
    train_classes: int = 100,  # characters seen in training
    test_classes: int = 100,  # unseen characters
    seed: int = 0,  # chooses the characters
    faces_per_class: int = 16,  # images per seen character, 5 to 16
    query_faces: int = 0,  # faces of the queries, the others are the gallery; 0: no gallery
    test_faces: int = 0,  # classification: faces of the seen characters that are tested
    distortion: float = 0.0,  # strength of the seeded distortion of every image
    pictures_per_class: int = 0,  # with distortion: images of every character; 0: one per face
) -> Splits:
    """Characters to train on and other characters to test on, the same on every call.

    The unseen characters depend only on `seed` and their number and have all sixteen faces, so that
    training sets of any size share one test. About 500 distinct characters have sixteen faces,
    three times as many have twelve; a character with more than `faces_per_class` draws its own.
    """
    _check(faces_per_class, query_faces, test_faces, distortion, pictures_per_class)
    if min(train_classes, test_classes) < 2:
        got = f"got {train_classes} and {test_classes}"
        raise ValueError(f"glyphs need at least 2 train_classes and 2 test_classes, {got}")
    seen = train_classes * (pictures_per_class or faces_per_class)
    total = seen + test_classes * (pictures_per_class or len(FACES))
    asked: tuple[float, ...] = (train_classes, test_classes, seed, faces_per_class)
    asked += (distortion, pictures_per_class) if distortion else ()
    path = cache_folder() / f"glyphs-{digest((RECIPE, version('matplotlib'), asked))}.npz"
    # Code point and index into FACES of each image, the training images first.
    pairs, pixels = np.empty((0, 2), dtype=np.int64), np.empty(0, dtype=np.uint8)
    with suppress(Exception), np.load(path, allow_pickle=False) as kept:  # not there, or damaged
        pairs, pixels = kept["pairs"], kept["pixels"]
    if (len(pairs), pixels.shape) != (total, (total, SIDE, SIDE)):
        chosen = _choose(train_classes, test_classes, seed, faces_per_class, pictures_per_class)
        pixels = _distorted(chosen, distortion, seed) if distortion else 255 - draw(chosen)
        pairs = np.array([(code, FACES.index(face)) for code, face in chosen])
        file = io.BytesIO()
        np.savez(file, pairs=pairs, pixels=pixels)
        with suppress(OSError):  # a cache is not needed
            write_atomically(path, file.getbuffer())
    train, test = (_listing(pairs[cut], pixels[cut]) for cut in np.s_[:seen, seen:])
    if test_faces or query_faces:
        drawn = shuffled_names(FACES, seed)[: test_faces or query_faces]
        apart = np.isin(pairs[:, 1], [FACES.index(face) for face in drawn])
        if query_faces:
            query, gallery = (test.take(np.flatnonzero(x[seen:])) for x in (apart, ~apart))
            return Splits(train, query, gallery, name="glyphs")
        tested, trained = (train.take(np.flatnonzero(x[:seen])) for x in (apart, ~apart))
        return Splits(trained, tested, name="glyphs")
    splits = Splits(train, test, name="glyphs")
    if asked == (100, 100, 0, 16) and splits.fingerprint() != EXPECTED:
        message = "matplotlib's fonts have changed: results on glyphs may differ slightly"
        warnings.warn(message, stacklevel=2)
    return splits


def _choose(
    train_classes: int, test_classes: int, seed: int, faces: int, pictures: int
) -> list[tuple[int, str]]:
    """The character and the face of every image."""
    have = {str(code): drawn for code, drawn in alphabet(faces)}
    complete = [name for name, drawn in have.items() if len(drawn) == len(FACES)]
    test = shuffled_names(complete, seed)[:test_classes]
    rest = shuffled_names(have.keys() - set(test), seed)
    if len(test) < test_classes or len(rest) < train_classes:
        raise ValueError(
            f"of {len(have)} characters with at least {faces} faces, {len(complete)} have all "
            f"{len(FACES)}, as test classes must: train_classes={train_classes} and "
            f"test_classes={test_classes} are too many"
        )
    pairs = []
    for names, count in ((rest[:train_classes], faces), (test, len(FACES))):
        for name in sorted(names, key=int):
            drawn = have[name]
            keys = shuffled_names([f"{name}:{face}" for face in drawn], seed)[:count]
            own = [key.partition(":")[2] for key in keys]
            if not pictures:
                own.sort(key=drawn.index)
            pairs += [(int(name), own[i % count]) for i in range(pictures or count)]
    return pairs


def _distorted(pairs: list[tuple[int, str]], strength: float, seed: int) -> NDArray[np.uint8]:
    """Images of (code point, face) pairs, each with draws of its own."""
    codes = [code for code, _ in pairs]
    numbered = zip(codes, cumcount(codes), strict=True)
    draws = [np.random.default_rng([seed, code, number]) for code, number in numbered]
    shapes = (_shape(*pair) for pair in pairs)
    ink = fill(displaced(x, SIDE, strength, rng) for x, rng in zip(shapes, draws, strict=True))
    return np.stack([degraded(x, strength, rng) for x, rng in zip(ink, draws, strict=True)])


def _check(faces: int, query_faces: int, test_faces: int, distortion: float, each: int) -> None:
    for name, value, least, most in (
        ("faces_per_class", faces, MIN_FACES, len(FACES)),
        ("query_faces", query_faces, 0, len(FACES) - 1),
        ("test_faces", test_faces, 0, faces - 1),
        ("distortion", distortion, 0, 4),
    ):
        if not least <= value <= most:
            raise ValueError(f"{name} must be in {least}..{most}, got {value}")
    if query_faces and test_faces:
        raise ValueError("query_faces are for retrieval, test_faces for classification: choose one")
    if test_faces and faces < len(FACES):
        raise ValueError(f"test_faces needs all {len(FACES)} faces, got faces_per_class={faces}")
    if each < 0 or (each and not distortion):
        got = f"got pictures_per_class={each} and distortion={distortion}"
        raise ValueError(f"pictures_per_class must be >= 0, above 0 only with distortion, {got}")


def _listing(pairs: NDArray[np.int64], pixels: NDArray[np.uint8]) -> Listing:
    distinct, labels = np.unique(pairs[:, 0], return_inverse=True)
    names = [f"U+{code:04X}/{FACES[face]}" for code, face in pairs.tolist()]
    numbered = zip(names, cumcount(names), strict=True)
    names = [f"{name}-{i + 1}" if i else name for name, i in numbered]
    classes = (f"U+{code:04X} {unicodedata.name(chr(code), '')}".strip() for code in distinct)
    return Listing(tuple(names), labels, tuple(classes), pixels=pixels)


# Which characters: those that many faces draw, look-alikes kept once

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
SIDE = 32  # pixels of an image's side
EM = 28.0  # pixels per em: capitals are 20 high, with accents 27
FIT = 30.0  # a wider or higher glyph is shrunk to this
ALIKE = 0.05  # squared difference over squared ink below which two images are the same character
MIN_FACES = 5  # a character becomes a class if at least this many faces draw it
# Prefixes of Unicode categories: letters, numbers, punctuation, mathematics, currency. Neither lone
# accents (Sk) nor box drawings and the like (So), which are the same in many faces.
TEXT = ("L", "N", "P", "Sm", "Sc")


@lru_cache(maxsize=len(FACES))
def font(face: str) -> FT2Font:
    """A face of matplotlib with its outlines in its own units."""
    import matplotlib
    from matplotlib.ft2font import FT2Font

    path = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    if not path.is_file():
        raise ValueError(f"matplotlib's font {face}.ttf is missing: reinstall matplotlib")
    # Before 3.11, matplotlib by default squeezes outlines to an eighth of their width.
    options: Any = {"hinting_factor": 1} if matplotlib.__version_info__ < (3, 11) else {}
    return FT2Font(str(path), **options)


@lru_cache(maxsize=4)
def alphabet(min_faces: int) -> tuple[tuple[int, tuple[str, ...]], ...]:
    """(code point, its faces) of all characters that at least `min_faces` faces draw.

    More faces come first, so that those with sixteen do not depend on `min_faces`; then lower code
    points. One that looks like an earlier one in DejaVu Sans (A, Alpha) is skipped.
    """
    faces: dict[int, list[str]] = {}
    for face in FACES:
        for code in font(face).get_charmap():
            if unicodedata.category(chr(code)).startswith(TEXT):
                faces.setdefault(code, []).append(face)
    pool = [code for code, have in faces.items() if len(have) >= min_faces and FACES[0] in have]
    pool.sort(key=lambda code: (-len(faces[code]), code))
    pool = [code for code in pool if all(has_ink(font(face), code) for face in faces[code])]
    ink = draw([(code, FACES[0]) for code in pool]).reshape(len(pool), -1).astype(np.float64)
    size = (ink * ink).sum(axis=1)  # of integers below 2^53: exact in float64, in any order
    kept: list[int] = []
    for i in range(len(pool)):
        others = np.array(kept, dtype=np.int64)
        apart = size[i] + size[others] - 2 * (ink[others] @ ink[i])
        if np.all(apart >= ALIKE * np.maximum(size[i], size[others])):
            kept.append(i)
    return tuple((pool[i], tuple(faces[pool[i]])) for i in kept)


# Outlines to gray images, the same bytes on every machine. A font library's own bitmaps change with
# its version and hinting, but outlines in font units are integers. They are drawn here with
# arithmetic that rounds the same way everywhere: sixteen scan lines per row of pixels, exact
# coverage along each line.

LINES = 16  # scan lines per row of pixels
CURVE_STEPS = 8  # line segments per curve: at 32 pixels more give the same image
CHUNK = 64  # glyphs drawn at a time, to bound memory

MOVE, LINE, QUADRATIC, CUBIC, CLOSE = 1, 2, 3, 4, 79  # matplotlib's path codes


def has_ink(font: FT2Font, code_point: int) -> bool:
    """Whether the glyph has an outline: a blank Braille cell has none."""
    left, bottom, right, top = font.load_char(code_point, flags=_unscaled()).bbox
    return right > left and top > bottom


def outline(font: FT2Font, code_point: int) -> Segments:
    """The closed contours of a character as line segments, in units of the em, y upwards."""
    font.load_char(code_point, flags=_unscaled())
    vertices, codes = font.get_path()
    # matplotlib divides by 64 as if these were 26.6 fixed point; font units are not.
    points = np.asarray(vertices, dtype=np.float64) * (64.0 / font.units_per_EM)
    codes = np.asarray(codes)
    places = np.arange(len(codes))
    # Each entry starts where the previous one ended; a contour closes where it began.
    begun = np.maximum.accumulate(np.where(codes == MOVE, places, 0))
    closing = places[codes == CLOSE]
    pieces = [np.concatenate([points[closing - 1], points[begun[closing]]], axis=1)]
    for code, size in ((LINE, 1), (QUADRATIC, 2), (CUBIC, 3)):
        first = places[codes == code].reshape(-1, size)[:, 0]
        pieces.append(_pieces([points[first + i] for i in range(-1, size)]))
    return np.concatenate(pieces)


def draw(pairs: list[tuple[int, str]]) -> NDArray[np.uint8]:
    """Images (n, 32, 32) of (code point, face) pairs: ink is 255, paper 0."""
    return fill(_shape(*pair) for pair in pairs)


@lru_cache(maxsize=4096)  # distorted, each is drawn several times
def _shape(code_point: int, face: str) -> Segments:
    return centered(outline(font(face), code_point))


def _unscaled() -> Any:
    """The flag for font units: in an enum since matplotlib 3.10, a constant before."""
    from matplotlib import ft2font

    module: Any = ft2font
    return module.LoadFlags.NO_SCALE if hasattr(module, "LoadFlags") else module.LOAD_NO_SCALE


def _pieces(control: list[NDArray[np.float64]]) -> Segments:
    """Bezier curves, given by their control points (s, 2), as line segments."""
    steps = 1 if len(control) == 2 else CURVE_STEPS
    t = (np.arange(steps + 1) / steps)[:, None, None]
    level = [point[None] for point in control]
    while len(level) > 1:  # de Casteljau
        level = [a + t * (b - a) for a, b in pairwise(level)]
    along = level[0]
    along[-1] = control[-1]  # exactly, or rounding would leave a gap in the contour
    return np.concatenate([along[:-1], along[1:]], axis=2).reshape(-1, 4)


def centered(segments: Segments) -> Segments:
    """The outline in pixels, y downwards, its bounding box centered in the image."""
    if not len(segments):
        return segments
    x, y = segments[:, 0], segments[:, 1]
    width, height = x.max() - x.min(), y.max() - y.min()
    scale = min(EM, FIT / max(width, height, 1e-9))
    middle = np.array([(x.max() + x.min()) / 2, (y.max() + y.min()) / 2] * 2)
    return (segments - middle) * (np.array([1.0, -1.0, 1.0, -1.0]) * scale) + SIDE / 2


def fill(outlines: Iterable[Segments]) -> NDArray[np.uint8]:
    """Coverage of each pixel by the inside of the outlines (non-zero winding), 0 to 255."""
    waiting, made = iter(outlines), [np.empty((0, SIDE, SIDE), dtype=np.uint8)]
    while glyphs := list(islice(waiting, CHUNK)):
        made.append(_fill(glyphs))
    return np.concatenate(made)


def _fill(glyphs: list[Segments]) -> NDArray[np.uint8]:
    owner = np.repeat(np.arange(len(glyphs)), [len(g) for g in glyphs])
    x0, y0, x1, y1 = np.concatenate(glyphs).T if len(owner) else np.zeros((4, 0))
    rows, width = SIDE * LINES, SIDE + 2  # crossings may lie at the right border and beside it
    # The scan lines j + 1/2 that a segment crosses, in units of a line.
    low, high = np.minimum(y0, y1) * LINES, np.maximum(y0, y1) * LINES
    first = np.clip(np.ceil(low - 0.5), 0, rows).astype(np.int64)
    count = np.clip(np.ceil(high - 0.5), 0, rows).astype(np.int64) - first
    piece = np.repeat(np.arange(len(owner)), count)
    line = first[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    t = ((line + 0.5) / LINES - y0[piece]) / (y1[piece] - y0[piece])
    x = np.clip(x0[piece] + t * (x1[piece] - x0[piece]), 0, SIDE)
    turn = np.where(y1[piece] > y0[piece], 1.0, -1.0)
    # A crossing at x covers everything to its right: its own pixel in part, later ones fully.
    column = np.floor(x).astype(np.int64)
    spot = (owner[piece] * rows + line) * width + column
    size = len(glyphs) * rows * width
    change = np.zeros(size)  # floats: of no crossings, bincount makes integers
    change += np.bincount(spot, turn * (1 - (x - column)), size)
    change += np.bincount(spot + 1, turn * (x - column), size)
    winding = np.cumsum(change.reshape(len(glyphs), SIDE, LINES, width), axis=-1)[..., :SIDE]
    covered = np.minimum(np.abs(winding, out=winding), 1.0, out=winding)
    # Integers before the sum, so that its order does not matter; 1e-6 above the half, so that a
    # half is rounded up even with a rounding error.
    levels = np.floor(covered * 255 + (0.5 + 1e-6)).sum(axis=2)
    return ((levels + LINES / 2) // LINES).astype(np.uint8)
