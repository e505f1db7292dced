"""A copy of a benchmark: from its name and folder to its splits, checked to the last image, or
downscaled to one that trains many times faster."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from proxysynth.data.benchmarks.catalog import CATALOG, Contents, Counts, how_to_get
from proxysynth.data.benchmarks.readers import READERS
from proxysynth.data.check import Tick, UnreadableImages, errors_in_threads, unreadable_images
from proxysynth.data.folders import absolute, some_names
from proxysynth.data.images import PathLike, open_image
from proxysynth.data.listing import Splits, require_usable
from proxysynth.data.transforms import resized
from proxysynth.errors import reason
from proxysynth.files import write_atomically
from proxysynth.formatting import count, printable
from proxysynth.values import look_up

QUALITY = 95
RECORD = "prepared.json"


def open_benchmark(name: str, root: PathLike, incomplete: bool = False) -> Splits:
    """The splits of a benchmark, as in the paper's section C.1. `root` is the folder of the copy
    or its parent; `incomplete` accepts an incomplete copy, with a note, instead of raising."""
    return splits_of(read_contents(name, root), incomplete)


def read_contents(name: str, root: PathLike) -> Contents:
    """The contents of the copy by its label files; each image is named once."""
    reader = look_up(name, READERS, "benchmark")
    entry = CATALOG[name]
    if not os.fspath(root):
        raise ValueError(f"{entry.title} needs the folder of its files: write {name}:ROOT")
    contents: Contents = reader(entry, root)
    named = Counter(image for listing in contents.parts.values() for image in listing.names)
    for image, times in named.most_common(1):
        if times > 1:
            raise ValueError(f"{contents.base} names {image} {times} times: download it again")
    return contents


def splits_of(contents: Contents, incomplete: bool) -> Splits:
    """The splits of the images found, or an error if they are not the published set."""
    for _, why in contents.damaged:
        raise ValueError(why)
    entry, base, found = contents.entry, contents.base, dict(contents.present)
    counts = contents.counts()
    if any(n > published for pairs in counts for n, published in pairs.values()):
        advice = "remove what was added, or use it as a folder of your own"
        raise ValueError(f"{base} is not {entry.title} as published ({counts}): {advice}")
    if not counts.complete and not incomplete:
        missing = contents.all_missing()
        why = f" and lacks {base / missing[0]}" if missing else ""
        why += f" and {count(len(missing) - 1, 'other file')}" if missing[1:] else ""
        raise ValueError(
            f"the copy of {entry.title} in {base} is incomplete ({counts}){why}: "
            f"{how_to_get(entry, base)}, or accept it with --set split.incomplete=true (train), "
            "incomplete=True (Python) or --allow-incomplete (`proxysynth data`)"
        )
    if empty := " and no ".join(part for part, listing in found.items() if not len(listing)):
        raise ValueError(f"{base} has no {empty} images: {how_to_get(entry, base)}")
    notes = () if counts.complete else (f"The copy of {entry.title} is incomplete ({counts}).",)
    if entry.task == "retrieval":  # otherwise train and test share one table of classes
        for part in found.keys() & {"train", "test"}:
            found[part] = found[part].without_empty_classes()
    query = found["query" if "query" in found else "test"]
    splits = Splits(found["train"], query, found.get("gallery"), name=entry.name, notes=notes)
    return require_usable(splits, tested=True)


@dataclass(frozen=True)
class CopyCheck:
    """What was found in a copy."""

    name: str  # of the benchmark
    title: str
    root: str  # the folder of the copy
    # Of each part, pairs of the numbers found and published.
    pictures: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]
    missing: tuple[str, ...]  # files that should be there
    extra: tuple[str, ...]  # files among the images that no label file names
    unreadable: tuple[tuple[str, str], ...]  # files that cannot be decoded, and why
    complete: bool  # whether every image exists and can be read
    accepted: bool  # whether it can be trained on: complete, or allowed to be incomplete
    refusal: str  # why it cannot be trained on, and what helps; empty if it can
    note: str  # the benchmark's remark for users

    def describe(self) -> str:
        """A line per part and per kind of problem."""
        counts = Counts(self.pictures, self.classes)
        lines = [f"{self.title} in {printable(self.root)}", *counts.lines()]
        unreadable = tuple(f"{file} ({why})" for file, why in self.unreadable)
        problems = {"missing": self.missing, "extra": self.extra, "unreadable": unreadable}
        for kind, files in problems.items():
            if files:
                lines.append(f"{kind}: {len(files):,}: {some_names(files)}")
        lines += [self.note] if self.note else []
        accepted = ", accepted" if self.accepted and not self.complete else ""
        return "\n".join([*lines, "complete" if self.complete else f"not complete{accepted}"])


def check_benchmark(
    name: str,
    root: PathLike,
    incomplete: bool = False,
    workers: int = 0,
    tick: Tick | None = None,
) -> CopyCheck:
    """Read a copy from its label files to the last image and report what is wrong with it;
    `incomplete` accepts one that lacks images, as long as it can be trained on."""
    contents = read_contents(name, root)
    counts, unreadable, refusal = contents.counts(), list(contents.damaged), ""
    for part, i, error in unreadable_images(contents.present, None, workers, tick):
        unreadable.append((contents.present[part].names[i], error.reason))
    if unreadable:  # no option accepts these
        file, why = unreadable[0]
        first = f"{printable(file)} ({why})"
        refusal = f"{len(unreadable):,} files cannot be read, such as {first}: download them again"
    else:
        try:
            splits_of(contents, incomplete=True)
            if not (counts.complete or incomplete):  # `describe` names what is missing
                advice = how_to_get(contents.entry, contents.base)
                raise ValueError(f"the copy is incomplete: {advice}, or add --allow-incomplete")
        except ValueError as error:
            refusal = str(error)
    return CopyCheck(
        name=name,
        title=contents.entry.title,
        root=str(contents.base),
        pictures=counts.pictures,
        classes=counts.classes,
        missing=contents.all_missing(),
        extra=contents.extra_files(),
        unreadable=tuple(unreadable),
        complete=counts.complete and not unreadable,
        accepted=not refusal,
        refusal=refusal,
        note=contents.entry.note,
    )


@dataclass(frozen=True)
class PreparedCopy:
    """A downscaled copy."""

    root: str  # its folder
    written: int  # images written now
    kept: int  # images that an earlier, interrupted call had written already
    unreadable: tuple[tuple[str, str], ...] = ()  # images left out, and why


def prepare_benchmark(
    name: str,
    root: PathLike,
    out: PathLike,
    side: int = 256,
    incomplete: bool = False,
    workers: int = 0,
    tick: Tick | None = None,
) -> PreparedCopy:
    """Write a downscaled copy of a benchmark to `out`, in the same layout: images with a short side
    of at most `side` pixels, which are copied where they are small enough already.

    An interrupted call resumes when it is repeated. `incomplete` accepts an incomplete copy and
    skips unreadable images; else UnreadableImages is raised after all others have been written.
    """
    if side < 1:
        raise ValueError(f"side must be >= 1 pixel, got {side}")
    contents = read_contents(name, root)
    entry, base = contents.entry, contents.base
    held = any(part.root is None for part in contents.parts.values())
    if held or (entry.side is not None and side >= entry.side):
        raise ValueError(f"{entry.title} has no image files larger than {side}: use it as it is")
    splits_of(contents, incomplete)  # raises where the copy is not whole
    target = absolute(out)
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(base)):
        raise ValueError(f"the downscaled copy must be outside {base}, got {target}")
    fingerprints = [part.fingerprint() for part in contents.parts.values()]
    settings = {"benchmark": name, "side": side, "pictures": fingerprints}
    record, file = json.dumps(settings).encode(), target / RECORD
    begun = file.exists() and file.read_bytes() == record
    if not begun and target.is_dir() and any(target.iterdir()):
        what = "other files, or a copy of other images or with another side"
        raise ValueError(f"{target} holds {what}: give a new folder, or empty it first")
    _write(file, record)
    for label_file in contents.files:
        if (base / label_file).exists():
            _write(target / label_file, (base / label_file).read_bytes())

    def shrink(image: Path) -> None:
        made = target / image.relative_to(base)
        if not made.exists():
            _write(made, _downscaled_file(image, side))

    images = [image for part in contents.present.values() for image in part.names]
    kept = sum((target / image).exists() for image in images)
    bad = errors_in_threads(shrink, [base / image for image in images], workers, tick)
    if bad and not incomplete:
        raise UnreadableImages(tuple(bad.values()), len(images))
    unreadable = tuple((images[i], error.reason) for i, error in bad.items())
    return PreparedCopy(str(target), len(images) - kept - len(bad), kept, unreadable)


def _downscaled_file(path: Path, side: int) -> bytes:
    image = open_image(path, at_least=2 * side)
    if min(image.size) <= side:
        return path.read_bytes()
    data = io.BytesIO()
    kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
    resized(image, side).save(data, kind, quality=QUALITY)
    return data.getvalue()


def _write(path: Path, data: bytes) -> None:
    try:
        write_atomically(path, data)
    except OSError as error:
        raise ValueError(f"cannot write {path}: {reason(error)}") from error
