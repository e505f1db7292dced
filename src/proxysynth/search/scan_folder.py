"""The pictures of a folder, however deep, with size and time: what tells a changed file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from proxysynth.data.folder import CLUTTER
from proxysynth.data.pictures import SUFFIXES
from proxysynth.search.texts import encoded


class Found(NamedTuple):
    """A file: path under the folder with forward slashes, size in bytes, time in nanoseconds."""

    path: str
    size: int
    time: int

    @property
    def label(self) -> str | None:
        """The sub-folder that it lies in, however deep; None for a file beside the sub-folders."""
        first, slash, _ = self.path.partition("/")
        return first if slash else None


def scan_folder(folder: str | os.PathLike[str]) -> list[Found]:
    """Every file that is a picture by its name, sorted by the bytes of its path.

    Hidden files are left out, links are followed, nothing is written. A broken link is listed with
    size and time 0, so that it is reported when it is read.
    """
    base = Path(os.path.abspath(os.path.expanduser(folder)))
    if not base.exists():
        raise ValueError(f"there is no folder {base}: give the folder of the pictures to search in")
    if not base.is_dir():
        raise ValueError(f"{base} is a file: give the folder of the pictures to search in")
    found = sorted(_files(str(base), "", frozenset()), key=lambda file: encoded(file.path))
    if not found:
        raise ValueError(
            f"expected pictures in {base} or its sub-folders, got none: give another folder, or "
            "convert them to JPEG or PNG"
        )
    return found


def _files(place: str, prefix: str, above: frozenset[str]) -> Iterator[Found]:
    real = os.path.realpath(place)
    if real in above:  # a link back to a folder above
        return
    try:
        with os.scandir(place) as entries:
            kept = [e for e in entries if not e.name.startswith(".") and e.name not in CLUTTER]
    except OSError as error:
        raise ValueError(f"cannot look into the folder {place}: {error.strerror}") from error
    for entry in kept:
        # A link may lead nowhere, or round to itself, which `is_dir` of an entry does not forgive.
        if os.path.isdir(entry.path) if entry.is_symlink() else entry.is_dir():
            yield from _files(entry.path, f"{prefix}{entry.name}/", above | {real})
        elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:
            try:
                about = entry.stat()
                size, time = about.st_size, about.st_mtime_ns
            except OSError:
                size, time = 0, 0
            yield Found(f"{prefix}{entry.name}", size, time)
