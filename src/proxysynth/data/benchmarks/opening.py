"""From a benchmark's name and folder to its splits."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from proxysynth.data.benchmarks.arrays import CIFAR10, CIFAR100, read_cifar, read_svhn
from proxysynth.data.benchmarks.catalog import CATALOG, Benchmark
from proxysynth.data.benchmarks.contents import Contents, count, how_to_get
from proxysynth.data.benchmarks.photographs import (
    read_cars196,
    read_cub200,
    read_inshop,
    read_sop,
    read_tiny_imagenet,
)
from proxysynth.data.listing import Splits, require_usable
from proxysynth.values import look_up

READERS: dict[str, Callable[[str | os.PathLike[str]], Contents]] = {
    "cub200": read_cub200,
    "cars196": read_cars196,
    "sop": read_sop,
    "inshop": read_inshop,
    "cifar10": partial(read_cifar, CIFAR10),
    "cifar100": partial(read_cifar, CIFAR100),
    "svhn": read_svhn,
    "tiny_imagenet": read_tiny_imagenet,
}


def open_benchmark(name: str, root: str | os.PathLike[str], incomplete: bool = False) -> Splits:
    """The splits of a benchmark, as in the paper's section C.1. `root` is the folder of the copy
    or its parent; `incomplete` accepts an incomplete copy, with a note, instead of raising."""
    contents = read_contents(name, root)
    return splits_of(contents, look_up(name, CATALOG, "benchmark"), incomplete)


def read_contents(name: str, root: str | os.PathLike[str]) -> Contents:
    """The contents of the copy by its label files; each image is named once."""
    contents: Contents = look_up(name, READERS, "benchmark")(root)
    seen: set[str] = set()
    for part, listing in contents.parts.items():
        for image in listing.names:
            if image in seen:
                raise ValueError(
                    f"{contents.base / contents.labels.get(part, '')} names {image} again, "
                    "each image must be named once: download it again"
                )
            seen.add(image)
    return contents


def splits_of(contents: Contents, entry: Benchmark, incomplete: bool) -> Splits:
    """The splits of the images found, or an error if they are not the published set."""
    for _, reason in contents.damaged:
        raise ValueError(reason)
    base, found = contents.base, contents.present()
    counts = count(entry, found)
    if counts.too_many:
        raise ValueError(
            f"{base} is not {entry.title} as published, it has {counts}: remove what was added, or "
            "use it as a folder of your own"
        )
    if not counts.complete and not incomplete:
        why, images = "", contents.missing_images()
        if contents.missing:
            why = f", there is no {base / contents.missing[0]}"
        elif images:
            why = f", {images[0][1]} names {images[0][0]} which is not there"
            why += f", nor are {len(images) - 1:,} others" if images[1:] else ""
        raise ValueError(
            f"the copy of {entry.title} in {base} is incomplete, it has {counts}{why}: "
            f"{how_to_get(entry, base)}, or accept the copy as it is: --set split.incomplete=true "
            "for training (in Python incomplete=True), --allow-incomplete for `proxysynth data`"
        )
    if not any(len(part) for part in found.values()):
        raise ValueError(f"{base} has no image of {entry.title}: {how_to_get(entry, base)}")
    notes = () if counts.complete else (f"The copy of {entry.title} is incomplete: {counts}.",)
    if entry.task == "retrieval":  # otherwise train and test share one table of classes
        for part in found.keys() & {"train", "test"}:
            found[part] = found[part].without_empty_classes()
    query = found["query"] if "query" in found else found["test"]
    splits = Splits(found["train"], query, found.get("gallery"), name=entry.name, notes=notes)
    return require_usable(splits, tested=True)
