"""Similarities of pairs of one class and of pairs of two, from a seeded sample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SAMPLE = 20_000  # pairs of each kind
Floats = NDArray[np.float32]
Whole = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Cosines of pairs of a query and a gallery picture.

    Attributes:
        alike: of the same class; all of them, or a sample drawn with replacement.
        unlike: of different classes; the same.
        all_alike, all_unlike: how many pairs there are in all.
    """

    alike: Floats
    unlike: Floats
    all_alike: int
    all_unlike: int

    def told(self) -> str:
        """How many pairs there are and how many of them were looked at."""
        alike = _of(len(self.alike), self.all_alike)
        unlike = _of(len(self.unlike), self.all_unlike)
        return f"Shown: {alike} pairs of the same class and {unlike} pairs of different classes."

    def order(self) -> float:
        """How often a pair of one class is more similar than a pair of two; a tie counts half."""
        below = np.sort(self.unlike)
        less = np.searchsorted(below, self.alike, "left")
        not_more = np.searchsorted(below, self.alike, "right")
        return float((less + not_more).mean() / (2 * len(below)))


def pair_similarities(
    query: Floats,
    labels: Whole,
    gallery: Floats | None = None,
    gallery_labels: Whole | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Pairs | None:
    """The similarities, or None where one of the two kinds has no pair.

    Args:
        query, labels: (n, d) embeddings and their (n,) classes.
        gallery, gallery_labels: the same of the gallery; without one, pairs are of two queries.
        sample: as many pairs of each kind at most; where there are fewer, all are taken.
        seed: draws them.
    """
    own = gallery is None or gallery_labels is None
    g = query if gallery is None else gallery
    gl = labels if gallery_labels is None else gallery_labels
    c = int(max(labels.max(), gl.max())) + 1
    here, there = np.bincount(labels, minlength=c), np.bincount(gl, minlength=c)
    per_class = here * (here - 1) // 2 if own else here * there
    n, N = len(labels), len(gl)
    all_alike = int(per_class.sum())
    all_unlike = (n * (n - 1) // 2 if own else n * N) - all_alike
    if not all_alike or not all_unlike:
        return None
    draw = np.random.default_rng(seed)
    i, j = _alike(labels, gl, per_class, own, sample, draw)
    alike = _cosines(query, g, i, j)
    i, j = _unlike(labels, gl, own, sample, draw)
    return Pairs(alike, _cosines(query, g, i, j), all_alike, all_unlike)


def _alike(
    labels: Whole, gl: Whole, per_class: Whole, own: bool, sample: int, draw: np.random.Generator
) -> tuple[Whole, Whole]:
    """Pairs of one class: number t of a class is turned into its two members."""
    total = int(per_class.sum())
    ends = np.cumsum(per_class)
    which = np.arange(total) if total <= sample else draw.integers(0, total, sample)
    k = np.searchsorted(ends, which, "right")
    t = which - (ends - per_class)[k]
    order, start = _shelved(labels, len(per_class))
    g_order, g_start = _shelved(gl, len(per_class))
    if own:
        # Pair (a, b) with a < b has the number b (b - 1) / 2 + a; the root may be off by one.
        b = ((1 + np.sqrt(1 + 8.0 * t)) / 2).astype(np.int64)
        b -= b * (b - 1) // 2 > t
        b += (b + 1) * b // 2 <= t
        a = t - b * (b - 1) // 2
    else:
        size = np.diff(np.append(g_start, len(gl)))[k]
        a, b = t // size, t % size
    return order[start[k] + a], g_order[g_start[k] + b]


def _unlike(
    labels: Whole, gl: Whole, own: bool, sample: int, draw: np.random.Generator
) -> tuple[Whole, Whole]:
    """Pairs of two classes: in the gallery sorted by class, a query steps over its own class."""
    c = int(max(labels.max(), gl.max())) + 1
    order, start = _shelved(gl, c)
    size = np.bincount(gl, minlength=c)
    others = len(gl) - size[labels]
    ends = np.cumsum(others)
    total = int(ends[-1])
    every = total <= (2 * sample if own else sample)  # a pair of two queries is counted twice
    which = np.arange(total) if every else draw.integers(0, total, sample)
    i = np.searchsorted(ends, which, "right")
    t = which - (ends - others)[i]
    k = labels[i]
    j = order[np.where(t < start[k], t, t + size[k])]
    keep = i < j if every and own else slice(None)
    return i[keep], j[keep]


def _of(looked_at: int, there_are: int) -> str:
    if looked_at == there_are:
        return f"all {there_are:,}"
    return f"{looked_at:,} drawn from {there_are:,}"


def _shelved(labels: Whole, c: int) -> tuple[Whole, Whole]:
    """The pictures sorted by class, and where each class begins."""
    order = np.argsort(labels, kind="stable")
    counts = np.bincount(labels, minlength=c)
    return order, np.cumsum(counts) - counts


def _cosines(x: Floats, g: Floats, i: Whole, j: Whole, block: int = 4096) -> Floats:
    out = np.empty(len(i), np.float32)
    for at in range(0, len(i), block):
        cut = slice(at, at + block)
        a, b = x[i[cut]].astype(np.float64), g[j[cut]].astype(np.float64)
        length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        out[cut] = (a * b).sum(1) / np.where(length > 0, length, 1)
    return np.clip(out, -1, 1)
