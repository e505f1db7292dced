"""Splits: what is trained on, and what is retrieved from classes never seen in training."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .listing import Listing, shuffled_names


@dataclass(frozen=True, eq=False)
class Splits:
    """Listings of one data set.

    Args:
        train: the pictures of the seen classes.
        query: the pictures that are looked up when testing.
        gallery: where they are looked up; None when the queries are each other's gallery.
        validation: pictures of classes held out of the seen ones, to choose an epoch by.
        name: what the user asked for, such as "glyphs".
        notes: sentences about how the set was read, such as which files were left out.
    """

    train: Listing
    query: Listing
    gallery: Listing | None = None
    validation: Listing | None = None
    name: str = ""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.gallery is not None and self.gallery.classes != self.query.classes:
            raise ValueError("query and gallery must share one table of classes to be compared")

    @property
    def test(self) -> Listing:
        """The queries, where they are their own gallery."""
        if self.gallery is not None:
            raise ValueError(
                f"{self.name or 'this set'} has query and gallery apart, ask for these"
            )
        return self.query

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any listing does."""
        parts = (self.train, self.query, self.gallery, self.validation)
        text = ",".join("-" if part is None else part.fingerprint() for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def without_positive(self) -> int:
        """How many queries have no picture of their class to find; a picture is not its own."""
        needed = 2 if self.gallery is None else 1
        there = (self.gallery or self.query).counts()
        return int(self.query.counts()[there < needed].sum())

    def remarks(self) -> tuple[str, ...]:
        """Sentences the user should read: the notes, and what the numbers cannot show."""
        remarks = list(self.notes)
        lost, asked = self.without_positive(), len(self.query)
        if lost:
            remarks.append(
                f"{lost} of {asked} test pictures have no other of their class to find "
                "and are left out of the averages."
            )
        both = len(set(self.train.classes) & set(self.query.classes))
        if both and both == len(self.query.classes):
            remarks.append(
                "All test classes are also trained on, so the result is not about unseen classes."
            )
        elif both:
            remarks.append(
                f"{both} of {len(self.query.classes)} test classes are also trained on, "
                "so the result is not about unseen classes alone."
            )
        return tuple(remarks)

    def describe(self) -> str:
        """A line per listing and per remark, for people."""
        test = "query" if self.gallery is not None else "test"
        parts = {
            "train": self.train,
            "validation": self.validation,
            test: self.query,
            "gallery": self.gallery,
        }
        lines = [
            f"{name}: {len(part)} pictures of {len(part.classes)} classes"
            for name, part in parts.items()
            if part is not None
        ]
        return "\n".join([*lines, *self.remarks()])


def with_validation(
    splits: Splits, fraction: float = 0.2, seed: int = 0, pictures: bool = False
) -> Splits:
    """The same splits with a part of the seen classes held out of training, to choose an epoch by.

    A set that brings its own validation pictures keeps them.

    Args:
        pictures: hold out pictures of every class instead, for classification.
    """
    if splits.validation is not None:
        return splits
    if not 0 < fraction < 1:
        raise ValueError(f"the fraction held out must lie between 0 and 1, got {fraction}")
    if pictures:
        kept = spread(splits.train, round((1 - fraction) * len(splits.train)), seed)
        others = np.setdiff1d(np.arange(len(splits.train)), kept)
        train, validation = splits.train.take(kept), splits.train.take(others)
        return replace(splits, train=train, validation=validation)
    classes = splits.train.classes
    held = max(2, round(fraction * len(classes)))
    if len(classes) - held < 2:
        raise ValueError(
            f"holding out {held} of {len(classes)} seen classes leaves fewer than 2 to train on: "
            "add classes, lower the fraction, or report the last epoch, which needs no validation"
        )
    chosen = set(shuffled_names(classes, seed)[:held])
    return replace(
        splits,
        train=splits.train.of_classes([name for name in classes if name not in chosen]),
        validation=splits.train.of_classes([name for name in classes if name in chosen]),
    )


def with_fold(splits: Splits, fold: int, folds: int) -> Splits:
    """Cross-validation: one part of the seen classes is the test, the others are trained on.

    The parts are runs of neighbouring classes, as equal in number as can be. The unseen classes are
    in neither.
    """
    classes = splits.train.classes
    if len(classes) < 2 * folds:
        raise ValueError(
            f"{folds} folds need at least 2 seen classes each, {2 * folds} in all, got "
            f"{len(classes)}: add classes or ask for fewer folds"
        )
    start, stop = (len(classes) * i // folds for i in (fold, fold + 1))
    held = splits.train.of_classes(classes[start:stop])
    return replace(
        splits,
        train=splits.train.of_classes((*classes[:start], *classes[stop:])),
        query=held,
        gallery=None,
        validation=held,
    )


def spread(listing: Listing, count: int, seed: int = 0) -> NDArray[np.int64]:
    """At most so many pictures, drawn by name and as many of each class as can be; in order."""
    place = {name: i for i, name in enumerate(shuffled_names(listing.names, seed))}
    order = sorted(range(len(listing)), key=lambda i: place[listing.names[i]])
    turn = np.zeros(len(listing), dtype=np.int64)  # which picture of its class this one is
    seen = np.zeros(len(listing.classes), dtype=np.int64)
    for i in order:
        turn[i] = seen[listing.labels[i]]
        seen[listing.labels[i]] += 1
    chosen = sorted(order, key=lambda i: (turn[i], place[listing.names[i]]))[:count]
    return np.sort(np.array(chosen, dtype=np.int64))


def require_usable(splits: Splits) -> Splits:
    """The splits as they are, or an error where they leave nothing to learn or to measure."""
    seen = len(splits.train.classes)
    if seen < 2:
        raise ValueError(
            f"training needs at least 2 seen classes, got {seen}: "
            "add class folders or leave fewer classes unseen"
        )
    gallery = (splits.gallery or splits.query).without_empty_classes()
    if len(gallery.classes) < 2:
        raise ValueError(
            f"testing needs pictures of at least 2 unseen classes, got {len(gallery.classes)}: "
            "with fewer, retrieval could not fail"
        )
    if splits.without_positive() == len(splits.query):
        raise ValueError(
            f"none of the {len(splits.query)} test pictures has another of its class to find, "
            "each unseen class needs at least 2 pictures: add some, or leave other classes unseen"
        )
    return splits
