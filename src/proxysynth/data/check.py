"""Reads every image once before training, so that a bad file is named now and not in epoch 7.

Files that were read without a fault are remembered by path, size and time of change, in the cache
folder: the hundreds of Runs behind a table read them once.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from proxysynth.data.images import ImageCache, UnreadableImage, cache_folder, open_image
from proxysynth.data.listing import Listing, Splits, require_usable
from proxysynth.formatting import printable

SHOWN = 10  # unreadable images named in one message
Progress = Callable[[int, int], None]  # images done, images in total
Item = TypeVar("Item")
Result = TypeVar("Result")


class UnreadableImages(ValueError):
    """Several images that cannot be read; `images` holds an UnreadableImage for each."""

    def __init__(self, images: Sequence[UnreadableImage], total: int) -> None:
        super().__init__(images, total)
        self.images = tuple(images)
        self.total = total

    def __str__(self) -> str:
        return f"{self.summary()}; fix or remove them, or skip them with --skip-bad"

    def summary(self) -> str:
        named = "; ".join(f"{printable(e.path)} ({e.reason})" for e in self.images[:SHOWN])
        more = len(self.images) - SHOWN
        named += f"; and {more} more" if more > 0 else ""
        return f"{len(self.images)} of {self.total} images cannot be read: {named}"


def in_threads(
    work: Callable[[Item], Result], items: Sequence[Item], workers: int, progress: Progress | None
) -> list[Result]:
    """The result of the work for each item, in order."""
    results = []
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for result in pool.map(work, items):
            results.append(result)
            if progress is not None:
                progress(len(results), len(items))
    return results


def unreadable_images(
    parts: Mapping[str, Listing],
    cache: ImageCache | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> list[tuple[str, int, UnreadableImage]]:
    """The listing and index of each image that cannot be decoded. Fills the cache, if any."""

    def problem(path: Path) -> UnreadableImage | None:
        try:
            if cache is not None:
                cache.image(path)
            else:
                open_image(path, at_least=1)  # every byte is read, few pixels are made
        except UnreadableImage as error:
            return error
        return None

    images = [(name, *file) for name, part in parts.items() for file in enumerate(part.paths())]
    found = in_threads(problem, [path for _, _, path in images], workers, progress)
    return [(name, i, e) for (name, i, _), e in zip(images, found, strict=True) if e is not None]


def check_splits(
    splits: Splits,
    skip_bad: bool = False,
    cache: ImageCache | None = None,
    workers: int = 0,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> Splits:
    """The splits with every image readable; `skip_bad` leaves out the others, with a note, instead
    of raising. `say` gets a line for each of them if there are more than one message names."""
    parts = splits.parts
    memo = _memo([path for part in parts.values() for path in part.paths()])
    if memo is not None and memo.exists():
        return splits
    bad = unreadable_images(parts, cache, workers, progress)
    if not bad:
        with contextlib.suppress(OSError):  # a cache that cannot be written is no fault
            if memo is not None:
                memo.parent.mkdir(parents=True, exist_ok=True)
                memo.touch()
        return splits
    errors = [error for _, _, error in bad]
    problem = UnreadableImages(errors, sum(map(len, parts.values())))
    if say is not None and len(errors) > SHOWN:
        say("\n".join(f"{printable(e.path)}: {e.reason}" for e in errors))
    if not skip_bad:
        raise problem
    kept: dict[str, Any] = {}
    for name, part in parts.items():
        lost = [i for where, i, _ in bad if where == name]
        kept[name] = part.take(np.delete(np.arange(len(part)), lost))
        if splits.gallery is None or name not in ("query", "gallery"):  # these share their classes
            kept[name] = kept[name].without_empty_classes()
    notes = (*splits.notes, f"{problem.summary()}. They are skipped.")
    checked = replace(splits, **kept, notes=notes)
    return require_usable(checked) if splits.train else checked  # else it is only tested


def _memo(paths: Sequence[Path]) -> Path | None:
    """The file that marks these images as readable; None if one of them is not there."""
    seen = hashlib.sha256()
    for path in paths:
        try:
            state = os.stat(path)
        except (OSError, ValueError):
            return None
        seen.update(f"{path}\0{state.st_size} {state.st_mtime_ns}\n".encode(errors="replace"))
    return cache_folder() / "checked" / seen.hexdigest()
