"""The similarities of queries to their positives: what everything else is held against."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.dots import dots
from proxysynth.retrieval.runs import spread
from proxysynth.retrieval.shelf import Shelves


@dataclass(frozen=True)
class Positives:
    """The positives of b queries, the nearest first, ties by gallery index.

    Attributes:
        similarity: (b, r) descending; -inf where a query has fewer than r.
        index: (b, r) their gallery indices.
        count: (b,) R, how many the query has.
    """

    similarity: Tensor
    index: Tensor
    count: Tensor


def find_positives(shelves: Shelves, rows: slice) -> Positives:
    """The positives of the queries on `rows` of their shelf."""
    queries, gallery = shelves.queries, shelves.gallery
    klass = queries.klass[rows][: queries.real(rows)]
    start, end = shelves.start[klass], shelves.start[klass + 1]
    row, place = spread(start, end - start)
    if shelves.own:
        others = gallery.index[place] != queries.index[rows][row]
        row, place = row[others], place[others]
    count = torch.bincount(row, minlength=rows.stop - rows.start)
    m = torch.arange(len(row), device=row.device) - (count.cumsum(0) - count)[row]
    shape = (len(count), int(count.max()))
    similarity = queries.x.new_full(shape, -torch.inf)
    similarity[row, m] = dots(queries.x[rows], gallery.x, row, place)
    index = queries.index.new_full(shape, -1)
    index[row, m] = gallery.index[place]
    similarity, order = similarity.sort(dim=1, descending=True, stable=True)
    return Positives(similarity, index.gather(1, order), count)
