"""Confidence intervals of means and differences, of 95% if not given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Any

from scipy.special import stdtrit

Interval = tuple[float, float]


def t_quantile(freedom: Any, level: float = 0.95) -> Any:
    """The t with P(|T| <= t) = level, for Student's t with these degrees of freedom: a number, or
    an array of them."""
    return stdtrit(freedom, (1 + level) / 2)


def half_width(values: Sequence[float], level: float = 0.95) -> float:
    """Half the width of the confidence interval of a mean: t s / sqrt(n)."""
    return t_quantile(len(values) - 1, level) * math.sqrt(variance(values) / len(values))


def difference_interval(a: Sequence[float], b: Sequence[float], paired: bool) -> Interval | None:
    """The confidence interval of mean(b) - mean(a); None with fewer than two values of either."""
    if min(len(a), len(b)) < 2:
        return None
    return paired_interval(a, b) if paired else unpaired_interval(a, b)


def paired_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """The confidence interval of mean(b - a), where a[i] and b[i] share a seed, say.

    mean(d) -+ t s(d) / sqrt(n),   d = b - a,   t of n - 1 degrees of freedom
    """
    d = [second - first for first, second in zip(a, b, strict=True)]
    half = half_width(d)
    return fmean(d) - half, fmean(d) + half


def unpaired_interval(a: Sequence[float], b: Sequence[float]) -> Interval:
    """Welch's confidence interval of mean(b) - mean(a): the variances may differ.

    mean(b) - mean(a) -+ t sqrt(v_a + v_b),   v = s^2 / n,
    t of (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)) degrees of freedom
    """
    va, vb = variance(a) / len(a), variance(b) / len(b)
    middle = fmean(b) - fmean(a)
    if va + vb == 0:
        return middle, middle
    sa, sb = va / (va + vb), vb / (va + vb)  # shares, since squares of tiny values vanish
    freedom = 1 / (sa**2 / (len(a) - 1) + sb**2 / (len(b) - 1))
    half = t_quantile(freedom) * math.sqrt(va + vb)
    return middle - half, middle + half
