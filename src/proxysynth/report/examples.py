"""Queries with what they retrieve, to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxysynth.retrieval import nearest

NEIGHBOURS = 8  # shown for each query
CHUNK = 512  # queries looked up at a time until enough are found


@dataclass(frozen=True, eq=False)
class Embedded:
    """Embeddings of a test set.

    Attributes:
        query, labels: (n, d) and (n,).
        gallery, gallery_labels: (N, d) and (N,); None where the queries are their own gallery.
    """

    query: NDArray[np.float32]
    labels: NDArray[np.int64]
    gallery: NDArray[np.float32] | None = None
    gallery_labels: NDArray[np.int64] | None = None

    def there(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Where queries are looked up."""
        if self.gallery is None or self.gallery_labels is None:
            return self.query, self.labels
        return self.gallery, self.gallery_labels

    def answerable(self) -> NDArray[np.int64]:
        """The queries that have a picture of their class to find."""
        own = self.gallery is None
        _, labels = self.there()
        counts = np.bincount(labels, minlength=int(self.labels.max()) + 1)
        return np.flatnonzero(counts[self.labels] > own)


@dataclass(frozen=True)
class Neighbour:
    """A gallery picture that a query retrieved, and whether it is of the query's class."""

    index: int
    label: int
    similarity: float
    right: bool


@dataclass(frozen=True)
class Example:
    """A query and its nearest neighbours, the nearest first."""

    query: int
    label: int
    neighbours: tuple[Neighbour, ...]

    @property
    def right(self) -> bool:
        """Whether the nearest is of the query's class, as Recall@1 counts."""
        return self.neighbours[0].right


def look_up(data: Embedded, queries: Sequence[int], k: int = NEIGHBOURS) -> list[Example]:
    """These queries with their k nearest, or as many as there are; never the query itself."""
    gallery, labels = data.there()
    own = data.gallery is None
    k = min(k, len(gallery) - own)
    if not len(queries):
        return []
    chosen = np.asarray(queries, dtype=np.int64)
    # One more than is shown, since a query that is in the gallery will meet itself.
    found = nearest(data.query[chosen], gallery, k + own)
    made = []
    for query, index, cosine in zip(
        chosen.tolist(), found.indices.tolist(), found.similarities.tolist(), strict=True
    ):
        label = int(data.labels[query])
        hits = [(i, s) for i, s in zip(index, cosine, strict=True) if not (own and i == query)]
        neighbours = tuple(
            Neighbour(i, int(labels[i]), float(s), int(labels[i]) == label) for i, s in hits[:k]
        )
        made.append(Example(query, label, neighbours))
    return made


def choose(data: Embedded, each: int = 5, seed: int = 0) -> tuple[list[Example], list[Example]]:
    """As many as `each` queries whose nearest is right, and as many whose nearest is wrong.

    The queries are taken in an order that the seed draws, so they are a fair sample of each kind.
    """
    order = np.random.default_rng(seed).permutation(data.answerable())
    right: list[Example] = []
    wrong: list[Example] = []
    for at in range(0, len(order), CHUNK):
        for example in look_up(data, order[at : at + CHUNK].tolist()):
            (right if example.right else wrong).append(example)
        if min(len(right), len(wrong)) >= each:
            break
    return right[:each], wrong[:each]
