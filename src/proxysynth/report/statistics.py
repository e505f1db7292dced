"""Confidence intervals of means and differences, and similarities of sampled pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

SAMPLE = 20_000  # pairs of each kind
Interval = tuple[float, float]
Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


def t_quantile(level: float, freedom: float) -> float:
    """The t with P(|T| <= t) = level, for Student's t with these degrees of freedom."""
    if not 0 < level < 1 or not freedom > 0:
        raise ValueError(f"expected 0 < level < 1 and freedom > 0, got {level} and {freedom}")
    return float(stdtrit(freedom, (1 + level) / 2))


def half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half the width of the confidence interval of a mean: t s / sqrt(n)."""
    return t_quantile(level, len(values) - 1) * math.sqrt(variance(values) / len(values))


def paired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """The confidence interval of mean(b - a), where a[i] and b[i] share a seed, say.

    mean(d) -+ t s(d) / sqrt(n),   d = b - a,   t of n - 1 degrees of freedom
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"expected two lists of one length >= 2, got {len(a)} and {len(b)}")
    d = [second - first for first, second in zip(a, b, strict=True)]
    half = half_width(d, level)
    return fmean(d) - half, fmean(d) + half


def unpaired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Welch's confidence interval of mean(b) - mean(a): the variances may differ.

    mean(b) - mean(a) -+ t sqrt(v_a + v_b),   v = s^2 / n,
    t of (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)) degrees of freedom
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"expected at least 2 values each, got {len(a)} and {len(b)}")
    va, vb = variance(a) / len(a), variance(b) / len(b)
    middle = fmean(b) - fmean(a)
    if va + vb == 0:
        return middle, middle
    sa, sb = va / (va + vb), vb / (va + vb)  # shares, since squares of tiny values vanish
    freedom = 1 / (sa**2 / (len(a) - 1) + sb**2 / (len(b) - 1))
    half = t_quantile(level, freedom) * math.sqrt(va + vb)
    return middle - half, middle + half


@dataclass(frozen=True, eq=False)
class Pairs:
    """Cosine similarities of pairs of a query and a gallery image.

    Attributes:
        same: of the same class; all of them, or a sample drawn with replacement.
        different: of different classes; likewise.
        all_same, all_different: how many pairs there are in total.
    """

    same: Floats
    different: Floats
    all_same: int
    all_different: int

    def describe(self) -> str:
        """How many pairs there are and how many of them are shown."""
        same = _shown(len(self.same), self.all_same)
        different = _shown(len(self.different), self.all_different)
        return f"Shown: {same} pairs of the same class and {different} pairs of different classes."

    def auc(self) -> float:
        """How often a same-class pair is more similar than a different-class pair; ties: half."""
        below = np.sort(self.different)
        less = np.searchsorted(below, self.same, "left")
        not_more = np.searchsorted(below, self.same, "right")
        return float((less + not_more).mean() / (2 * len(below)))


def pair_similarities(
    query: Floats,
    labels: Ints,
    gallery: Floats | None = None,
    gallery_labels: Ints | None = None,
    sample: int = SAMPLE,
    seed: int = 0,
) -> Pairs | None:
    """Similarities of pairs, or None if one of the two kinds has no pair.

    Args:
        query, labels: (n, d) embeddings and their (n,) classes.
        gallery, gallery_labels: of the gallery; without one, pairs are of two queries.
        sample: the most pairs of each kind; if there are fewer, all are taken.
        seed: of the sample.
    """
    own = gallery is None or gallery_labels is None
    g = query if gallery is None else gallery
    gl = labels if gallery_labels is None else gallery_labels
    c = int(max(labels.max(), gl.max())) + 1
    here, there = np.bincount(labels, minlength=c), np.bincount(gl, minlength=c)
    per_class = here * (here - 1) // 2 if own else here * there
    n, N = len(labels), len(gl)
    all_same = int(per_class.sum())
    all_different = (n * (n - 1) // 2 if own else n * N) - all_same
    if not all_same or not all_different:
        return None
    draw = np.random.default_rng(seed)
    i, j = _same_class(labels, gl, per_class, own, sample, draw)
    same = _cosines(query, g, i, j)
    i, j = _different_class(labels, gl, own, sample, draw)
    return Pairs(same, _cosines(query, g, i, j), all_same, all_different)


def _same_class(
    labels: Ints, gl: Ints, per_class: Ints, own: bool, sample: int, draw: np.random.Generator
) -> tuple[Ints, Ints]:
    """Pairs of one class: pair number t of a class is turned into its two members."""
    total = int(per_class.sum())
    ends = np.cumsum(per_class)
    which = np.arange(total) if total <= sample else draw.integers(0, total, sample)
    k = np.searchsorted(ends, which, "right")
    t = which - (ends - per_class)[k]
    order, start = _sorted_by_class(labels, len(per_class))
    g_order, g_start = _sorted_by_class(gl, len(per_class))
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


def _different_class(
    labels: Ints, gl: Ints, own: bool, sample: int, draw: np.random.Generator
) -> tuple[Ints, Ints]:
    """Pairs of two classes: in the gallery sorted by class, a query skips its own class."""
    c = int(max(labels.max(), gl.max())) + 1
    order, start = _sorted_by_class(gl, c)
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


def _shown(sampled: int, total: int) -> str:
    return f"all {total:,}" if sampled == total else f"{sampled:,} drawn from {total:,}"


def _sorted_by_class(labels: Ints, c: int) -> tuple[Ints, Ints]:
    """The order that sorts images by class, and where each class begins in it."""
    counts = np.bincount(labels, minlength=c)
    return np.argsort(labels, kind="stable"), np.cumsum(counts) - counts


def _cosines(x: Floats, g: Floats, i: Ints, j: Ints, block: int = 4096) -> Floats:
    out = np.empty(len(i), np.float32)
    for at in range(0, len(i), block):
        cut = slice(at, at + block)
        a, b = x[i[cut]].astype(np.float64), g[j[cut]].astype(np.float64)
        length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        out[cut] = (a * b).sum(1) / np.where(length > 0, length, 1)
    return np.clip(out, -1, 1)
