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

    same, different: of the same class and of different ones; all of them, or a sample drawn with
    replacement.    all_same, all_different: how many pairs there are in total.
    """

    same: Floats
    different: Floats
    all_same: int
    all_different: int

    def describe(self) -> str:
        """How many pairs there are and how many of them are shown."""
        same, different = (
            f"all {total:,}" if shown == total else f"{shown:,} drawn from {total:,}"
            for shown, total in (
                (len(self.same), self.all_same),
                (len(self.different), self.all_different),
            )
        )
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
        sample: the most pairs of each kind, drawn with the seed; if there are fewer, all are taken.
    """
    g, gl = query, labels
    if gallery is not None and gallery_labels is not None:
        g, gl = gallery, gallery_labels
    order, g_order = np.argsort(labels, kind="stable"), np.argsort(gl, kind="stable")
    # In both orders, the gallery's images of a query's class are a range: low to high.
    low, high = (np.searchsorted(gl[g_order], labels[order], side) for side in ("left", "right"))
    others = len(gl) - (high - low)
    if gallery is None:  # each pair once: a query with those after it
        low, others = np.arange(1, len(labels) + 1), len(gl) - high
    if not (high - low).any() or not others.any():
        return None
    draw, found = np.random.default_rng(seed), []
    for first, each in ((low, high - low), (high, others)):  # from `first` on, around the end
        ends = np.cumsum(each)
        total = int(ends[-1])
        which = np.arange(total) if total <= sample else draw.integers(0, total, sample)
        i = np.searchsorted(ends, which, "right")
        j = (first[i] + which - (ends - each)[i]) % len(gl)
        found.append((_cosines(query, g, order[i], g_order[j]), total))
    (same, all_same), (different, all_different) = found
    return Pairs(same, different, all_same, all_different)


def _cosines(x: Floats, g: Floats, i: Ints, j: Ints, block: int = 4096) -> Floats:
    out = np.empty(len(i), np.float32)
    for at in range(0, len(i), block):
        cut = slice(at, at + block)
        a, b = x[i[cut]].astype(np.float64), g[j[cut]].astype(np.float64)
        length = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        out[cut] = (a * b).sum(1) / np.where(length > 0, length, 1)
    return np.clip(out, -1, 1)
