"""Listings (images with labels), their splits, and the rule that splits classes."""

from __future__ import annotations

import hashlib
import itertools
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxysynth.data.folders import some_names
from proxysynth.formatting import count
from proxysynth.values import choices_hint

NOTHING_TESTED = "Not evaluated: that needs images of at least 2 classes that are not trained on."


@dataclass(frozen=True, eq=False)
class Listing:
    """Images with labels, as files under a root or as an array in memory."""

    names: tuple[str, ...]  # paths under `root` with forward slashes; any text for pixels
    labels: NDArray[np.int64]  # (n,) integers in [0, c), kept as read-only int64
    classes: tuple[str, ...]  # the name of each label; c = len(classes)
    root: Path | None = None  # the folder of the files; None for pixels
    pixels: NDArray[np.uint8] | None = None  # (n, h, w) gray or (n, h, w, 3) RGB; None for files

    def __post_init__(self) -> None:
        labels = np.array(self.labels, dtype=np.int64)
        labels.setflags(write=False)
        object.__setattr__(self, "labels", labels)
        n, c, held = len(self.names), len(self.classes), self.pixels
        if labels.shape != (n,) or (n and not 0 <= labels.min() <= labels.max() < c):
            raise ValueError(f"expected {n} labels in [0, {c}), got {labels}")
        if len(set(self.classes)) != c:
            raise ValueError(f"class names must be distinct, got {c} with repetitions")
        if (self.root is None) == (held is None) or (held is not None and len(held) != n):
            raise ValueError(f"a listing needs either a root or pixels of its {n} images")

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        where = "pixels in memory" if self.root is None else str(self.root)
        return f"Listing({len(self)} images, {len(self.classes)} classes, {where})"

    def path(self, index: int) -> Path:
        """The file of an image."""
        assert self.root is not None, "images in memory have no files"
        return self.root / self.names[index]

    def paths(self) -> list[Path]:
        """The files of all images; none of images in memory."""
        return [] if self.root is None else [self.root / name for name in self.names]

    def counts(self) -> NDArray[np.int64]:
        """Images per class, (c,)."""
        return np.bincount(self.labels, minlength=len(self.classes)).astype(np.int64)

    def take(self, indices: ArrayLike) -> Listing:
        """These images in this order; all classes are kept, even without images."""
        chosen = np.asarray(indices, dtype=np.int64)
        names = tuple(self.names[i] for i in chosen)
        pixels = None if self.pixels is None else self.pixels[chosen]
        return replace(self, names=names, labels=self.labels[chosen], pixels=pixels)

    def of_classes(self, classes: Sequence[str]) -> Listing:
        """The images of these classes, labeled 0, 1, ... in this order."""
        place = {name: i for i, name in enumerate(classes)}
        number = np.array([place.get(name, -1) for name in self.classes], dtype=np.int64)
        taken = self.take(np.flatnonzero(number[self.labels] >= 0))
        return replace(taken, labels=number[taken.labels], classes=tuple(classes))

    def without_empty_classes(self) -> Listing:
        """The same images, relabeled to the classes that have any."""
        full = [name for name, n in zip(self.classes, self.counts(), strict=True) if n]
        return self if len(full) == len(self.classes) else self.of_classes(full)

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of names, labels, classes and pixels. Files are not read."""
        seen = hashlib.sha256()
        for texts in (self.names, self.classes):
            for text in texts:
                seen.update(text.encode("utf-8", "surrogateescape") + b"\0")
            seen.update(b"\1")
        seen.update(self.labels.astype("<i8").tobytes())
        if self.pixels is not None:
            seen.update(str(self.pixels.shape).encode())
            seen.update(np.ascontiguousarray(self.pixels).data)
        return seen.hexdigest()[:12]


def listing_of_files(
    root: Path, files: Iterable[tuple[str, str]], classes: Iterable[str] | None = None
) -> Listing:
    """A listing of (name, class) pairs; without `classes`, pairs and classes are sorted."""
    if classes is None:
        files = sorted(files, key=lambda pair: pair[::-1])
        classes = sorted({label for _, label in files})
    pairs, table = tuple(files), tuple(classes)
    number = {label: i for i, label in enumerate(table)}
    labels = np.array([number[label] for _, label in pairs], dtype=np.int64)
    return Listing(tuple(name for name, _ in pairs), labels, table, root)


def cumcount(items: Sequence[Hashable]) -> list[int]:
    """For each item, how many equal ones come before it."""
    numbers = defaultdict[Hashable, Iterator[int]](itertools.count)
    return [next(numbers[item]) for item in items]


def shuffled_names(names: Collection[str], seed: int) -> list[str]:
    """The names in an order that depends on the seed, not on machine or library versions: by the
    hash of each, so that adding a name keeps the order of the others."""

    def key(name: str) -> tuple[bytes, str]:
        text = f"{seed}:{name}".encode("utf-8", "surrogateescape")
        return hashlib.sha256(text).digest(), name

    return sorted(names, key=key)


@dataclass(frozen=True, eq=False)
class Splits:
    """The listings of a dataset."""

    train: Listing  # the images of the seen classes
    query: Listing  # the test images
    gallery: Listing | None = None  # with the same classes; None: the queries are each other's
    validation: Listing | None = None  # images of held-out seen classes, to choose an epoch by
    name: str = ""  # as the user gave it, such as "glyphs"
    notes: tuple[str, ...] = ()  # on how the set was read, such as which files were ignored

    @property
    def parts(self) -> dict[str, Listing]:
        """The listings that there are, by name."""
        names = ("train", "validation", "query", "gallery")
        return {name: part for name in names if (part := getattr(self, name)) is not None}

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that change when any listing does."""
        parts = (self.train, self.query, self.gallery, self.validation)
        text = ",".join("-" if part is None else part.fingerprint() for part in parts)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def without_positive(self) -> int:
        """How many queries have no other image of their class in the gallery."""
        needed = 2 if self.gallery is None else 1
        there = (self.gallery or self.query).counts()
        return int(self.query.counts()[there < needed].sum())

    @property
    def testable(self) -> bool:
        """Whether there are images of two classes to tell apart."""
        return len((self.gallery or self.query).without_empty_classes().classes) > 1

    def with_all_seen(self) -> Splits:
        """All images of all classes to train on, and none to test; classes of one name are one."""
        parts, root = list(self.parts.values()), self.train.root
        classes = tuple(sorted({name for part in parts for name in part.classes}))
        names = tuple(name for part in parts for name in part.names)
        labels = np.concatenate([part.of_classes(classes).labels for part in parts])
        if root is not None:  # each file once
            files = {(name, classes[label]) for name, label in zip(names, labels, strict=True)}
            train = listing_of_files(root, files)
        else:
            pixels = [part.pixels for part in parts if part.pixels is not None]
            train = Listing(names, labels, classes, pixels=np.concatenate(pixels))
        return replace(self, train=train, query=train.of_classes(()), gallery=None, validation=None)

    def remarks(self) -> tuple[str, ...]:
        """The notes, and warnings about what the metrics do not show."""
        remarks = list(self.notes)
        if not self.testable:
            return (*remarks, NOTHING_TESTED)
        if lost := self.without_positive():
            remarks.append(
                f"{lost} of {len(self.query)} test images have no other image of their class to "
                "find and are excluded from the averages."
            )
        tested = len(self.query.classes)
        if both := len(set(self.train.classes) & set(self.query.classes)):
            some, alone = ("All", "") if both == tested else (f"{both} of {tested}", " alone")
            remarks.append(
                f"{some} test classes are also trained on: the result does not measure unseen "
                f"classes{alone}."
            )
        return tuple(remarks)

    def describe(self) -> str:
        """A line per listing and per remark."""
        called = {"query": "test"} if self.gallery is None else {}
        lines = []
        for name, part in self.parts.items():
            if part:
                classes = count(len(part.classes), "class", "classes")
                classes += "" if self.testable else f" ({some_names(part.classes)})"
                lines.append(f"{called.get(name, name)}: {len(part)} images of {classes}")
        return "\n".join([*lines, *self.remarks()])


