"""NMI: do the clusters of the embeddings match the classes?

    NMI(A, B) = 2 I(A; B) / (H(A) + H(B))

with I the mutual information and H the entropy of two ways to part the same pictures.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from proxysynth.retrieval.similarity import Array, as_embeddings, as_labels, unit

ROUNDS = 256
"""Rounds of drawing initial centers. Up to this many clusters this is k-means++; with more, several
are drawn per round, since one at a time would take longer than the clustering."""

BLOCK = 2**22
"""Similarities of pictures and centers held at once."""


def clustering_nmi(embeddings: Array, labels: Array, *, seed: int = 0) -> float:
    """NMI of the labels and a k-means clustering into as many clusters as there are labels."""
    x = as_embeddings(embeddings)
    y = as_labels(labels, len(x)).to(x.device)
    classes, y = torch.unique(y, return_inverse=True)
    return mutual_information(y, kmeans(unit(x.clone()), len(classes), seed=seed))


def mutual_information(a: Tensor, b: Tensor) -> float:
    """The normalized mutual information of two labelings (integers >= 0); in [0, 1]."""
    n, width = len(a), int(b.max()) + 1
    cells, joint = torch.unique(a * width + b, return_counts=True)
    in_a, in_b = torch.bincount(a).double(), torch.bincount(b).double()
    p = joint.double() / n
    expected = in_a[cells // width] * in_b[cells % width] / n**2
    entropies = _entropy(in_a / n) + _entropy(in_b / n)
    if entropies == 0:  # one cluster, one class: they agree
        return 1.0
    shared = float((p * (p / expected).log()).sum())
    return min(1.0, max(0.0, 2 * shared / entropies))


def kmeans(x: Tensor, k: int, *, seed: int = 0, steps: int = 30) -> Tensor:
    """(n,) the cluster, of k, of each row of x: Lloyd's steps from k-means++ centers.

    Stops when no row changes its cluster. A cluster that loses all its rows starts again at the
    row that is farthest from its own center.
    """
    if not 1 <= k <= len(x):
        raise ValueError(f"k must be from 1 to the {len(x)} rows of x, got {k}")
    centers = _first_centers(x, k, torch.Generator().manual_seed(seed))
    cluster, distance = _assign(x, centers)
    for _ in range(steps):
        size = torch.bincount(cluster, minlength=k)
        sums = torch.zeros_like(centers).index_add_(0, cluster, x)
        centers = sums / size.clamp(min=1)[:, None]
        empty = (size == 0).nonzero().squeeze(1)
        if len(empty):
            centers[empty] = x[distance.topk(len(empty)).indices]
        before = cluster
        cluster, distance = _assign(x, centers)
        if torch.equal(before, cluster):
            break
    return cluster


def _first_centers(x: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """k different rows of x, far from each other: drawn by their squared distance to the nearest.

    Of several draws the one stays that leaves the rows nearest to a center. The draws are made on
    the CPU, so that one seed gives one choice on every device.
    """
    chosen = torch.randint(len(x), (1,), generator=generator)
    distance = _distance(x, chosen)
    tries = 2 + int(math.log(k))
    while len(chosen) < k:
        weight = distance.index_fill(0, chosen, 0)
        want = min(-(-k // ROUNDS), k - len(chosen))
        if int((weight > 0).sum()) < want:  # what is left is copies: any will do
            weight = torch.ones_like(distance).index_fill_(0, chosen, 0)
        draws = [_draw(weight, want, generator) for _ in range(tries)]
        nearer = [distance.minimum(_distance(x, draw)) for draw in draws]
        best = min(range(tries), key=lambda i: float(nearer[i].sum()))
        chosen, distance = torch.cat([chosen, draws[best]]), nearer[best]
    return x[chosen.to(x.device)]


def _distance(x: Tensor, rows: Tensor) -> Tensor:
    """(n,) the squared distance of each row of x to the nearest of these, on the CPU."""
    return _assign(x, x[rows.to(x.device)])[1].cpu().double()


def _draw(weight: Tensor, want: int, generator: torch.Generator) -> Tensor:
    """`want` different indices, likelier where the weight is larger: the Gumbel trick.

    `torch.multinomial` would do, but takes no more than 2^24 weights.
    """
    uniform = torch.rand(len(weight), dtype=torch.float64, generator=generator)
    gumbel = -(-uniform.clamp(min=1e-300).log()).log()
    return (weight.log() + gumbel).topk(want).indices


def _assign(x: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest center of each row, and the squared distance to it."""
    squares = centers.square().sum(1)
    cluster, distance = [], []
    for part in x.split(max(1, BLOCK // len(centers))):
        nearest = torch.addmm(squares, part, centers.T, alpha=-2).min(1)
        cluster.append(nearest.indices)
        distance.append((nearest.values + part.square().sum(1)).clamp(min=0))
    return torch.cat(cluster), torch.cat(distance)


def _entropy(p: Tensor) -> float:
    return float(-(p[p > 0] * p[p > 0].log()).sum())
