"""Queries with what they retrieve, and their pictures as thumbnails."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.data import Listing, UnreadableImage, open_image, read_image
from proxysynth.retrieval import nearest
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

NEIGHBORS = 8  # shown for each query
EACH = 5  # queries shown of each kind in a report
EACH_DISAGREEMENT = 4
CHUNK = 512  # queries per search until enough examples are found
SIDE = 128  # pixels of a thumbnail; shown at about half of it, for dense screens
LOSSLESS = 64  # up to this side a PNG is smaller than a JPEG, and sharper


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of a test set.

    Attributes:
        query, labels: (n, d) and (n,).
        gallery, gallery_labels: (N, d) and (N,); None if the queries are their own gallery.
    """

    query: Floats
    labels: Ints
    gallery: Floats | None = None
    gallery_labels: Ints | None = None

    def target(self) -> tuple[Floats, Ints]:
        """The embeddings and labels that queries are compared with."""
        if self.gallery is None or self.gallery_labels is None:
            return self.query, self.labels
        return self.gallery, self.gallery_labels

    def sample(self, most: int) -> Embedded:
        """At most so many queries and gallery images, drawn with a fixed seed."""
        parts = ((self.query, self.labels), self.target())[: 1 if self.gallery is None else 2]
        kept: list[Any] = []
        for vectors, labels in parts:
            some = np.random.default_rng(0).permutation(len(labels))[:most]
            kept += [vectors[some], labels[some]]
        return Embedded(*kept)

    def with_positive(self) -> Ints:
        """The queries that have another image of their class to find."""
        _, labels = self.target()
        counts = np.bincount(labels, minlength=int(self.labels.max()) + 1)
        return np.flatnonzero(counts[self.labels] > (self.gallery is None))


@dataclass(frozen=True)
class Neighbor:
    """A retrieved gallery image; `right` if it is of the query's class."""

    index: int
    label: int
    similarity: float
    right: bool


@dataclass(frozen=True)
class Example:
    """A query and its nearest neighbors, the nearest first."""

    query: int
    label: int
    neighbors: tuple[Neighbor, ...]

    @property
    def right(self) -> bool:
        """Whether the nearest is of the query's class, as Recall@1 counts."""
        return self.neighbors[0].right


def look_up(data: Embedded, queries: Sequence[int], k: int = NEIGHBORS) -> list[Example]:
    """These queries with their k nearest neighbors, or fewer in a small gallery."""
    if not len(queries):
        return []
    gallery, labels = data.target()
    own = data.gallery is None
    chosen = np.asarray(queries, dtype=np.int64)
    k = min(k, len(gallery) - own)
    found = nearest(data.query[chosen], gallery, k, exclude=chosen.tolist() if own else None)
    examples = []
    for query, indices, similarities in zip(chosen, found.indices, found.similarities, strict=True):
        label = int(data.labels[query])
        neighbors = tuple(
            Neighbor(i, int(labels[i]), s, int(labels[i]) == label)
            for i, s in zip(indices.tolist(), similarities.tolist(), strict=True)
        )
        examples.append(Example(int(query), label, neighbors))
    return examples


