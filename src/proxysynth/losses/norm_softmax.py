"""Norm-softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from proxysynth.losses import functional


@dataclass(frozen=True)
class NormSoftmax:
    """Softmax over cosine similarities.                              [Eq. 3; supplement Eq. vii]

        L(X, P) = -1/n  sum_x  log  exp(scale s(x, p+)) / sum_q exp(scale s(x, q))

    Args:
        scale: gamma of the paper, an inverse temperature (1 / temperature elsewhere); larger is
            stricter. The paper does not print it; 23 is the value of its authors' code.

    Source: Wang et al., NormFace, 2017; Zhai and Wu, 2018.
    """

    normalized: ClassVar[bool] = True

    scale: float = 23.0

    def __post_init__(self) -> None:
        functional.check_positive(self, scale=self.scale)

    similarity = staticmethod(functional.cosine)
    logits = functional.scaled
    from_similarity = functional.cross_entropy
    __call__ = functional.plain

    def class_sums(self) -> functional.ClassSums:
        return functional.softmax_sums(self.scale)
