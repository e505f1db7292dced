"""Where each query's positives stand in the gallery: the one result that every measure reads."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.inputs import (
    Array,
    as_block,
    as_embeddings,
    as_labels,
    check_dimensions,
    compute_type,
)
from proxysynth.retrieval.shelf import STEP, arrange, up
from proxysynth.retrieval.sweep import Progress, sweep

BLOCK = 80 * STEP
"""Side of a block: large enough for a fast product, small enough to stay in the cache."""


@dataclass(frozen=True)
class Ranking:
    """What became of each of n queries, in the order they were given.

    Attributes:
        positives: (n,) R, how many of the gallery are of the query's class, itself left out.
        first: (n,) the rank from 0 of the nearest positive; -1 where there is none.
        r_precision: (n,) the fraction of positives among the R nearest.
        average_precision: (n,) at R: 1/R sum over the R nearest of precision so far, where right.
    """

    positives: Tensor
    first: Tensor
    r_precision: Tensor
    average_precision: Tensor

    @property
    def answerable(self) -> Tensor:
        """(n,) whether the query has a positive at all; the others stand in no average."""
        return self.positives > 0

    def found(self, k: int) -> Tensor:
        """(n,) whether a positive is among the k nearest."""
        return self.answerable & (self.first < k)


@torch.inference_mode(False)  # a thread of ours could not write to what inference mode makes
def rank(
    embeddings: Array,
    labels: Array,
    *,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    block: int | None = None,
    progress: Progress | None = None,
) -> Ranking:
    """Rank the gallery for every query, exactly, and keep what the measures need.

    Similarity is cosine, ties go to the lower gallery index. Without a gallery the queries are
    their own, and a query never retrieves itself: it is left out by its index, so a duplicate of
    it is a neighbour like any other. With a gallery nothing is left out.

    Args:
        embeddings: (n, d) the queries.
        labels: (n,) whole numbers of any value.
        gallery, gallery_labels: (N, d) and (N,), given together or not at all.
        block: side of the blocks of the similarity matrix; only speed and memory depend on it.
        progress: called with the number of blocks done and of all blocks.
    """
    x = as_embeddings(embeddings)
    y = as_labels(labels, len(x)).to(x.device)
    g, gy = None, None
    if gallery is not None and gallery_labels is not None:
        g = as_embeddings(gallery, "gallery")
        check_dimensions(x, g, "embeddings")
        x, g = x.to(compute_type(x, g)), g.to(x.device, compute_type(x, g))
        gy = as_labels(gallery_labels, len(g), "gallery_labels", "gallery").to(x.device)
    elif gallery is not None:
        raise ValueError("gallery came without gallery_labels: give both, or neither")
    elif gallery_labels is not None:
        raise ValueError("gallery_labels came without gallery: give both, or neither")
    side = up(as_block(block, BLOCK))

    n, device = len(x), x.device
    positives = torch.zeros(n, dtype=torch.int64, device=device)
    first = torch.full_like(positives, -1)
    precision = torch.zeros(n, dtype=torch.float64, device=device)
    average = torch.zeros_like(precision)
    shelves = arrange(x, y, g, gy)
    for rows, counter in sweep(shelves, side, progress):
        some = (counter.count > 0).nonzero().squeeze(1)
        if not len(some):
            continue
        at = shelves.queries.index[rows][some]
        R, live, ranks = counter.count[some], counter.live[some], counter.ranks()[some]
        m = torch.arange(ranks.shape[1], device=device)
        # Positive m, counted from 0, is the (m + 1)-th right one among its first rank + 1.
        share = ((m + 1) / (ranks + 1.0).double()).masked_fill_(m >= live[:, None], 0)
        positives[at] = R
        first[at] = ranks[:, 0]
        precision[at] = live / R.double()
        average[at] = share.sum(1) / R
    return Ranking(positives.cpu(), first.cpu(), precision.cpu(), average.cpu())
