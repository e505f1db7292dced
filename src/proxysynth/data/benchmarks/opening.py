"""From a benchmark's name and folder to its splits, or one sentence about what is wrong."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from proxysynth.values import look_up

from ..listing import Listing
from ..splits import Splits, require_usable
from .cars196 import read_cars196
from .catalogue import CATALOGUE, Benchmark
from .cifar import read_cifar10, read_cifar100
from .contents import Contents, how_to_get, there
from .cub200 import read_cub200
from .inshop import read_inshop
from .sop import read_sop
from .svhn import read_svhn
from .tally import Tally, tally
from .tiny_imagenet import read_tiny_imagenet

READERS: dict[str, Callable[[str | os.PathLike[str]], Contents]] = {
    "cub200": read_cub200,
    "cars196": read_cars196,
    "sop": read_sop,
    "inshop": read_inshop,
    "cifar10": read_cifar10,
    "cifar100": read_cifar100,
    "svhn": read_svhn,
    "tiny_imagenet": read_tiny_imagenet,
}


def open_benchmark(name: str, root: str | os.PathLike[str], incomplete: bool = False) -> Splits:
    """The splits of a benchmark, as in the paper's section C.1.

    Args:
        name: a key of CATALOGUE.
        root: the folder of the copy, or the one above.
        incomplete: take what is there of an incomplete copy, with a note, instead of an error.
    """
    contents = read_contents(name, root)
    return splits_of(contents, look_up(name, CATALOGUE, "benchmark"), incomplete)


def read_contents(name: str, root: str | os.PathLike[str]) -> Contents:
    """What the copy says it holds; each picture is named once."""
    contents: Contents = look_up(name, READERS, "benchmark")(root)
    seen: set[str] = set()
    for part, listing in contents.parts.items():
        for picture in listing.names:
            if picture in seen:
                raise ValueError(
                    f"{contents.base / contents.labels.get(part, '')} names {picture} again, "
                    "each picture must be named once: download it again"
                )
            seen.add(picture)
    return contents


def splits_of(contents: Contents, entry: Benchmark, incomplete: bool) -> Splits:
    """The splits of what is there, or an error where that is not the published set."""
    for _, reason in contents.damaged:
        raise ValueError(reason)
    found = present_parts(contents)
    count = tally(entry, found)
    if count.too_many:
        raise ValueError(
            f"{contents.base} is not {entry.title} as published, it has {count}: "
            "remove what was added, or give it as a folder of your own"
        )
    if not count.complete and not incomplete:
        raise ValueError(_incomplete(contents, entry, count))
    if not any(len(part) for part in found.values()):
        raise ValueError(
            f"{contents.base} has no picture of {entry.title}: {how_to_get(entry, contents.base)}"
        )
    notes = () if count.complete else (f"The copy of {entry.title} is incomplete: {count}.",)
    if "gallery" in found:
        made = Splits(
            found["train"].without_empty_classes(),
            found["query"],
            found["gallery"],
            name=entry.name,
            notes=notes,
        )
    elif entry.task == "classification":  # train and test share one table of classes
        made = Splits(found["train"], found["test"], name=entry.name, notes=notes)
    else:
        train, test = (found[part].without_empty_classes() for part in ("train", "test"))
        made = Splits(train, test, name=entry.name, notes=notes)
    return require_usable(made)


def present_parts(contents: Contents) -> dict[str, Listing]:
    """The listings without the pictures that are not there."""
    found = {}
    for part, listing in contents.parts.items():
        here = there(listing)
        found[part] = listing if here.all() else listing.take(np.flatnonzero(here))
    return found


def missing_pictures(contents: Contents) -> list[tuple[str, str]]:
    """Each picture that is not there, and the file that names it."""
    return [
        (listing.names[i], contents.labels.get(part, ""))
        for part, listing in contents.parts.items()
        for i in np.flatnonzero(~there(listing))
    ]


def _incomplete(contents: Contents, entry: Benchmark, count: Tally) -> str:
    pictures = missing_pictures(contents)
    if contents.missing:
        why = f", there is no {contents.base / contents.missing[0]}"
    elif pictures:
        name, file = pictures[0]
        why = f", {file} names {name} which is not there"
        why += f", nor are {len(pictures) - 1:,} others" if pictures[1:] else ""
    else:
        why = ""
    return (
        f"the copy of {entry.title} in {contents.base} is incomplete, it has {count}{why}: "
        f"{how_to_get(entry, contents.base)}, or accept what is there, when training with --set "
        "split.incomplete=true (in Python incomplete=True), else with --allow-incomplete"
    )
