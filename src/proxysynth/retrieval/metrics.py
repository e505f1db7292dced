"""Retrieval metrics: Recall@k, P@1, R-precision, MAP@R and, on request, NMI.

    Recall@k     a positive is among the k nearest                          1 or 0 per query
    P@1          the nearest is a positive, which is Recall@1
    R-precision  r / R, with r positives among the R nearest, R being how many there are
    MAP@R        1/R  sum_i=1..R  P(i)  where the i-th nearest is a positive, else 0
    NMI          2 I(A; B) / (H(A) + H(B))  with I the mutual information of the classes A and a
                 k-means clustering B, and H the entropy

Each but NMI is the mean over the queries that have a positive. R-precision and MAP@R are those of
Musgrave, Belongie and Lim, "A Metric Learning Reality Check" (2020): unlike Recall@1 they reward
retrieving all of a class, and MAP@R also rewards the order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.errors import import_optional
from proxysynth.retrieval.knn import (
    Array,
    Sets,
    as_embeddings,
    as_excluded,
    as_labels,
    as_sets,
    check_size,
    is_integer,
    normalize_rows_,
)
from proxysynth.retrieval.ranking import STEP, Arrangement, ranks, round_up

if TYPE_CHECKING:
    from proxysynth.retrieval.reranking import Method

LISTS = 4096  # queries whose lists of neighbors are held at once
BLOCK = 80 * STEP  # side of a block: large enough to be fast, small enough to stay in the cache


def evaluate(
    embeddings: Array,
    labels: Array,
    *,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    ks: Iterable[int] = (1, 2, 4, 8),
    nmi: bool = False,
    rerank: str | Sequence[Method] | None = None,
    exclude: Sequence[Sequence[int]] | None = None,
) -> dict[str, float]:
    """How well queries retrieve their class, as fractions in [0, 1].

    Exact, computed in blocks, by cosine similarity; ties go to the lower gallery index. Without a
    gallery the queries are their own gallery, and a query never retrieves itself, whatever its
    duplicates.

    Args:
        embeddings: (n, d) the queries, a tensor or an array; need not be normalized.
        labels: (n,) integers of any value.
        gallery, gallery_labels: (N, d) and (N,), if the queries are not their own gallery.
        ks: the k of Recall@k.
        nmi: also cluster the embeddings into as many clusters as classes and compare (needs
            scikit-learn).
        rerank: methods of re-ranking such as "query_expansion", see `reranking`; default: none.
        exclude: for each query the gallery indices that it must not find; default: with a gallery
            none, without one itself.

    Returns:
        `recall@k` for every k, `precision@1`, `r_precision`, `map@r`, `nmi` on request; `queries`,
        the number averaged over, and `queries_without_positive`, the number left out.
    """
    ks = check_ks(ks)
    if nmi and gallery is not None:
        raise ValueError("nmi is defined for one set of embeddings: omit nmi or gallery")
    ranking = rank(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        rerank=rerank,
        exclude=exclude,
        least=max(ks, default=1),
    )
    metrics = summarize(ranking, ks)
    others = len(embeddings) - 1 if gallery is None else len(gallery)
    if bool((ranking.positives == others).all()):
        warnings.warn("all labels are the same, so every result is a positive", stacklevel=2)
    if nmi:
        y = as_labels(labels, len(embeddings)).cpu().numpy()
        metrics["nmi"] = mutual_information(y, kmeans(embeddings, len(np.unique(y))))
    return metrics


@dataclass(frozen=True)
class Ranking:
    """The results of n queries, in the given order; each tensor is (n,)."""

    positives: Tensor  # R, how many of the gallery are of the query's class, itself excluded
    first: Tensor  # the rank from 0 of the nearest positive; -1 where there is none
    r_precision: Tensor  # the fraction of positives among the R nearest
    average_precision: Tensor  # MAP@R before the mean

    @property
    def answerable(self) -> Tensor:
        """(n,) whether the query has a positive at all; the others are in no average."""
        return self.positives > 0

    def found(self, k: int) -> Tensor:
        """(n,) whether a positive is among the k nearest."""
        return self.answerable & (self.first < k)


@torch.inference_mode(False)  # our threads could not write to tensors made in inference mode
def rank(
    embeddings: Array,
    labels: Array,
    *,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    rerank: str | Sequence[Method] | None = None,
    exclude: Sequence[Sequence[int]] | None = None,
    least: int = 8,
    block: int | None = None,
) -> Ranking:
    """Rank the gallery for every query, exactly, and keep what the metrics are made of.

    Without a gallery a query is excluded from its own results by its index, so a duplicate of it is
    a neighbor like any other. With a gallery nothing is excluded unless `exclude` says so. See
    `evaluate` for the arguments.

    Args:
        least: with `rerank` or `exclude`, neighbors searched for the first positive, at least.
        block: side of the blocks of the similarity matrix; affects speed and memory only.
    """
    sets = as_sets(embeddings, labels, gallery, gallery_labels)
    if rerank is not None or exclude is not None:
        return _rank_lists(sets, rerank or (), exclude, least)
    return rank_sets(sets, block)


@torch.inference_mode(False)
def rank_sets(sets: Sets, block: int | None = None) -> Ranking:
    """`rank` of sets that are checked already."""
    side = round_up(check_size(block, BLOCK, "block"))
    arrangement = Arrangement(sets)
    R = arrangement.positives()
    positives, average = torch.zeros_like(sets.y), torch.zeros_like(sets.y, dtype=torch.float64)
    first, precision = torch.full_like(positives, -1), torch.zeros_like(average)
    some = R > 0
    if some.any():
        found = ranks(arrangement, side)
        at, R = arrangement.queries.index[some], R[some]
        positives[at], first[at] = R, found.first[some]
        precision[at], average[at] = found.right[some] / R.double(), found.gain[some] / R.double()
    return Ranking(positives.cpu(), first.cpu(), precision.cpu(), average.cpu())


def _rank_lists(
    sets: Sets,
    rerank: str | Sequence[Method],
    exclude: Sequence[Sequence[int]] | None,
    least: int,
) -> Ranking:
    """`rank` by the lists of neighbors themselves: for re-ranked and for restricted searches."""
    from proxysynth.retrieval.reranking import reranked

    x, y, g, gy = (each.cpu() for each in sets[:4])
    itself = torch.arange(len(x)) if sets.own else None
    hidden = as_excluded(itself if exclude is None else exclude, len(x))
    if (highest := max((j for some in hidden for j in some), default=0)) >= len(g):
        raise ValueError(f"exclude holds {highest}, but the gallery has the indices below {len(g)}")
    classes, label = torch.unique(torch.cat([y, gy]), return_inverse=True)
    R = torch.bincount(label[len(y) :], minlength=len(classes))[label[: len(y)]]
    R -= torch.tensor([sum(int(gy[j]) == int(y[i]) for j in hidden[i]) for i in range(len(x))])
    search = reranked(g, rerank)
    width = min(len(g), max(least, int(R.max())))
    parts = []
    for at in range(0, len(x), LISTS):
        rows = slice(at, at + LISTS)
        found = search(x[rows], width, hidden[rows], None)
        place = torch.arange(1, found.shape[1] + 1)
        right = (gy[found.clamp(min=0)] == y[rows, None]) & (found >= 0)
        top = right & (place <= R[rows, None])
        gain = (top.cumsum(1).double() / place).mul_(top).sum(1)
        # A first positive beyond the list has the length of the list as its rank.
        first = torch.where(right.any(1), right.int().argmax(1), found.shape[1])
        some = R[rows].clamp(min=1).double()
        parts.append((first.masked_fill(R[rows] == 0, -1), top.sum(1) / some, gain / some))
    first, precision, average = (torch.cat(each) for each in zip(*parts, strict=True))
    return Ranking(R, first, precision, average)


def summarize(ranking: Ranking, ks: Iterable[int] = (1, 2, 4, 8)) -> dict[str, float]:
    """The means over the queries that have a positive: the dict that `evaluate` returns."""
    some = ranking.answerable
    queries = int(some.sum())
    if not queries:
        raise ValueError(
            f"no query has a positive in the gallery (queries: {len(some)}): labels of queries and "
            "gallery must name the classes alike; without a gallery, a class needs two images"
        )
    metrics = {f"recall@{k}": int(ranking.found(k).sum()) / queries for k in check_ks(ks)}
    metrics["precision@1"] = int(ranking.found(1).sum()) / queries
    metrics["r_precision"] = float(ranking.r_precision[some].mean())
    metrics["map@r"] = float(ranking.average_precision[some].mean())
    metrics["queries"] = queries
    metrics["queries_without_positive"] = len(some) - queries
    return metrics


def check_ks(ks: Iterable[int]) -> tuple[int, ...]:
    """`ks` as a tuple of integers >= 1."""
    try:
        ks = tuple(ks)
    except TypeError:
        raise ValueError(f"ks must be a sequence, got {ks!r}: try ks=(1, 2, 4, 8)") from None
    for k in ks:
        if not is_integer(k) or k < 1:
            raise ValueError(f"ks must be integers >= 1, got {k!r}: try ks=(1, 2, 4, 8)")
    return tuple(int(k) for k in ks)


# ---- Clusters


def kmeans(embeddings: Array, k: int, *, seed: int = 0) -> NDArray[np.int64]:
    """(n,) the cluster, of k, of each embedding, by direction: k-means of scikit-learn."""
    x = directions(embeddings)
    if not is_integer(k) or not 1 <= k <= len(x):
        raise ValueError(
            f"k must be an integer from 1 to {len(x)}, the number of images, got {k!r}"
        )
    cluster = scikit_learn("cluster").KMeans(k, n_init=1, max_iter=100, random_state=seed)
    return np.asarray(cluster.fit_predict(x), dtype=np.int64)


def mutual_information(a: NDArray[np.int64], b: NDArray[np.int64]) -> float:
    """The normalized mutual information of two clusterings, in [0, 1]."""
    return float(scikit_learn("metrics").normalized_mutual_info_score(a, b))


def directions(embeddings: Array) -> NDArray[np.float32]:
    """Embeddings of unit length, whose Euclidean distances are in the order of cosines."""
    return normalize_rows_(as_embeddings(embeddings).to("cpu", torch.float32, copy=True)).numpy()


def scikit_learn(part: str) -> Any:
    """A module of scikit-learn, which is an extra."""
    return import_optional(f"sklearn.{part}", "cluster", "clustering")
