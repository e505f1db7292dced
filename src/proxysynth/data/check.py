"""Reads every image once before training, so that a bad file is reported now and not in epoch 7.

Files that could be read are remembered in the cache folder by path, size and modification time: the
hundreds of Runs behind a table read them once.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from proxysynth.data.folders import some_names
from proxysynth.data.images import (
    ImageCache,
    UnreadableImage,
    cache_folder,
    file_state,
    open_image,
)
from proxysynth.data.listing import Listing, Splits, require_usable
from proxysynth.errors import TrainingFailed
from proxysynth.files import write_atomically
from proxysynth.formatting import printable

SHOWN = 10  # unreadable images named in one message
Tick = Callable[[int, str], None]  # as in training.callbacks


class UnreadableImages(TrainingFailed):
    """Several images that cannot be read; `images` holds an UnreadableImage for each."""

    def __init__(self, images: Sequence[UnreadableImage], total: int) -> None:
        super().__init__(images, total)
        self.images = tuple(images)
        self.total = total

    def __str__(self) -> str:
        advice = "fix or remove them"
        if len(self.images) < self.total:
            advice += ", or skip them with --skip-bad"
        if any(each.reason == os.strerror(errno.ENOENT).lower() for each in self.images):
            advice += (
                "; paths in a CSV are relative to its folder: --set split.root=DIR changes that"
            )
        return f"{self.summary()}; {advice}"

    def summary(self) -> str:
        named = some_names((f"{e.path} ({e.reason})" for e in self.images), SHOWN)
        return f"{len(self.images)} of {self.total} images cannot be read: {named}"


def errors_in_threads(
    read: Callable[[Path], object], paths: Sequence[Path], workers: int, tick: Tick | None
) -> dict[int, UnreadableImage]:
    """Read each image; the errors by index."""

    def error_of(path: Path) -> UnreadableImage | None:
        try:
            read(path)
        except UnreadableImage as error:
            return error
        return None

    errors = {}
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for i, error in enumerate(pool.map(error_of, paths)):
            if error is not None:
                errors[i] = error
            if tick is not None:
                tick(1, "")
    return errors


def unreadable_images(
    parts: Mapping[str, Listing],
    cache: ImageCache | None = None,
    workers: int = 0,
    tick: Tick | None = None,
) -> list[tuple[str, int, UnreadableImage]]:
    """The listing and index of each image that cannot be decoded. Fills the cache, if any."""
    # Without a cache, every byte is read, but few pixels are made.
    read = partial(open_image, at_least=1) if cache is None else cache.image
    images = [(name, *file) for name, part in parts.items() for file in enumerate(part.paths())]
    errors = errors_in_threads(read, [path for _, _, path in images], workers, tick)
    return [(images[at][0], images[at][1], error) for at, error in errors.items()]


def check_splits(
    splits: Splits,
    skip_bad: bool = False,
    cache: ImageCache | None = None,
    workers: int = 0,
    tick: Tick | None = None,
    say: Callable[[str], None] | None = None,
) -> Splits:
    """The splits with every image readable; `skip_bad` skips the others, with a note, instead of
    raising. If they are more than fit into one message, `say` gets a line for each of them."""
    parts = splits.parts
    files = "\n".join(file_state(path) for part in parts.values() for path in part.paths())
    # A file of this name exists if these images are known to be readable.
    memo = cache_folder() / "checked" / hashlib.sha256(files.encode(errors="replace")).hexdigest()
    if memo.exists():
        return splits
    bad = unreadable_images(parts, cache, workers, tick)
    if not bad:
        with contextlib.suppress(OSError):  # the cache is optional
            write_atomically(memo, b"")
        return splits
    problem = UnreadableImages([error for _, _, error in bad], sum(map(len, parts.values())))
    if say is not None and len(bad) > SHOWN:
        say("\n".join(f"{printable(e.path)}: {e.reason}" for e in problem.images))
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
