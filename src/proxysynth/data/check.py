"""Reads every picture once before training: a bad file is named now and not in epoch 7."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from .listing import Listing
from .picture_cache import PictureCache
from .pictures import UnreadablePicture, open_picture
from .splits import Splits, require_usable

SHOWN = 10  # bad pictures named in a sentence; where there are more, `tell` hears of each
Progress = Callable[[int, int], None]  # pictures done, pictures in all


class BadPictures(ValueError):
    """Pictures that cannot be read: `pictures` holds an UnreadablePicture for each."""

    def __init__(self, pictures: tuple[UnreadablePicture, ...], total: int) -> None:
        super().__init__(pictures, total)
        self.pictures = pictures
        self.total = total

    def __str__(self) -> str:
        return (
            f"{len(self.pictures)} of {self.total} pictures cannot be read: "
            f"{_named(self.pictures)}; repair or remove them, or skip them with --skip-bad"
        )


def bad_pictures(
    listing: Listing,
    cache: PictureCache | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> dict[int, UnreadablePicture]:
    """The pictures that cannot be decoded to the end, by index. A cache is filled on the way."""
    if listing.root is None:
        return {}

    def fault(index: int) -> UnreadablePicture | None:
        path = listing.path(index)
        try:
            if cache is not None:
                cache.picture(path)
            else:
                open_picture(path, at_least=1)  # every byte is read, few pixels are made
        except UnreadablePicture as error:
            return error
        return None

    bad = {}
    with ThreadPoolExecutor(max(1, workers)) as pool:
        for index, error in enumerate(pool.map(fault, range(len(listing)))):
            if error is not None:
                bad[index] = error
            if progress is not None:
                progress(index + 1, len(listing))
    return bad


def check_pictures(
    listing: Listing,
    skip_bad: bool = False,
    cache: PictureCache | None = None,
    workers: int = 0,
    progress: Progress | None = None,
) -> Listing:
    """The listing with every picture readable, or BadPictures; with `skip_bad`, without the bad."""
    bad = bad_pictures(listing, cache, workers, progress)
    if bad and not skip_bad:
        raise BadPictures(tuple(bad.values()), len(listing))
    return _without(listing, bad).without_empty_classes()


def check_splits(
    splits: Splits,
    skip_bad: bool = False,
    cache: PictureCache | None = None,
    workers: int = 0,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Splits:
    """The splits with every picture readable; with `skip_bad`, a note names those left out."""
    parts = {
        name: part
        for name in ("train", "validation", "query", "gallery")
        if (part := getattr(splits, name)) is not None
    }
    total, done = sum(len(part) for part in parts.values()), 0
    bad: dict[str, dict[int, UnreadablePicture]] = {}
    for name, part in parts.items():
        start = done
        step = None if progress is None else (lambda i, _, s=start: progress(s + i, total))
        bad[name] = bad_pictures(part, cache, workers, step)
        done += len(part)
    every = tuple(error for found in bad.values() for error in found.values())
    if not every:
        return splits
    if tell is not None:
        tell_all(every, tell)
    if not skip_bad:
        raise BadPictures(every, total)
    kept = {name: _without(part, bad[name]) for name, part in parts.items()}
    for name in kept:
        # Query and gallery share a table of classes, which must stay one.
        if splits.gallery is None or name in ("train", "validation"):
            kept[name] = kept[name].without_empty_classes()
    note = f"{len(every)} of {total} pictures cannot be read and are skipped: {_named(every)}."
    return require_usable(
        replace(
            splits,
            train=kept["train"],
            query=kept["query"],
            gallery=kept.get("gallery"),
            validation=kept.get("validation"),
            notes=(*splits.notes, note),
        )
    )


def tell_all(errors: tuple[UnreadablePicture, ...], tell: Callable[[str], None]) -> None:
    """A line for each, where there are more than a sentence names."""
    if len(errors) > SHOWN:
        tell("\n".join(f"{error.path}: {error.reason}" for error in errors))


def _without(listing: Listing, bad: dict[int, UnreadablePicture]) -> Listing:
    if not bad:
        return listing
    return listing.take(np.setdiff1d(np.arange(len(listing)), list(bad)))


def _named(errors: tuple[UnreadablePicture, ...]) -> str:
    named = "; ".join(f"{error.path} ({error.reason})" for error in errors[:SHOWN])
    more = len(errors) - SHOWN
    return f"{named}; and {more} more" if more > 0 else named
