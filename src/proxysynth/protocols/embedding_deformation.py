"""The embedding deformation protocol: do mixtures of the same two classes find each other?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from proxysynth.losses.functional import unit
from proxysynth.retrieval.knn import Array, as_embeddings, as_labels, nearest
from proxysynth.training.callbacks import Tick
from proxysynth.values import check_integers

LAMS = tuple(round(0.05 * step, 2) for step in range(2, 20))
"""0.10, 0.15, ... 0.95: the 18 values of Table B."""


class Parents(NamedTuple):
    """The parents of the synthetics: rows of the embeddings, one for each synthetic."""

    first: Tensor  # (m,), of class a for a synthetic of the order (a, b)
    second: Tensor  # (m,), of class b
    pair: Tensor  # (m,), the number of the unordered pair, which both orders share


@dataclass(frozen=True)
class EmbeddingDeformation:
    """Mix embeddings of two classes and look for others of the same mix.     [Table B, Figure 5]

        x~ = lam x_a + (1 - lam) x_b,   at unit length,   for the order (a, b) and for (b, a)

    A synthetic is correct if its nearest neighbor, among all originals and all other synthetics, is
    a synthetic of the same unordered pair of classes. The two orders lie apart, except at
    lam = 0.5, where they coincide and each synthetic has twice as many near companions: there the
    curve peaks. Parents are drawn at random, the same for every lam; no two synthetics of a pair
    have both parents in common.

    Args:
        pairs: number of pairs of classes to draw, or all if there are fewer.
        per_order: synthetics of each order of a pair. Classes with too few images to give each
            of them its own parents are left out.
        lams: the shares of the first class.
        seed: of the draws.
    """

    pairs: int = 100
    per_order: int = 8
    lams: tuple[float, ...] = LAMS
    seed: int = 0

    def __post_init__(self) -> None:
        check_integers(self, pairs=1, per_order=2, seed=0)
        if not self.lams or not all(0 <= lam <= 1 for lam in self.lams):
            raise ValueError(f"EmbeddingDeformation: lams must lie in [0, 1], got {self.lams!r}")

    def __call__(
        self, embeddings: Array, labels: Array, *, tick: Tick | None = None
    ) -> dict[float, float]:
        """Recall@1 of the synthetics of these originals, (n, d) and (n,), for each lam, as a
        fraction; `tick` is called with 1 after each."""
        x = unit(as_embeddings(embeddings))
        parents = self.draw(as_labels(labels, len(x)).cpu())
        # Synthetics first, so that a query and its own gallery row have the same index.
        pair = torch.cat((parents.pair, parents.pair.new_full((len(x),), -1)))
        recalls = {}
        for lam in self.lams:
            made = unit(lam * x[parents.first] + (1 - lam) * x[parents.second])
            found = nearest(made, torch.cat((made, x)), 1, exclude=torch.arange(len(made)))
            right = pair[found.indices[:, 0].cpu()] == parents.pair
            recalls[lam] = right.double().mean().item()
            if tick is not None:
                tick(1, f"lam {lam:.2f}")
        return recalls

    def draw(self, labels: Tensor) -> Parents:
        """The parents of all synthetics, for originals with these labels."""
        rng, half = np.random.default_rng(self.seed), self.per_order
        order = np.argsort(labels.numpy(), kind="stable")
        _, starts = np.unique(labels.numpy()[order], return_index=True)
        least = math.ceil(math.sqrt(2 * half))
        members = [rows for rows in np.split(order, starts[1:]) if len(rows) >= least]
        if len(members) < 2:
            needed = f"at least 2 classes with {least} images or more"
            raise ValueError(f"mixing needs {needed}, got {len(members)}")
        parts = []
        for number, (a, b) in enumerate(_pairs(len(members), self.pairs, rng)):
            one, other = members[a], members[b]
            # Different couples: no two synthetics of a pair have both parents in common.
            couples = rng.choice(len(one) * len(other), 2 * half, replace=False)
            one, other = one[couples // len(other)], other[couples % len(other)]
            first = np.concatenate((one[:half], other[half:]))
            second = np.concatenate((other[:half], one[half:]))
            parts.append((first, second, np.full(2 * half, number)))
        columns = zip(*parts, strict=True)
        return Parents(*(torch.from_numpy(np.concatenate(column)) for column in columns))


def _pairs(classes: int, count: int, rng: np.random.Generator) -> list[tuple[int, int]]:
    """`count` different unordered pairs of classes, or all; the order of each is drawn too."""
    every = classes * (classes - 1) // 2
    made = []
    for number in rng.choice(every, min(count, every), replace=False).tolist():
        # Pairs (a, b) with a < b, counted 01, 02, 12, 03, ...: b (b - 1) / 2 come before b.
        b = (1 + math.isqrt(1 + 8 * number)) // 2
        pair = number - b * (b - 1) // 2, b
        made.append(pair if rng.random() < 0.5 else pair[::-1])
    return made
