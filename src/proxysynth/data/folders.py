"""What is in a folder of images, without hidden files and what systems leave beside images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import filterfalse
from pathlib import Path

from proxysynth.data.images import SUFFIXES, PathLike
from proxysynth.errors import reason
from proxysynth.formatting import printable

# Folders that systems leave beside images, some with thumbnails inside.
CLUTTER = frozenset({"__MACOSX", "@eaDir", "$RECYCLE.BIN", "lost+found"})


def absolute(path: PathLike) -> Path:
    return Path(os.path.abspath(os.path.expanduser(path)))


def existing_folder(path: PathLike, advice: str) -> Path:
    """The absolute path of a folder; the error of another path ends in the advice."""
    base = absolute(path)
    if not base.is_dir():
        what = "is a file" if base.exists() else "does not exist"
        raise ValueError(f"{printable(base)} {what}: {advice}")
    return base


def folder_entries(place: PathLike) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """The folders in a folder and its other entries, by name."""
    try:
        with os.scandir(place) as found:
            kept = [e for e in found if not e.name.startswith(".") and e.name not in CLUTTER]
    except OSError as error:
        raise ValueError(f"cannot read the folder {printable(place)}: {reason(error)}") from error

    def is_folder(entry: os.DirEntry[str]) -> bool:
        # Of a circular link, `entry.is_dir` raises.
        return os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir()

    kept.sort(key=lambda entry: entry.name)
    return list(filter(is_folder, kept)), list(filterfalse(is_folder, kept))


def files_below(place: PathLike, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """All files below a folder. A link back to a folder above is not followed."""
    real = os.path.realpath(place)
    if real in above:
        return
    folders, others = folder_entries(place)
    for entry in others:
        if entry.is_symlink() or entry.is_file():  # a broken link is reported when it is read
            yield entry.path
    for entry in folders:
        yield from files_below(entry.path, above | {real})


def is_image(path: str) -> bool:
    """Whether a file has the name of an image."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def image_files(folder: PathLike) -> list[str]:
    """The names of the images in a folder; none if it does not exist."""
    if not os.path.isdir(folder):
        return []
    return [entry.name for entry in folder_entries(folder)[1] if is_image(entry.name)]


def some_names(names: Iterable[str], most: int = 5) -> str:
    """The first names as shown in a message, and how many more there are."""
    names = [printable(name) for name in names]
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if names[most:] else "")
