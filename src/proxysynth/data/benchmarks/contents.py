"""What a copy of a benchmark says it holds, and what of that is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..listing import Listing
from ..pictures import SUFFIXES
from .catalogue import Benchmark


@dataclass(frozen=True, eq=False)
class Contents:
    """A copy as its own label files describe it, whether or not every picture is there.

    Args:
        base: the folder of the copy; all names below are under it.
        parts: the pictures of train and test, or of train, query and gallery.
        labels: for each part the file that names its pictures; "" where folders do.
        files: label files, which a shrunken copy needs too.
        folders: where its pictures lie, and nothing else should.
        missing: files of many pictures each, or folders, that are not there.
        damaged: files of many pictures each that cannot be read, with a sentence that says why.
    """

    base: Path
    parts: dict[str, Listing]
    labels: dict[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    damaged: tuple[tuple[str, str], ...] = ()


def copy_folder(entry: Benchmark, root: str | os.PathLike[str], wanted: Sequence[str]) -> Path:
    """The folder of the copy: `root` or one that its archive makes inside, with a wanted file."""
    text = os.fspath(root)
    if not text:
        raise ValueError(f"say where {entry.title} lies: write {entry.name}:ROOT with its folder")
    base = Path(os.path.abspath(os.path.expanduser(text)))
    if not base.is_dir():
        what = "is a file" if base.exists() else "does not exist"
        raise ValueError(f"{base} {what}: give the folder of {entry.title}, with {wanted[0]} in it")
    for folder in ("", *entry.folders):
        if any((base / folder / name).exists() for name in wanted):
            return base / folder
    raise ValueError(
        f"{base} holds no copy of {entry.title}, there is no {' or '.join(wanted)}: "
        f"{how_to_get(entry, base)}"
    )


def how_to_get(entry: Benchmark, base: Path) -> str:
    """The end of a message: what to do about files that are not there."""
    for archive in entry.archives:
        for folder in (base, base.parent):
            if (folder / archive).is_file():
                return f"unpack {folder / archive} first"
    if not entry.offered:
        return f"find a copy of it, its page {entry.published} no longer has one"
    return f"download it from {entry.published} and unpack it there"


def first_there(base: Path, names: Iterable[str]) -> str | None:
    """The first of these files or folders that the copy has."""
    return next((name for name in names if (base / name).exists()), None)


def picture_files(folder: Path) -> list[str]:
    """The pictures in a folder by name, hidden ones left out; none where it is not there."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [
        name
        for name in names
        if os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")
    ]


def class_folders(base: Path) -> list[tuple[str, list[str]]]:
    """The sub-folders with pictures in them, by name, each with the names of these."""
    try:
        with os.scandir(base) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir())
    except OSError:
        return []
    found = [(name, picture_files(base / name)) for name in names if not name.startswith(".")]
    return [(name, pictures) for name, pictures in found if pictures]


def labelled(base: Path, files: Sequence[tuple[str, str]], classes: Sequence[str]) -> Listing:
    """A listing of (name, class) pairs in their order, labelled by the place of each class."""
    place = {name: i for i, name in enumerate(classes)}
    return Listing(
        names=tuple(name for name, _ in files),
        labels=np.array([place[label] for _, label in files], dtype=np.int64),
        classes=tuple(classes),
        root=base,
    )


def there(listing: Listing) -> NDArray[np.bool_]:
    """Which pictures are there, (n,). Each folder is looked into once, which is many times faster
    than to ask for each file."""
    if listing.root is None:
        return np.ones(len(listing), dtype=np.bool_)
    folders: dict[str, frozenset[str]] = {}
    found = np.zeros(len(listing), dtype=np.bool_)
    for i, name in enumerate(listing.names):
        folder, _, file = name.rpartition("/")
        if folder not in folders:
            folders[folder] = _files_in(listing.root / folder)
        found[i] = file in folders[folder]
    return found


def extra_files(contents: Contents) -> list[str]:
    """Files in the folders of pictures that no label file names; hidden ones are left out."""
    named = {name for part in contents.parts.values() for name in part.names}
    extra = []
    for folder in contents.folders:
        for place, inner, files in os.walk(contents.base / folder):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            under = Path(place).relative_to(contents.base)
            names = ((under / file).as_posix() for file in files if not file.startswith("."))
            extra += sorted(name for name in names if name not in named)
    return extra


def _files_in(folder: Path) -> frozenset[str]:
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries if not entry.is_dir())
    except OSError:  # not there, or not a folder: nothing in it is
        return frozenset()
