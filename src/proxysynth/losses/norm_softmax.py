"""Norm-softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses.functional import (
    ClassSums,
    at_least_float32,
    check_positive,
    cosine,
    plain,
    softmax_from_sums,
)


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
        check_positive(self, scale=self.scale)

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        return cosine(x, p)

    def logits(self, S: Tensor) -> Tensor:
        return self.scale * at_least_float32(S)

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(S), y)

    def class_sums(self) -> ClassSums:
        return ClassSums(
            "rows", self.scale, lambda *given: softmax_from_sums(self.scale, *given[:2])
        )

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return plain(self, x, y, p)
