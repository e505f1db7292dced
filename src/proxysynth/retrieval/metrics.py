"""Measures of retrieval: Recall@k, P@1, R-precision, MAP@R and, on request, NMI.

    Recall@k     a positive is among the k nearest                          1 or 0 per query
    P@1          the nearest is a positive, which is Recall@1
    R-precision  r / R, with r positives among the R nearest, R being how many there are
    MAP@R        1/R  sum_i=1..R  P(i)  where the i-th nearest is a positive, else 0

Each is the mean over the queries that have a positive. R-precision and MAP@R are those of Musgrave,
Belongie and Lim, "A Metric Learning Reality Check" (2020): unlike Recall@1 they reward a class that
is gathered as a whole, and MAP@R also rewards the order.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxysynth.retrieval.clustering import clustering_nmi
from proxysynth.retrieval.inputs import Array, is_whole
from proxysynth.retrieval.ranking import Ranking, rank
from proxysynth.retrieval.sweep import Progress


def evaluate(
    embeddings: Array,
    labels: Array,
    *,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    ks: Iterable[int] = (1, 2, 4, 8),
    nmi: bool = False,
    block: int | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """How well queries retrieve their class, as fractions in [0, 1].

    Exact, streamed in blocks, by cosine similarity; ties go to the lower gallery index. Without a
    gallery the queries are their own and a query never retrieves itself, whatever its duplicates.

    Args:
        embeddings: (n, d) the queries, a tensor or an array; they need not be normalised.
        labels: (n,) whole numbers of any value.
        gallery, gallery_labels: (N, d) and (N,), where the queries are not their own gallery.
        ks: the k of Recall@k.
        nmi: also cluster the embeddings into as many clusters as classes and compare.
        block: side of the blocks of the similarity matrix; only speed and memory depend on it.
        progress: called with the number of blocks done and of all blocks.

    Returns:
        `recall@k` for every k, `precision@1`, `r_precision`, `map@r`, `nmi` on request;
        `queries`, the number averaged over, and `queries_without_positive`, left out of it.
    """
    ks = check_ks(ks)
    if nmi and gallery is not None:
        raise ValueError("nmi is of one set of embeddings, but a gallery came too: leave one out")
    ranking = rank(
        embeddings,
        labels,
        gallery=gallery,
        gallery_labels=gallery_labels,
        block=block,
        progress=progress,
    )
    measures = summarize(ranking, ks)
    if nmi:
        measures["nmi"] = clustering_nmi(embeddings, labels)
    return measures


def summarize(ranking: Ranking, ks: Iterable[int] = (1, 2, 4, 8)) -> dict[str, float]:
    """The means over the queries that have a positive; the dict that `evaluate` returns."""
    some = ranking.answerable
    queries = int(some.sum())
    if not queries:
        raise ValueError(
            f"no query has a positive in the gallery (queries: {len(some)}): "
            "at least one class needs a query and another picture"
        )
    measures = {f"recall@{k}": int(ranking.found(k).sum()) / queries for k in check_ks(ks)}
    measures["precision@1"] = int(ranking.found(1).sum()) / queries
    measures["r_precision"] = float(ranking.r_precision[some].mean())
    measures["map@r"] = float(ranking.average_precision[some].mean())
    measures["queries"] = queries
    measures["queries_without_positive"] = len(some) - queries
    return measures


def check_ks(ks: Iterable[int]) -> tuple[int, ...]:
    """ks as a tuple, or one sentence that says what is wrong with them."""
    try:
        ks = tuple(ks)
    except TypeError:
        raise ValueError(f"ks must be several numbers, got {ks!r}: try ks=(1, 2, 4, 8)") from None
    for k in ks:
        if not is_whole(k) or k < 1:
            raise ValueError(f"ks must be whole numbers from 1 on, got {k!r}: try ks=(1, 2, 4, 8)")
    return tuple(int(k) for k in ks)
