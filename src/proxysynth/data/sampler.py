"""Which pictures make up each batch of an epoch.

A sampler is a value and a pure function of labels, epoch and batch size. An epoch is a list of
arrays of indices, so that a run resumed after k batches takes `epoch[k:]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


class Sampler(Protocol):
    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]: ...


@dataclass(frozen=True)
class Shuffled:
    """Every picture once, in an order drawn for the epoch.

    Args:
        seed: draws the orders.
        drop_last: leave out a last batch that is not full. Otherwise it is kept; a single picture
            left over joins the batch before, since batch norm cannot train on one.
    """

    seed: int = 0
    drop_last: bool = False

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        _check(len(labels), batch_size)
        order = _shuffle(len(labels), _numbers(self.seed, epoch))
        batches = _cut(order, batch_size)
        if len(batches) > 1 and len(batches[-1]) < batch_size:
            last = batches.pop()
            if len(last) == 1 and not self.drop_last:
                batches[-1] = np.concatenate([batches[-1], last])
            elif not self.drop_last:
                batches.append(last)
        return batches


@dataclass(frozen=True)
class MPerClass:
    """Batches of batch_size / m classes with m pictures each.

    All classes come equally often, up to one batch, however many pictures they have, and a class
    stands in a batch once. A class deals its pictures in an order drawn for the epoch, and deals
    them again when they run out. An epoch has as many pictures as the set, in full batches.

    Args:
        m: pictures per class and batch.
        seed: draws classes and pictures.
    """

    m: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m must be at least 1 picture per class, got {self.m}")

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        _check(len(labels), batch_size)
        own = [members for members in _by_class(labels) if len(members)]
        per_batch = batch_size // self.m
        if batch_size % self.m or not 0 < per_batch <= len(own):
            raise ValueError(
                f"a batch must be a multiple of m={self.m} pictures of at most {len(own)} classes, "
                f"got batch_size {batch_size}: choose one up to {len(own) * self.m}"
            )
        numbers = _numbers(self.seed, epoch)
        decks = [members[_shuffle(len(members), numbers)] for members in own]
        dealt = np.zeros(len(own), dtype=np.int64)
        batches = []
        for _ in range(max(1, len(labels) // batch_size)):
            # Those dealt least first, a draw among equals.
            chosen = np.lexsort((numbers.random(len(own)), dealt))[:per_batch]
            part = [
                decks[c][(dealt[c] * self.m + np.arange(self.m)) % len(decks[c])] for c in chosen
            ]
            dealt[chosen] += 1
            batches.append(np.concatenate(part))
        return batches


def in_order(n: int, batch_size: int) -> list[Indices]:
    """Pictures 0 to n - 1 as they come, for evaluation."""
    if batch_size < 1:
        raise ValueError(f"a batch needs at least 1 picture, got batch_size {batch_size}")
    return _cut(np.arange(n, dtype=np.int64), batch_size)


SAMPLERS = {"shuffled": Shuffled, "m_per_class": MPerClass}


def _check(n: int, batch_size: int) -> None:
    if batch_size < 2:
        raise ValueError(f"a training batch needs at least 2 pictures, got batch_size {batch_size}")
    if n < 2:
        raise ValueError(f"training needs at least 2 pictures, got {n}")


def _numbers(seed: int, epoch: int) -> np.random.Generator:
    key = np.array([seed % (1 << 64), epoch], dtype=np.uint64)
    # Another stretch of the stream than the pictures' augmentation draws from.
    counter = np.array([0, 0, 1, 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _shuffle(n: int, numbers: np.random.Generator) -> Indices:
    # Sorting uniform numbers rather than numpy's own shuffle, which may change between versions.
    return np.argsort(numbers.random(n), kind="stable").astype(np.int64)


def _cut(order: Indices, size: int) -> list[Indices]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _by_class(labels: Indices) -> Sequence[Indices]:
    order = np.argsort(labels, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])
