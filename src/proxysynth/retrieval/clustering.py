"""Groups of embeddings: near-duplicates, clusters, and NMI, their agreement with the classes.

    NMI(A, B) = 2 I(A; B) / (H(A) + H(B))

with I the mutual information and H the entropy of two ways to part the same images.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from proxysynth.retrieval.similarity import (
    Array,
    as_embeddings,
    as_labels,
    dots,
    is_integer,
    nonzero,
    summation_error,
    unit,
)

BLOCK = 2**22
"""Similarities held at once."""

STEPS = 100
"""Steps of k-means, at most."""

Groups = NDArray[np.int64]


def duplicates(embeddings: Array, threshold: float) -> tuple[Groups, NDArray[np.float64]]:
    """Groups of embeddings that are linked, also via others, by similarities >= threshold. Exact.

    Returns:
        (n,) the group of each, named by its lowest member: alone, a group of its own.
        (n,) the highest similarity to another one if that is >= threshold, else -1.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be a cosine in [-1, 1], got {threshold!r}")
    x = unit(as_embeddings(embeddings).to("cpu", torch.float32, copy=True))
    n, exact = len(x), None
    group, best = np.arange(n), np.full(n, -1.0)
    margin = 2 * summation_error(x.shape[1], torch.float32)
    height = max(1, BLOCK // n)
    for low in range(0, n, height):
        S = x[low : low + height] @ x[low:].T
        near = (threshold - margin <= S).triu_(1)
        row, column = nonzero(near)
        if not len(row):
            continue
        if exact is None:
            exact = unit(as_embeddings(embeddings).to("cpu", torch.float64, copy=True))
        s = dots(exact[low : low + height], exact[low:], row, column)
        linked = s >= threshold
        a, b = (row[linked] + low).numpy(), (column[linked] + low).numpy()
        for ends in (a, b):
            np.maximum.at(best, ends, s[linked].clamp(-1, 1).numpy())
        # Links so far are kept as a link of each to its group: n of them, however many there were.
        a, b = np.concatenate([a, np.arange(n)]), np.concatenate([b, group])
        links = coo_array((np.ones(len(a)), (a, b)), shape=(n, n))
        part = connected_components(links, directed=False)[1]
        lowest = np.full(n, n)
        np.minimum.at(lowest, part, np.arange(n))
        group = lowest[part]
    return group, best


def kmeans(embeddings: Array, k: int, *, seed: int = 0) -> Groups:
    """(n,) the cluster, of k, of each embedding, by direction: k-means of scikit-learn."""
    x = _directions(embeddings)
    if not is_integer(k) or not 1 <= k <= len(x):
        raise ValueError(f"k must be an integer from 1 to {len(x)}, the images, got {k!r}")
    cluster = _scikit_learn("cluster").KMeans(k, n_init=1, max_iter=STEPS, random_state=seed)
    return np.asarray(cluster.fit_predict(x), dtype=np.int64)


def hdbscan(embeddings: Array, least: int = 5) -> Groups:
    """(n,) the cluster of each embedding, -1 for none: HDBSCAN of scikit-learn.

    Args:
        least: images of a cluster.
    """
    x = _directions(embeddings)
    if not is_integer(least) or not 2 <= least <= len(x):
        raise ValueError(f"a cluster must have from 2 to {len(x)} images, got {least!r}")
    # Euclidean distances of unit vectors are in the order of cosines.
    cluster = _scikit_learn("cluster").HDBSCAN(min_cluster_size=least, copy=True)
    return np.asarray(cluster.fit_predict(x), dtype=np.int64)


def clustering_nmi(embeddings: Array, labels: Array, *, seed: int = 0) -> float:
    """NMI of the labels and a k-means clustering into as many clusters as there are labels."""
    y = as_labels(labels, len(embeddings)).cpu().numpy()
    return mutual_information(y, kmeans(embeddings, len(np.unique(y)), seed=seed))


def mutual_information(a: Groups, b: Groups) -> float:
    """The normalized mutual information of two labelings, in [0, 1]."""
    return float(_scikit_learn("metrics").normalized_mutual_info_score(a, b))


def _directions(embeddings: Array) -> NDArray[np.float32]:
    return unit(as_embeddings(embeddings).to("cpu", torch.float32, copy=True)).numpy()


def _scikit_learn(part: str) -> Any:
    try:
        return __import__(f"sklearn.{part}", fromlist=["_"])
    except ImportError as error:
        raise ValueError(
            "clustering needs scikit-learn: pip install 'proxysynth[cluster]'"
        ) from error
