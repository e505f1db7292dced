"""Student's t distribution and the intervals of a mean difference that it gives.

Own code, since these two formulas are all that is needed of a statistics library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from statistics import fmean, variance

TERMS = 200  # of the continued fraction; it needs some dozens
Interval = tuple[float, float]


def paired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """The interval of mean(b - a), where a[i] and b[i] share what they have in common, as a seed.

    mean(d) -+ t s(d) / sqrt(n),   d = b - a,   t of n - 1 degrees of freedom
    """
    if len(a) != len(b) or len(a) < 2:
        raise ValueError(f"pairs need two lists of one length from 2 on, got {len(a)} and {len(b)}")
    d = [second - first for first, second in zip(a, b, strict=True)]
    half = t_quantile(level, len(d) - 1) * math.sqrt(variance(d) / len(d))
    return fmean(d) - half, fmean(d) + half


def unpaired_interval(a: Sequence[float], b: Sequence[float], level: float = 0.95) -> Interval:
    """Welch's interval of mean(b) - mean(a): the two may spread differently.

    mean(b) - mean(a) -+ t sqrt(v_a + v_b),   v = s^2 / n,
    t of (v_a + v_b)^2 / (v_a^2 / (n_a - 1) + v_b^2 / (n_b - 1)) degrees of freedom
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"a spread needs at least 2 values each, got {len(a)} and {len(b)}")
    va, vb = variance(a) / len(a), variance(b) / len(b)
    middle = fmean(b) - fmean(a)
    if va + vb == 0:
        return middle, middle
    sa, sb = va / (va + vb), vb / (va + vb)  # shares, since squares of tiny values vanish
    freedom = 1 / (sa**2 / (len(a) - 1) + sb**2 / (len(b) - 1))
    half = t_quantile(level, freedom) * math.sqrt(va + vb)
    return middle - half, middle + half


@lru_cache(maxsize=256)
def t_quantile(level: float, freedom: float) -> float:
    """The t that a share `level` of the distribution lies within, on both sides of zero.

    level = 1 - I_x(freedom/2, 1/2)   at   x = freedom / (freedom + t^2)
    """
    if not 0 < level < 1 or not freedom > 0:
        raise ValueError(f"expected 0 < level < 1 and freedom > 0, got {level} and {freedom}")
    x = _root(lambda x: incomplete_beta(x, freedom / 2, 0.5) - (1 - level))
    return math.sqrt(freedom * (1 - x) / x)


def incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b), regularised, by its continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - incomplete_beta(1 - x, b, a)
    logs = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(logs + a * math.log(x) + b * math.log1p(-x)) / a
    # 1 / (1 + d_1 / (1 + d_2 / (1 + ...))), from the inside out.
    value = 1.0
    for m in range(TERMS, 0, -1):
        half = m // 2
        if m % 2:
            d = -(a + half) * (a + b + half) * x / ((a + m - 1) * (a + m))
        else:
            d = half * (b - half) * x / ((a + m - 1) * (a + m))
        value = 1 + d / value
    return front / value


def _root(f: Callable[[float], float]) -> float:
    """Where a rising function on [0, 1] is zero."""
    low, high = 0.0, 1.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if f(middle) < 0 else (low, middle)
    return (low + high) / 2
