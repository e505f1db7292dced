"""Which pictures `proxysynth eval` measures on: the run's own, or other data."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

import numpy as np

from proxysynth.commands.usage import understanding
from proxysynth.data import BadPictures, Listing
from proxysynth.data.check import bad_pictures, tell_all
from proxysynth.data.everything import to_test_on
from proxysynth.protocols.conventional import own_splits
from proxysynth.training.bars import Bars
from proxysynth.training.load import Trained
from proxysynth.training.prepare import make_cache
from proxysynth.training.resources import Resources


@dataclass(frozen=True)
class Pictures:
    """What is measured on.

    name: of the data, as the user wrote it.    train: the seen classes; None for other data.
    query, gallery: `gallery` is None where queries are their own.
    """

    name: str
    query: Listing
    gallery: Listing | None
    train: Listing | None

    def __len__(self) -> int:
        return len(self.query) + (0 if self.gallery is None else len(self.gallery))

    def warnings(self, seen: tuple[str, ...]) -> list[str]:
        """What a reader of the numbers must know; `seen` are the classes that were trained on."""
        there = (self.gallery or self.query).without_empty_classes().classes
        told = []
        if len(there) == 1:
            told.append(
                f"All the pictures to find are of one class ({there[0]}), so nothing can be told "
                "apart and every query is right whatever the model: give pictures of 2 classes or "
                "more."
            )
        tested = set(self.query.without_empty_classes().classes)
        both = len(tested & set(seen))
        if both:
            some = "All" if both == len(tested) else f"{both:,} of {len(tested):,}"
            told.append(
                f"{some} classes are called as ones trained on, so the result is not about unseen "
                "classes alone."
            )
        return told


def pictures_to_test(args: argparse.Namespace, model: Trained, machine: Resources) -> Pictures:
    """The pictures that a command asks for, each read once; the bad ones named or left out."""
    if args.data is None:
        if args.skip_bad:
            run = replace(model.run, skip_bad=True)
            model = replace(model, recorded=replace(model.recorded, run=run))
        splits = own_splits(model, machine, Bars())
        for note in splits.notes:
            Bars().say(note)
        return Pictures(model.run.data, splits.query, splits.gallery, splits.train)
    with understanding():
        query, gallery = to_test_on(args.data)
    readable = [_readable(part, args.skip_bad, model, machine) for part in (query, gallery) if part]
    if gallery is None:
        readable = [readable[0].without_empty_classes()]
    return Pictures(args.data, readable[0], readable[1] if gallery else None, None)


def _readable(listing: Listing, skip_bad: bool, model: Trained, machine: Resources) -> Listing:
    cache = make_cache(model.run, model.embedder, machine)
    with Bars().task("reading", len(listing)) as tick:
        bad = bad_pictures(listing, cache, machine.loader_workers, lambda *_: tick(1, ""))
    if not bad:
        return listing
    fault = BadPictures(tuple(bad.values()), len(listing))
    tell_all(fault.pictures, Bars().say)
    if not skip_bad:
        raise fault
    Bars().say(f"{str(fault).partition(';')[0]}; left out: {len(bad)}.")
    kept = listing.take(np.setdiff1d(np.arange(len(listing)), list(bad)))
    if not len(kept):
        raise ValueError(f"none of the {len(listing)} pictures can be read: give other data")
    return kept
