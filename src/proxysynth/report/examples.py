"""Queries with what they retrieve, and their images as thumbnails."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proxysynth.data import Listing, UnreadableImage, open_image, read_image
from proxysynth.report.pages import data_uri
from proxysynth.retrieval import nearest
from proxysynth.retrieval.knn import Sets
from proxysynth.retrieval.metrics import rank_sets
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

NEIGHBORS = 8  # shown for each query
EACH = 5  # queries shown of each kind in a report
EACH_DISAGREEMENT = 4
CHUNK = 512  # queries per search until enough examples are found
SIDE = 128  # pixels of a thumbnail; shown at about half of it, for dense screens
LOSSLESS = 64  # up to this side a PNG is smaller than a JPEG, and sharper


@dataclass(frozen=True)
class Neighbor:
    """A retrieved gallery image."""

    index: int
    label: int
    similarity: float


@dataclass(frozen=True)
class Example:
    """A query and its nearest neighbors, the nearest first."""

    query: int
    label: int
    neighbors: tuple[Neighbor, ...]

    @property
    def right(self) -> bool:
        """Whether the nearest is of the query's class, as Recall@1 counts."""
        return self.neighbors[0].label == self.label


def look_up(data: Sets, queries: Sequence[int], k: int = NEIGHBORS) -> list[Example]:
    """These queries with their k nearest neighbors, or fewer in a small gallery."""
    if not queries:
        return []
    k = min(k, len(data.gallery) - data.own)
    found = nearest(data.x[queries], data.gallery, k, exclude=queries if data.own else None)
    labels = data.gallery_y[found.indices]
    columns = (found.indices.tolist(), labels.tolist(), found.similarities.tolist())
    return [
        Example(query, int(data.y[query]), tuple(map(Neighbor, *neighbors)))
        for query, *neighbors in zip(queries, *columns, strict=True)
    ]


def choose(data: Sets, each: int = EACH, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """Up to `each` random queries whose nearest neighbor is right, and as many others; of those
    that have another image of their class to find."""
    y, gallery_y = data.y.numpy(), data.gallery_y.numpy()
    of_class = np.bincount(gallery_y, minlength=int(y.max()) + 1)[y]
    order = np.random.default_rng(seed).permutation(np.flatnonzero(of_class > data.own))
    right: list[Example] = []
    wrong: list[Example] = []
    for at in range(0, len(order), CHUNK):
        for example in look_up(data, order[at : at + CHUNK].tolist()):
            (right if example.right else wrong).append(example)
        if min(len(right), len(wrong)) >= each:
            break
    return right[:each], wrong[:each]


Pairs = tuple[tuple[Example, Example], ...]


@dataclass(frozen=True)
class Disagreement:
    """Two runs on the same queries; a query is right if its nearest neighbor is."""

    first: str  # the names of the runs
    second: str
    both: int  # how many queries are right in both runs
    neither: int
    only_first: int
    only_second: int
    first_right: Pairs  # examples that only the first gets right, with the answers of each run
    second_right: Pairs

    @property
    def queries(self) -> int:
        return self.both + self.neither + self.only_first + self.only_second

    def to_json(self) -> dict[str, Any]:
        """The counts, and the indices of the queries that are shown."""
        shown = {"first_right": self.first_right, "second_right": self.second_right}
        queries = {name: [example.query for example, _ in pairs] for name, pairs in shown.items()}
        return {**vars(self), **queries}


def disagreement(
    first: str, a: Sets, second: str, b: Sets, shown: int = EACH_DISAGREEMENT
) -> Disagreement:
    """Compare the answers of two runs, given their names and their embeddings of the same images
    in the same order."""
    if not torch.equal(a.y, b.y):
        raise ValueError(f"{first} and {second} were tested on different images")
    ranked, draw = (rank_sets(a), rank_sets(b)), np.random.default_rng(0)
    of_a, of_b = (each.found(1) for each in ranked)

    def pick(which: Tensor) -> Pairs:
        chosen = draw.permutation(np.flatnonzero(which))[:shown].tolist()
        return tuple(zip(look_up(a, chosen), look_up(b, chosen), strict=True))

    return Disagreement(
        first,
        second,
        both=int((of_a & of_b).sum()),
        neither=int((ranked[0].answerable & ~of_a & ~of_b).sum()),
        only_first=int((of_a & ~of_b).sum()),
        only_second=int((~of_a & of_b).sum()),
        first_right=pick(of_a & ~of_b),
        second_right=pick(~of_a & of_b),
    )


def sample(data: Sets, most: int) -> Sets:
    """At most `most` queries and gallery images, drawn with a fixed seed."""
    query, gallery = (
        np.random.default_rng(0).permutation(len(labels))[:most]
        for labels in (data.y, data.gallery_y)
    )
    x, y, gallery_x, gallery_y, own = data
    return Sets(x[query], y[query], gallery_x[gallery], gallery_y[gallery], own)


@dataclass(frozen=True, eq=False)
class Pictures:
    """The images of a test by their index in it, each as a listing and an index into it."""

    query: dict[int, tuple[Listing, int]] = field(default_factory=dict)
    gallery: dict[int, tuple[Listing, int]] = field(default_factory=dict)
    missing: str = ""  # why they cannot be shown, if so

    def of_query(self, index: int) -> str | None:
        return _shown(self.query, index)

    def of_gallery(self, index: int) -> str | None:
        return _shown(self.gallery, index)

    def query_name(self, index: int) -> str:
        return _name(self.query, index)

    def gallery_name(self, index: int) -> str:
        return _name(self.gallery, index)


def _shown(pictures: dict[int, tuple[Listing, int]], index: int) -> str | None:
    if index not in pictures:
        return None
    listing, at = pictures[index]
    return thumbnail(read_image(listing, at) if listing.root is None else listing.path(at))


def _name(pictures: dict[int, tuple[Listing, int]], index: int) -> str:
    """The path of an image in its data; empty if it is missing."""
    if index not in pictures:
        return ""
    listing, at = pictures[index]
    return listing.names[at]


def open_pictures(run: Run, query: Sequence[str], gallery: Sequence[str] | None) -> Pictures:
    """The test images of a run by their names; no gallery if the queries are their own."""

    def find(listing: Listing, names: Sequence[str]) -> dict[int, tuple[Listing, int]]:
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


def thumbnail(source: Path | Image.Image, side: int = SIDE) -> str | None:
    """An image, its longer side at most `side`, as a data URI; None if it cannot be read."""
    try:
        image = source if isinstance(source, Image.Image) else open_image(source, at_least=side)
    except UnreadableImage:
        return None
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file, kind = io.BytesIO(), "png" if max(image.size) <= LOSSLESS else "jpeg"
    image.save(file, kind, **({"optimize": True} if kind == "png" else {"quality": 82}))
    return data_uri(file.getvalue(), kind)
