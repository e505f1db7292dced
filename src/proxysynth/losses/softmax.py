"""Softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from proxysynth.losses import functional


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy over raw dot products, without a bias.       [Eqs. 2 and 6; supplement Eq. v]

        L(X, P) = -1/n  sum_x  log  exp(x . p+) / sum_q exp(x . q)

    Embeddings and proxies keep their lengths: do not normalize what you give it.
    """

    normalized: ClassVar[bool] = False

    similarity = staticmethod(functional.dot)
    logits = staticmethod(functional.at_least_float32)
    from_similarity = functional.cross_entropy
    __call__ = functional.plain

    def class_sums(self) -> functional.ClassSums:
        return functional.softmax_sums(1.0)
