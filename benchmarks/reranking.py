"""What re-ranking gains and costs on the images of an index, each searched among the others.

    python -m benchmarks.reranking cub.index grocery.index --save results

A row per index and method: the metrics, the seconds that it takes to prepare the gallery, and the
milliseconds of a query beside those of a plain search, queries one at a time on one thread.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np

from benchmarks import Row, save_rows_of_indexes
from benchmarks.timing import threads, timed
from proxysynth.retrieval import evaluate
from proxysynth.retrieval.reranking import plain_search, reranked
from proxysynth.search.index import Index

METHODS = (
    "",
    "query_expansion:k=5,alpha=0",
    "query_expansion",
    "database",
    "database+query_expansion",
    "k_reciprocal",
)
QUERIES = 50  # whose time is measured


def run(file: Path) -> list[Row]:
    """The rows of an index."""
    index = Index.open(file)
    x, y = index.vectors(0, len(index)), np.asarray(index.labels.codes).astype(np.int64)
    made = []
    for method in METHODS:
        metrics = evaluate(x, y, rerank=method or None)
        start = time.perf_counter()
        search = reranked(x, method) if method else plain_search(x)
        ready = time.perf_counter() - start
        taken = []
        for i in range(0, len(x), -(-len(x) // QUERIES)):
            taken.append(timed(search, x[i : i + 1], 10, [[i]], None))
        made.append(
            {
                "bench": "reranking",
                "data": file.stem,
                "model": index.model.backbone,
                "pictures": len(index),
                "classes": len(index.label_names),
                "method": method or "none",
                "recall@1": metrics["recall@1"],
                "r_precision": metrics["r_precision"],
                "map@r": metrics["map@r"],
                "prepare_seconds": ready,
                "query_milliseconds": 1000 * statistics.median(taken),
            }
        )
    return made


if __name__ == "__main__":
    with threads(1):
        save_rows_of_indexes(run)
