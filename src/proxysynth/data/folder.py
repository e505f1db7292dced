"""A folder of pictures, one sub-folder per class.

photos/boots/1.jpg            the classes are split into seen and unseen, see ClassSplit
photos/train/boots/1.jpg      or the folder itself says which are which:
photos/test/hats/2.jpg        train and test, or train, query and gallery; validation, which may
                              be called val, if wanted
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .class_split import ClassSplit
from .listing import Listing, listing_of_files
from .pictures import SUFFIXES
from .splits import Splits, require_usable

PARTS = ("train", "validation", "test", "query", "gallery")
LAYOUTS = ({"train", "test"}, {"train", "query", "gallery"})  # validation may join either
ALSO_CALLED = {"val": "validation"}
# Beside train, these names are meant as parts and not as classes.
BESIDE_TRAIN = frozenset({*PARTS, *ALSO_CALLED, "valid"} - {"train"})
# Folders that systems leave beside pictures, some with thumbnails inside.
CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found"})


class Scan(NamedTuple):
    """What a folder holds."""

    files: list[tuple[str, str]]  # (name under the folder, class)
    notes: tuple[str, ...]


def open_folder(root: str | os.PathLike[str], rule: ClassSplit | None = None) -> Splits:
    """The splits of a folder: as its own sub-folders say, else by the rule.

    Pictures may lie deeper inside a class's folder. Hidden files and files that are not pictures by
    their name are left out. Links are followed; nothing is ever written.

    Args:
        root: the folder.
        rule: how classes are split; given one, train/ and test/ are taken for classes too.
    """
    base = _folder(root)
    if rule is None:
        parts = _own_parts(base, "use --set split.train=DIR --set split.test=DIR")
        if parts is not None:
            return parts_of_folder(base, parts)
    scan = _scan(base)
    return (rule or ClassSplit())(listing_of_files(base, scan.files), str(root), scan.notes)


def whole_folder(root: str | os.PathLike[str]) -> Listing | None:
    """Every picture of a folder without parts of its own, labelled by its sub-folder; else None."""
    base = _folder(root)
    if _own_parts(base, "give the sub-folder to test on itself") is not None:
        return None
    return listing_of_files(base, _scan(base).files)


def parts_of_folder(
    root: str | os.PathLike[str], parts: Mapping[str, str | os.PathLike[str]]
) -> Splits:
    """The splits from a folder for each part, wherever under the root: train and test, or train,
    query and gallery, and validation if wanted; each has one sub-folder per class."""
    base = _folder(root)
    if set(parts) - {"validation"} not in LAYOUTS:
        raise ValueError(
            "give folders for train and test, or for train, query and gallery (validation if "
            f"wanted), got {', '.join(sorted(parts)) or 'none'}"
        )
    listings: dict[str, Listing] = {}
    notes: list[str] = []
    for name, place in parts.items():
        where = _folder(base / place)
        if not where.is_relative_to(base):
            raise ValueError(f"the folder of {name} must lie under {base}, got {where}")
        scan = _scan(where)
        notes += scan.notes
        prefix = where.relative_to(base)
        files = [((prefix / file).as_posix(), label) for file, label in scan.files]
        listings[name] = listing_of_files(base, files)
    return splits_of_parts(listings, str(root), tuple(notes))


def splits_of_parts(parts: dict[str, Listing], name: str, notes: tuple[str, ...] = ()) -> Splits:
    """The splits of listings by the name of their part; query and gallery get one class table."""
    query, gallery = parts.get("test"), None
    if query is None:
        query, gallery = parts["query"], parts["gallery"]
        classes = tuple(sorted({*query.classes, *gallery.classes}))
        query, gallery = _relabelled(query, classes), _relabelled(gallery, classes)
    made = Splits(parts["train"], query, gallery, parts.get("validation"), name, notes)
    return require_usable(made)


def _relabelled(listing: Listing, classes: tuple[str, ...]) -> Listing:
    place = {name: i for i, name in enumerate(classes)}
    number = np.array([place[name] for name in listing.classes], dtype=np.int64)
    return replace(listing, labels=number[listing.labels], classes=classes)


def _own_parts(base: Path, otherwise: str) -> dict[str, Path] | None:
    """The folder of each part where the sub-folders are called so; None where they are classes.

    Args:
        otherwise: what to do, besides renaming, about names that are neither.
    """
    found = {entry.name: Path(entry.path) for entry in _entries(base) if _is_folder(entry)}
    parts = {ALSO_CALLED.get(name, name): place for name, place in found.items()}
    if len(parts) == len(found) and parts.keys() - {"validation"} in LAYOUTS:
        return parts
    if "train" in found and found.keys() & BESIDE_TRAIN and _holds_classes(found["train"]):
        raise ValueError(
            "expected the sub-folders train and test, or train, query and gallery (validation if "
            f"wanted), got {_some(found)} in {base}: rename them, or {otherwise}"
        )
    return None


def _holds_classes(place: Path) -> bool:
    """Whether a folder has folders and no picture of its own, which a class would have."""
    entries = _entries(place)
    folders = [entry for entry in entries if _is_folder(entry)]
    return bool(folders) and not any(_is_picture(e.path) for e in entries if e not in folders)


def _folder(path: str | os.PathLike[str]) -> Path:
    base = Path(os.path.abspath(os.path.expanduser(path)))
    if not base.exists():
        raise ValueError(f"there is no folder {base}: give one with a sub-folder per class")
    if not base.is_dir():
        raise ValueError(f"{base} is a file: give a folder with a sub-folder per class")
    return base


def _entries(base: str | os.PathLike[str]) -> list[os.DirEntry[str]]:
    """What is in a folder and not hidden, by name."""
    try:
        with os.scandir(base) as found:
            kept = [e for e in found if not e.name.startswith(".") and e.name not in CLUTTER]
    except OSError as error:
        raise ValueError(f"cannot look into the folder {base}: {error.strerror}") from error
    return sorted(kept, key=lambda entry: entry.name)


def _scan(base: Path) -> Scan:
    entries = _entries(base)
    files: list[tuple[str, str]] = []
    empty, others = [], Counter[str]()
    for entry in entries:
        if _is_folder(entry):
            inside = list(_files(entry.path, frozenset({os.path.realpath(base)})))
            pictures = [path for path in inside if _is_picture(path)]
            others.update(_suffix(path) for path in inside if not _is_picture(path))
            files += [(Path(path).relative_to(base).as_posix(), entry.name) for path in pictures]
            if not pictures:
                empty.append(entry.name)
    if not files:
        loose = sum(_is_picture(entry.path) for entry in entries if not _is_folder(entry))
        raise ValueError(_nothing(base, loose, others))
    notes = []
    if empty:
        notes.append(f"{len(empty)} folders hold no picture and are left out: {_some(empty)}.")
    if others:
        kinds = _some(f"{n} {suffix}" for suffix, n in others.most_common())
        notes.append(f"{others.total()} files are no pictures by their name: {kinds}.")
    return Scan(files, tuple(notes))


def _files(place: str, above: frozenset[str]) -> Iterator[str]:
    """All files below a folder. A link back to a folder above is not followed."""
    real = os.path.realpath(place)
    if real in above:
        return
    for entry in _entries(place):
        if _is_folder(entry):
            yield from _files(entry.path, above | {real})
        elif entry.is_symlink() or entry.is_file():  # a broken link is named when it is read
            yield entry.path


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False


def _is_picture(path: str) -> bool:
    return _suffix(path) in SUFFIXES


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower() or "without suffix"


def _nothing(base: Path, loose: int, others: Counter[str]) -> str:
    want = "expected a sub-folder per class with pictures inside"
    if loose:
        return f"{want}, got {loose} pictures directly in {base}: move each class to its own folder"
    if others:
        kinds = _some(f"{n} {suffix}" for suffix, n in others.most_common())
        return f"{want}, got only other files in {base} ({kinds}): convert them to JPEG or PNG"
    return f"{want}, got nothing in {base}: add pictures or give another folder"


def _some(words: Iterable[str], most: int = 5) -> str:
    words = list(words)
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if words[most:] else "")
