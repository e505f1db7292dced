"""The embedded default: real glyphs from the fonts that matplotlib ships. Nothing to download.

One class per character, one picture per face, 32 x 32 grey, black ink on white. The characters of
the test are others than those of training, so a model is asked for shapes it has never been taught.
"""

from __future__ import annotations

import io
import unicodedata
import warnings
import zipfile
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from numpy.typing import NDArray

from proxysynth.values import digest

from .alphabet import FACES, MIN_FACES, SIDE, alphabet, draw_characters
from .cache_folder import cache_folder, keep
from .listing import Listing, shuffled_names
from .splits import Splits

RECIPE = 1  # raised whenever the pictures change
EXPECTED = "1d1b9a4302d3"  # fingerprint of glyphs() as this version draws it


class Drawn(NamedTuple):
    """The pictures of a set, those of training first."""

    codes: NDArray[np.int64]  # (n,) code points
    faces: NDArray[np.int64]  # (n,) places in FACES
    pixels: NDArray[np.uint8]  # (n, 32, 32), paper is 255

    def part(self, which: slice) -> Drawn:
        return Drawn(self.codes[which], self.faces[which], self.pixels[which])


def glyphs(
    train_classes: int = 100,
    test_classes: int = 100,
    seed: int = 0,
    faces_per_class: int = 16,
    query_faces: int = 0,
    test_faces: int = 0,
) -> Splits:
    """Characters to train on and other characters to test on, the same on every call.

    Args:
        train_classes: how many characters are seen in training.
        test_classes: how many others are tested; they depend on `seed` and this number alone and
            always have all sixteen faces, so that trainings of every size share one test.
        seed: chooses the characters.
        faces_per_class: pictures per seen character, 5 to 16. Some 500 distinct characters have
            sixteen faces, three times as many have twelve; where a character has more faces than
            asked for, it draws its own choice of them.
        query_faces: so many faces of the unseen characters, drawn by `seed`, are looked up among
            the pictures in the others; 0 looks every picture up among all the rest.
        test_faces: classification instead: so many faces of the seen characters are tested, the
            others trained on.
    """
    asked = (train_classes, test_classes, seed, faces_per_class)
    if not MIN_FACES <= faces_per_class <= len(FACES):
        raise ValueError(
            f"faces_per_class must be {MIN_FACES} to {len(FACES)}, got {faces_per_class}"
        )
    if min(train_classes, test_classes) < 2:
        raise ValueError(
            "glyphs need at least 2 classes to train and 2 to test on, "
            f"got train_classes={train_classes} and test_classes={test_classes}"
        )
    _check_faces(faces_per_class, query_faces, test_faces)
    seen = train_classes * faces_per_class
    path = cache_folder() / f"glyphs-{digest((RECIPE, matplotlib.__version__, asked))}.npz"
    made = _read(path, seen + test_classes * len(FACES))
    if made is None:
        made = _draw(*asked)
        _write(path, made)
    train, test = made.part(slice(0, seen)), made.part(slice(seen, None))
    if test_faces:
        tested, trained = _by_face(train, test_faces, seed)
        return Splits(train=trained, query=tested, name="glyphs")
    if query_faces:
        query, gallery = _by_face(test, query_faces, seed)
        return Splits(train=_listing(train), query=query, gallery=gallery, name="glyphs")
    splits = Splits(train=_listing(train), query=_listing(test), name="glyphs")
    found = splits.fingerprint()
    if asked == (100, 100, 0, 16) and found != EXPECTED:
        warnings.warn(
            f"the glyphs drawn here have the hash {found}, not {EXPECTED}: matplotlib's fonts or "
            "the renderer are of another version, so results may differ slightly from published "
            "ones",
            stacklevel=2,
        )
    return splits


def _draw(train_classes: int, test_classes: int, seed: int, faces: int) -> Drawn:
    have = {str(code): drawn for code, drawn in alphabet(faces)}
    complete = [name for name, drawn in have.items() if len(drawn) == len(FACES)]
    test = shuffled_names(complete, seed)[:test_classes]
    rest = shuffled_names(have.keys() - set(test), seed)
    if len(test) < test_classes or len(rest) < train_classes:
        raise ValueError(
            f"there are {len(complete)} characters of {len(FACES)} faces to test on and then "
            f"{len(rest)} of {faces} faces to train on, got test_classes={test_classes} and "
            f"train_classes={train_classes}: ask for fewer classes or fewer faces_per_class"
        )
    pairs = []
    for names, count in ((rest[:train_classes], faces), (test, len(FACES))):
        for name in sorted(names, key=int):
            own = shuffled_names([f"{name}:{face}" for face in have[name]], seed)[:count]
            pairs += [(int(name), face) for face in have[name] if f"{name}:{face}" in own]
    return Drawn(
        codes=np.array([code for code, _ in pairs], dtype=np.int64),
        faces=np.array([FACES.index(face) for _, face in pairs], dtype=np.int64),
        pixels=255 - draw_characters(pairs),
    )


def _by_face(made: Drawn, count: int, seed: int) -> tuple[Listing, Listing]:
    """The pictures in so many faces, and those in the others, with one table of classes."""
    chosen = [FACES.index(face) for face in shuffled_names(FACES, seed)[:count]]
    listing, apart = _listing(made), np.isin(made.faces, chosen)
    return listing.take(np.flatnonzero(apart)), listing.take(np.flatnonzero(~apart))


def _check_faces(faces_per_class: int, query_faces: int, test_faces: int) -> None:
    if query_faces and test_faces:
        raise ValueError(
            "query_faces is for retrieval and test_faces for classification, got both: choose one"
        )
    for name, count, of in (
        ("query_faces", query_faces, len(FACES)),
        ("test_faces", test_faces, faces_per_class),
    ):
        if not 0 <= count < of:
            raise ValueError(f"{name} must be 0 to {of - 1}, so that others are left, got {count}")
    if test_faces and faces_per_class < len(FACES):
        raise ValueError(
            f"test_faces splits all {len(FACES)} faces, got faces_per_class={faces_per_class}: "
            "leave that out"
        )


def _listing(made: Drawn) -> Listing:
    codes, labels = np.unique(made.codes, return_inverse=True)
    return Listing(
        names=tuple(
            f"U+{code:04X}/{FACES[face]}" for code, face in zip(made.codes, made.faces, strict=True)
        ),
        labels=labels,
        classes=tuple(f"U+{code:04X} {unicodedata.name(chr(code), '')}".strip() for code in codes),
        pixels=made.pixels,
    )


def _write(path: Path, made: Drawn) -> None:
    file = io.BytesIO()
    np.savez(file, **made._asdict())
    keep(path, [file.getbuffer()])


def _read(path: Path, n: int) -> Drawn | None:
    """A set from the cache, or None where there is none that is whole."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            made = Drawn(**{name: kept[name] for name in Drawn._fields})
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile):
        return None
    shapes = [part.shape for part in made]
    return made if shapes == [(n,), (n,), (n, SIDE, SIDE)] else None
