"""Which embeddings are mixed with which, and how much of each: the random part of Proxy Synthesis.

Everything random comes from one draw of torch's generator, which seeds a numpy generator: the same
state gives the same pairs and coefficients on every device and in every process.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Draw:
    """Which pairs are mixed, with which coefficient, into which synthetic class.

    i, j: (m,) positions in the batch.      lam: a scalar, or (m,) with one coefficient per pair.
    target: (m,) synthetic class of each pair, in 0..u-1.   first: (u,) the pair that made a class.
    """

    i: Tensor
    j: Tensor
    lam: Tensor
    target: Tensor
    first: Tensor

    @property
    def class_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """i, j and lam of the pair that made each synthetic class."""
        i, j = (pairs.index_select(0, self.first) for pairs in (self.i, self.j))
        return i, j, self.lam.index_select(0, self.first) if self.lam.dim() else self.lam


SPREAD = 0x9E3779B97F4A7C15F39CC0605CEDC835
"""2**128 over the golden ratio: maps nearby seeds to distant states."""

_kept = threading.local()


def draw_seed(generator: torch.Generator | None) -> int:
    """One draw of torch's generator: what all random choices of a step are made from."""
    device = generator.device if generator is not None else "cpu"
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device))


def numpy_generator(generator: torch.Generator | None) -> np.random.Generator:
    """A numpy generator that starts from one draw of torch's (of its default one, if None).

    Each thread reuses one: creating and seeding a new one would take as long as all that is drawn
    from it.
    """
    if not isinstance(generator, torch.Generator | None):
        raise ValueError(f"generator must be a torch.Generator or None, got {generator!r}")
    seed = draw_seed(generator)
    if not hasattr(_kept, "rng"):
        _kept.rng = np.random.Generator(np.random.PCG64(0))
    rng: np.random.Generator = _kept.rng
    state = {"state": seed * SPREAD % 2**128, "inc": 1}
    rng.bit_generator.state = {
        "bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0
    }  # fmt: skip
    return rng


def draw_pairs(labels: Ints, m: int, rng: np.random.Generator) -> Ints:
    """(2, m) pairs i, j of batch positions with labels[i] != labels[j]; none if there is one class.

    As far as the labels allow, every position is used equally often: the numbers of uses differ by
    at most one, unless one class fills more than half of the batch. Then each pair has one parent
    of that class, and its members, like all the others among themselves, are used equally often.
    """
    n = len(labels)
    if m == 0 or (labels == labels[0]).all():
        return np.empty((2, 0), np.int64)
    rounds = []
    for done in range(0, m, n):
        drawn = _shuffled(labels, min(n, m - done), rng)
        if drawn is None:
            return grouped_pairs(labels, m, rng)
        rounds.append(drawn)
    return np.concatenate(rounds, axis=1)


def _shuffled(labels: Ints, take: int, rng: np.random.Generator) -> tuple[Ints, Ints] | None:
    """Up to n random pairs; pairs of equal classes are repaired by swaps. None if that fails.

    Each position stands at most once as i and at most once as j.
    """
    n = len(labels)
    if take == n:
        i, j = np.arange(n), rng.permutation(n)
    else:
        # Firsts and seconds are kept apart (or, past one half, cover everything), so that no
        # position is used twice before another is used once.
        order, start = rng.permutation(n), min(take, n - take)
        i, j = order[:take], rng.permutation(np.concatenate((order[start:], order[:start]))[:take])
    for attempt in range(8):
        equal = np.flatnonzero(labels[i] == labels[j])
        if len(equal) == 0:
            return i, j
        if len(equal) == take:  # nothing to swap with
            return None
        for here in equal.tolist():
            there = (here + take // 2 + attempt) % take  # neighbors may be of the same class
            if labels[i[here]] != labels[j[there]] and labels[i[there]] != labels[j[here]]:
                j[here], j[there] = j[there], j[here]
    return None


def grouped_pairs(labels: Ints, m: int, rng: np.random.Generator) -> Ints:
    """Pairs for batches with few or uneven classes, by construction instead of by chance."""
    n = len(labels)
    _, group, counts = np.unique(labels, return_inverse=True, return_counts=True)
    largest = int(counts.max())
    if 2 * largest <= n:
        rounds = [_circle(group, largest, min(n, m - done), rng) for done in range(0, m, n)]
        return np.concatenate(rounds, axis=1)
    # Each pair: one of the class that fills most of the batch, one of the others, in any order.
    sides, majority = [], group == counts.argmax()
    for members in (np.flatnonzero(majority), np.flatnonzero(~majority)):
        turns = [rng.permutation(members) for _ in range(-(-m // len(members)))]
        sides.append(np.concatenate(turns)[:m])
    return np.where(rng.random(m) < 0.5, sides, sides[::-1])


def _circle(group: Ints, largest: int, take: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Up to n pairs, as `_shuffled` promises them, for any labels of which none has a majority."""
    n = len(group)
    # Classes one after the other, in random order: a class is a run of at most `largest` places,
    # so a step of `largest` to n - largest around the circle always leaves the class. The same step
    # keeps firsts and seconds apart, or lets them cover everything.
    order = rng.permutation(n)
    order = order[np.argsort(rng.random(n)[group[order]], kind="stable")]
    low = max(largest, min(take, n - take))
    step = rng.integers(low, n - low + 1)
    place = rng.integers(n) + np.arange(take)
    i, j = order[place % n], order[(place + step) % n]
    # Neighbors on the circle have neighbors as partners, so equal class pairs would be far too
    # common. Two rounds of random swaps, where labels permit, undo that.
    for _ in range(2):
        shuffled = rng.permutation(take)
        a, b = shuffled[: take // 2], shuffled[take // 2 : take // 2 * 2]
        fits = (group[i[a]] != group[j[b]]) & (group[i[b]] != group[j[a]])
        a, b = a[fits], b[fits]
        j[a], j[b] = j[b], j[a]
    return i, j


def merge_duplicates(labels: Ints, i: Ints, j: Ints) -> tuple[Ints, Ints]:
    """Pairs of the same ordered classes become one synthetic class.

    Returns `target`, the synthetic class of each pair, and `first`, the pair that stands for each
    synthetic class: the earliest, in order of appearance.
    """
    key = labels[i] * (int(labels.max()) + 1) + labels[j]
    _, first, target = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[target], first[order]