def with_validation(
    splits: Splits, fraction: float = 0.2, seed: int = 0, pictures: bool = False
) -> Splits:
    """The splits with a fraction of the seen classes held out of training, to choose an epoch by;
    with `pictures`, images of every class, for classification. Own validation images are kept."""
    if splits.validation is not None:
        return splits
    if pictures:
        size = len(splits.train)
        kept = stratified_subset(splits.train, round((1 - fraction) * size), seed)
        rest = np.delete(np.arange(size), kept)
        return replace(splits, train=splits.train.take(kept), validation=splits.train.take(rest))
    classes = splits.train.classes
    held = max(2, round(fraction * len(classes)))
    if len(classes) - held < 2:
        raise ValueError(
            f"holding out {held} of {len(classes)} seen classes leaves fewer than 2 to train on: "
            "add classes, or choose nothing by them (report_epoch=last, interpolate=by_classes)"
        )
    chosen = set(shuffled_names(classes, seed)[:held])
    train = splits.train.of_classes([name for name in classes if name not in chosen])
    validation = splits.train.of_classes([name for name in classes if name in chosen])
    return replace(splits, train=train, validation=validation)


def with_fold(splits: Splits, fold: int, folds: int) -> Splits:
    """Cross-validation: one fold of the seen classes is the test, the others are trained on. Folds
    are contiguous and as equal in size as possible; the unseen classes are not used."""
    classes = splits.train.classes
    if len(classes) < 2 * folds:
        raise ValueError(f"{folds} folds need {2 * folds} seen classes or more, got {len(classes)}")
    start, stop = (len(classes) * i // folds for i in (fold, fold + 1))
    held = splits.train.of_classes(classes[start:stop])
    train = splits.train.of_classes((*classes[:start], *classes[stop:]))
    return replace(splits, train=train, query=held, gallery=None, validation=held)


def stratified_subset(listing: Listing, count: int, seed: int = 0) -> NDArray[np.int64]:
    """Sorted indices of at most `count` images, drawn by name, balanced over the classes."""
    place = {name: i for i, name in enumerate(shuffled_names(listing.names, seed))}
    order = np.argsort([place[name] for name in listing.names], kind="stable")
    turn = cumcount(listing.labels[order].tolist())
    return np.sort(order[np.argsort(turn, kind="stable")[:count]])


def require_usable(splits: Splits, tested: bool = False) -> Splits:
    """The splits, or an error if nothing can be learned, found or, if `tested`, tested."""
    seen = len(splits.train.classes)
    if seen < 2:
        raise ValueError(f"training needs at least 2 seen classes, got {seen}: add classes")
    if tested and not splits.testable:
        raise ValueError("testing needs images of at least 2 unseen classes: add classes")
    if splits.testable and splits.without_positive() == len(splits.query):
        n, advice = len(splits.query), "add images, or leave other classes unseen"
        raise ValueError(f"none of the {n} test images has another one of its class: {advice}")
    return splits


@dataclass(frozen=True)
class ClassSplit:
    """The rule that splits classes into seen ones, to train on, and unseen ones, to test on."""

    unseen_fraction: float = 0.5  # rounded so that two classes are seen, and two or none unseen
    seed: int = 0  # draws by name, the same on every machine; an added class keeps the order
    order: Literal["shuffled", "sorted"] = "shuffled"  # sorted: the last by name are unseen
    unseen_classes: tuple[str, ...] = ()  # these instead of a fraction
    seen_classes: tuple[str, ...] = ()  # train on these; classes in neither list are ignored

    def __post_init__(self) -> None:
        if not 0 <= self.unseen_fraction < 1 or self.order not in ("shuffled", "sorted"):
            raise ValueError(f"unseen_fraction must be in [0, 1), order shuffled or sorted: {self}")
        both = sorted(set(self.unseen_classes) & set(self.seen_classes))
        if both:
            raise ValueError(f"a class is either seen or unseen, got both for {', '.join(both)}")

    def classes(self, names: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The seen and the unseen of these classes, each in alphabetical order."""
        unknown = sorted({*self.seen_classes, *self.unseen_classes} - set(names))
        if unknown:
            listed = " or ".join(map(repr, unknown))
            raise ValueError(f"the data has no class {listed}: {choices_hint(unknown[0], names)}")
        if self.unseen_classes or self.seen_classes:
            seen = set(self.seen_classes) or set(names) - set(self.unseen_classes)
            unseen = set(self.unseen_classes) or set(names) - seen
        else:
            last_first = sorted(names, reverse=True)
            ordered = last_first if self.order == "sorted" else shuffled_names(names, self.seed)
            count = min(round(self.unseen_fraction * len(names)), len(names) - 2)
            unseen = set(ordered[:count] if count >= 2 else ())
            seen = set(names) - unseen
        return sorted(seen), sorted(unseen)

    def __call__(self, listing: Listing, name: str = "", notes: tuple[str, ...] = ()) -> Splits:
        """The splits of a listing; an error if fewer than two classes are seen."""
        train, test = map(listing.of_classes, self.classes(listing.classes))
        return require_usable(Splits(train, test, name=name, notes=notes))
