"""A listing: pictures in order, each with a label. What every other part of the package reads."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxysynth.values import nearest


@dataclass(frozen=True, eq=False)
class Listing:
    """Pictures with labels, as files under a root or as an array in memory.

    Args:
        names: one per picture: the path under `root` with forward slashes, or any text for pixels.
        labels: (n,) whole numbers in [0, c); kept as int64 and read-only.
        classes: the name of each label; c = len(classes).
        root: the folder of the files; None for pixels.
        pixels: (n, h, w) grey or (n, h, w, 3) RGB, uint8; None for files.
    """

    names: tuple[str, ...]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]
    root: Path | None = None
    pixels: NDArray[np.uint8] | None = None

    def __post_init__(self) -> None:
        labels = np.array(self.labels, dtype=np.int64)
        labels.setflags(write=False)
        object.__setattr__(self, "names", tuple(self.names))
        object.__setattr__(self, "labels", labels)
        object.__setattr__(self, "classes", tuple(self.classes))
        n, c = len(self.names), len(self.classes)
        if labels.shape != (n,):
            raise ValueError(f"expected one label per picture, got {n} and {labels.shape}")
        if n and not 0 <= labels.min() <= labels.max() < c:
            raise ValueError(
                f"labels must lie in [0, {c}), got {labels.min()} to {labels.max()}: "
                "number the classes from 0"
            )
        if len(set(self.classes)) != c:
            raise ValueError(f"each class needs its own name, got {c} with repetitions")
        if (self.root is None) == (self.pixels is None):
            raise ValueError(
                "a listing holds either files under a root or pixels, give one of them"
            )
        if self.pixels is not None:
            _check_pixels(self.pixels, n)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        where = "pixels in memory" if self.root is None else str(self.root)
        return f"Listing({len(self)} pictures, {len(self.classes)} classes, {where})"

    def path(self, index: int) -> Path:
        """The file of one picture."""
        if self.root is None:
            raise ValueError(f"{self.names[index]!r} is held in memory and has no file")
        return self.root / self.names[index]

    def counts(self) -> NDArray[np.int64]:
        """Pictures per class, (c,)."""
        return np.bincount(self.labels, minlength=len(self.classes)).astype(np.int64)

    def take(self, indices: ArrayLike) -> Listing:
        """These pictures in this order; every class stays, even one left without a picture."""
        chosen = np.asarray(indices, dtype=np.int64)
        return replace(
            self,
            names=tuple(self.names[i] for i in chosen),
            labels=self.labels[chosen],
            pixels=None if self.pixels is None else self.pixels[chosen],
        )

    def of_classes(self, classes: Sequence[str]) -> Listing:
        """The pictures of these classes, labelled 0, 1, ... in the order given."""
        for name in classes:
            if name not in self.classes:
                raise ValueError(f"no class {name!r} here: {nearest(name, self.classes)}")
        number = np.full(len(self.classes), -1, dtype=np.int64)
        number[[self.classes.index(name) for name in classes]] = np.arange(len(classes))
        chosen = np.flatnonzero(number[self.labels] >= 0)
        taken = self.take(chosen)
        return replace(taken, labels=number[taken.labels], classes=tuple(classes))

    def without_empty_classes(self) -> Listing:
        """The same pictures, labels closed up over the classes that have any."""
        full = [name for name, n in zip(self.classes, self.counts(), strict=True) if n]
        return self if len(full) == len(self.classes) else self.of_classes(full)

    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of names, labels, classes and pixels; a file's bytes stay out,
        so that a large folder is not read for its name."""
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


def listing_of_files(root: Path, files: Iterable[tuple[str, str]]) -> Listing:
    """A listing of (name, class) pairs, sorted by class and name; classes in that order."""
    pairs = sorted((label, name) for name, label in files)
    classes = sorted({label for label, _ in pairs})
    number = {label: i for i, label in enumerate(classes)}
    return Listing(
        names=tuple(name for _, name in pairs),
        labels=np.array([number[label] for label, _ in pairs], dtype=np.int64),
        classes=tuple(classes),
        root=root,
    )


def shuffled_names(names: Collection[str], seed: int) -> list[str]:
    """The names in an order drawn by the seed, on any machine and any version of any library.

    Each name is placed by its own hash, so that adding a class leaves the others in their order.
    """
    return sorted(names, key=lambda name: (_hash(f"{seed}:{name}"), name))


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()


def _check_pixels(pixels: NDArray[np.uint8], n: int) -> None:
    good = pixels.dtype == np.uint8 and len(pixels) == n
    if not good or not (pixels.ndim == 3 or (pixels.ndim == 4 and pixels.shape[3] == 3)):
        raise ValueError(
            f"pixels must be uint8 of shape ({n}, h, w) or ({n}, h, w, 3), "
            f"got {pixels.dtype} of shape {pixels.shape}"
        )
