"""Embeddings put in order for counting: unit length, one class after another, padded.

With the gallery in class order the positives of a query stand side by side, and a block of the
similarity matrix away from the diagonal holds none. Small classes come first: neighbouring queries
then have about as many positives.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.inputs import unit

STEP = 16
"""Sides of blocks are multiples of this, so that flags of a row fill whole machine words."""


@dataclass(frozen=True)
class Shelf:
    """Rows in class order.

    Attributes:
        x: (n + padding, d) rows of length one, then rows of zeros.
        klass: (n + padding,) the place of the row's class, ascending; -1 for padding.
        index: (n + padding,) where the row stood in the user's matrix; -1 for padding.
        n: how many rows are real.
    """

    x: Tensor
    klass: Tensor
    index: Tensor
    n: int

    def blocks(self, side: int) -> list[slice]:
        """All the rows, in runs of `side`, a multiple of STEP; the last may reach into padding."""
        end = up(self.n)
        return [slice(at, min(at + side, end)) for at in range(0, end, side)]

    def real(self, rows: slice) -> int:
        """How many of these rows are not padding."""
        return min(rows.stop, self.n) - rows.start


def up(n: int) -> int:
    """n rounded up to a multiple of STEP."""
    return -(-n // STEP) * STEP


def shelve(x: Tensor, klass: Tensor, index: Tensor) -> Shelf:
    """The rows `index` of `x`, whose classes have the places `klass`, as a Shelf."""
    klass, order = torch.sort(klass, stable=True)  # stable: by index within a class
    index = index[order]
    n, rows = len(index), up(len(index))
    put = x.new_zeros(rows, x.shape[1])
    torch.index_select(x, 0, index, out=put[:n])
    unit(put[:n])
    pad = index.new_full((rows - n,), -1)
    return Shelf(put, torch.cat([klass, pad]), torch.cat([index, pad]), n)


@dataclass(frozen=True)
class Shelves:
    """Queries and gallery, in one order of the classes.

    Attributes:
        queries: those with a class in the gallery; the gallery itself when `own`.
        gallery: all of it.
        start: (c + 1,) where each class begins on the gallery's shelf.
        own: whether the queries are the gallery, so that none may retrieve itself.
    """

    queries: Shelf
    gallery: Shelf
    start: Tensor
    own: bool

    def positives(self, klass: Tensor) -> Tensor:
        """How many positives a query of each of these classes has."""
        return self.start[klass + 1] - self.start[klass] - int(self.own)


def arrange(x: Tensor, y: Tensor, gallery: Tensor | None, gallery_y: Tensor | None) -> Shelves:
    """Queries and gallery on shelves; without a gallery, the queries are their own."""
    own = gallery is None or gallery_y is None
    g, gy = (x, y) if gallery is None or gallery_y is None else (gallery, gallery_y)
    labels, which, size = torch.unique(gy, return_inverse=True, return_counts=True)
    at = torch.searchsorted(labels, y).clamp_(max=len(labels) - 1)
    asked = (labels[at] == y).nonzero().squeeze(1)
    by_size = torch.argsort(size, stable=True)
    place = torch.empty_like(by_size).scatter_(0, by_size, torch.arange(len(size), device=y.device))
    start = torch.cat([size.new_zeros(1), size[by_size].cumsum(0)])
    shelf = shelve(g, place[which], torch.arange(len(gy), device=y.device))
    queries = shelf if own else shelve(x, place[at[asked]], asked)
    return Shelves(queries, shelf, start, own)