def choose(data: Embedded, each: int = EACH, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """Up to `each` random queries whose nearest neighbor is right, and as many others."""
    order = np.random.default_rng(seed).permutation(data.with_positive())
    right: list[Example] = []
    wrong: list[Example] = []
    for at in range(0, len(order), CHUNK):
        for example in look_up(data, order[at : at + CHUNK].tolist()):
            (right if example.right else wrong).append(example)
        if min(len(right), len(wrong)) >= each:
            break
    return right[:each], wrong[:each]


@dataclass(frozen=True)
class Disagreement:
    """Two runs on the same queries; a query is right if its nearest neighbor is.

    Attributes:
        first, second: the names of the runs.
        both, neither, only_first, only_second: how many queries are right in which run.
        first_right, second_right: examples that only the first or the second gets right, with the
            answers of each run.
    """

    first: str
    second: str
    both: int
    neither: int
    only_first: int
    only_second: int
    first_right: tuple[tuple[Example, Example], ...]
    second_right: tuple[tuple[Example, Example], ...]

    @property
    def queries(self) -> int:
        return self.both + self.neither + self.only_first + self.only_second

    def to_json(self) -> dict[str, Any]:
        """The counts, and the indices of the queries that are shown."""
        shown = {name: getattr(self, name) for name in ("first_right", "second_right")}
        queries = {name: [example.query for example, _ in pairs] for name, pairs in shown.items()}
        return {**vars(self), **queries}


def disagreement(
    first: str, a: Embedded, second: str, b: Embedded, shown: int = EACH_DISAGREEMENT, seed: int = 0
) -> Disagreement:
    """Compare the answers of two runs, their names and embeddings of the same images in the same
    order; the seed draws which queries are shown."""
    if not np.array_equal(a.labels, b.labels):
        raise ValueError(f"{first} and {second} were tested on different images")
    queries = a.with_positive()

    def right(data: Embedded) -> NDArray[np.bool_]:
        chunks = [queries[at : at + CHUNK].tolist() for at in range(0, len(queries), CHUNK)]
        found = [example.right for chunk in chunks for example in look_up(data, chunk, k=1)]
        return np.array(found, dtype=bool)

    of_a, of_b, draw = right(a), right(b), np.random.default_rng(seed)

    def pick(which: NDArray[np.bool_]) -> tuple[tuple[Example, Example], ...]:
        chosen = draw.permutation(queries[which])[:shown].tolist()
        return tuple(zip(look_up(a, chosen), look_up(b, chosen), strict=True))

    return Disagreement(
        first,
        second,
        both=int((of_a & of_b).sum()),
        neither=int((~of_a & ~of_b).sum()),
        only_first=int((of_a & ~of_b).sum()),
        only_second=int((~of_a & of_b).sum()),
        first_right=pick(of_a & ~of_b),
        second_right=pick(~of_a & of_b),
    )


Places = dict[int, tuple[Listing, int]]
"""Where the pictures of a part of the test are now, by their place in it."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures of a test; `missing` says why they cannot be shown, if so."""

    query: Places = field(default_factory=dict)
    gallery: Places = field(default_factory=dict)
    missing: str = ""

    def of_query(self, index: int) -> str | None:
        return thumbnail(*self.query[index]) if index in self.query else None

    def of_gallery(self, index: int) -> str | None:
        return thumbnail(*self.gallery[index]) if index in self.gallery else None


def open_pictures(run: Run, query: Sequence[str], gallery: Sequence[str] | None) -> Pictures:
    """The test pictures of a run by their names; no gallery if the queries are their own."""

    def find(listing: Listing, names: Sequence[str]) -> Places:
        now = {name: index for index, name in enumerate(listing.names)}
        return {i: (listing, now[name]) for i, name in enumerate(names) if name in now}

    try:
        splits = open_splits(run)
        queries = others = find(splits.query, query)
        if gallery is not None:
            others = find(splits.gallery or splits.query, gallery)
        if not queries and not others:
            raise ValueError(f"{run.data} no longer contains those of the test")
    except (ValueError, OSError) as error:
        return Pictures(missing=f"The images cannot be shown: {error}.")
    return Pictures(queries, others)


def thumbnail(listing: Listing, index: int, side: int = SIDE) -> str | None:
    """A picture, its longer side at most `side`, as a data URI; None if it cannot be read."""
    try:
        if listing.root is None:
            image = read_image(listing, index)
        else:
            image = open_image(listing.path(index), at_least=side)
    except UnreadableImage:
        return None
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file, kind = io.BytesIO(), "png" if max(image.size) <= LOSSLESS else "jpeg"
    image.save(file, kind, **({"optimize": True} if kind == "png" else {"quality": 82}))
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
