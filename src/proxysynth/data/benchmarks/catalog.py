"""The benchmarks of the paper: what was published (`catalog.toml`), and what a copy holds of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from proxysynth.data.folders import existing_folder, files_below, image_files
from proxysynth.data.images import PathLike
from proxysynth.data.listing import Listing
from proxysynth.values import build, read_toml


@dataclass(frozen=True)
class Benchmark:
    """A published dataset."""

    name: str  # the part of `name:ROOT` before the colon
    title: str  # the name its authors gave it
    task: Literal["retrieval", "classification"]  # tested on other classes, or on those trained on
    needs: tuple[str, ...]  # files and folders that ROOT must hold
    published: str  # the page of its authors
    license: str  # a summary of its license
    size: str  # of the download
    # Of each part: train and test, or train, query and gallery.
    pictures: dict[str, int]
    classes: dict[str, int]
    folders: tuple[str, ...] = ()  # where its archives unpack to; ROOT may be one or its parent
    archives: tuple[str, ...] = ()  # names of its downloads, to recognize one not unpacked
    offered: bool = True  # whether that page still has them
    side: int | None = None  # of its images in pixels, where all have the same
    note: str = ""  # a remark for users


CATALOG: dict[str, Benchmark] = {
    name: build(Benchmark, {"name": name, **table}, {})
    for name, table in read_toml(Path(__file__).with_name("catalog.toml")).items()
}


def catalog_rows() -> list[dict[str, Any]]:
    """A row per benchmark, as plain values: what `proxysynth data list` prints."""
    hidden = {"folders", "archives", "offered", "side"}
    rows = ({k: v for k, v in asdict(e).items() if k not in hidden} for e in CATALOG.values())
    return [row | {"needs": list(row["needs"])} for row in rows]


@dataclass(frozen=True, eq=False)
class Contents:
    """A copy as its label files describe it, whether or not every image exists."""

    entry: Benchmark
    base: Path  # the folder of the copy; all names below are under it
    parts: dict[str, Listing]  # the images of train and test, or of train, query and gallery
    files: tuple[str, ...] = ()  # label files, which a downscaled copy needs too if they exist
    folders: tuple[str, ...] = ()  # where its images lie, and nothing else should
    missing: tuple[str, ...] = ()  # folders, or files of many images each, that are not there
    damaged: tuple[tuple[str, str], ...] = ()  # unreadable files of many images each, and why

    @cached_property
    def present(self) -> dict[str, Listing]:
        """The listings without the missing images."""
        present = dict(self.parts)
        for part, listing in self.parts.items():
            if listing.root is not None:
                # Listing each folder once is many times faster than a stat of each file.
                places = [name.rpartition("/")[::2] for name in listing.names]
                folders = {folder for folder, _ in places}
                found = {folder: set(image_files(listing.root / folder)) for folder in folders}
                there = [i for i, (folder, file) in enumerate(places) if file in found[folder]]
                present[part] = listing.take(there)
        return present

    def counts(self) -> Counts:
        """What there is of the benchmark; a class without an image does not count."""
        pictures, classes = self.entry.pictures, self.entry.classes
        return Counts(
            {part: (len(self.present[part]), n) for part, n in pictures.items()},
            {part: (len(np.unique(self.present[part].labels)), n) for part, n in classes.items()},
        )

    def all_missing(self) -> tuple[str, ...]:
        """Every image, file of images and folder that is not there."""
        there = {name for part in self.present.values() for name in part.names}
        named = (name for part in self.parts.values() for name in part.names)
        return (*self.missing, *(name for name in named if name not in there))

    def extra_files(self) -> tuple[str, ...]:
        """Files in the image folders that no label file names; hidden ones are ignored."""
        named = {name for part in self.parts.values() for name in part.names}
        folders = filter(Path.is_dir, (self.base / folder for folder in self.folders))
        paths = (Path(path) for folder in folders for path in files_below(folder))
        found = (path.relative_to(self.base).as_posix() for path in paths)
        return tuple(name for name in found if name not in named)


class Counts(NamedTuple):
    """Images and classes of each part, as pairs: found, published."""

    pictures: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]

    @property
    def complete(self) -> bool:
        return all(found == n for pairs in self for found, n in pairs.values())

    def lines(self) -> list[str]:
        text = "{}: {:,} of {:,} images, {:,} of {:,} classes"
        return [text.format(part, *n, *self.classes[part]) for part, n in self.pictures.items()]

    def __str__(self) -> str:
        return "; ".join(self.lines())


def copy_folder(entry: Benchmark, root: PathLike, wanted: Sequence[str]) -> Path:
    """The folder of the copy: `root` or one that its archive makes inside, with a wanted file."""
    base = existing_folder(root, f"give the folder of {entry.title}, with {wanted[0]} in it")
    for folder in ("", *entry.folders):
        if first_there(base / folder, wanted) is not None:
            return base / folder
    why = f"holds no copy of {entry.title}, there is no {' or '.join(wanted)}"
    raise ValueError(f"{base} {why}: {how_to_get(entry, base)}")


def how_to_get(entry: Benchmark, base: Path) -> str:
    """The end of a message: what to do about missing files."""
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
