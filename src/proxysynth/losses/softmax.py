"""Softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses.functional import (
    ClassSums,
    at_least_float32,
    dot,
    plain,
    softmax_from_sums,
)


@dataclass(frozen=True)
class Softmax:
    """Cross-entropy over raw dot products, without a bias.       [Eqs. 2 and 6; supplement Eq. v]

        L(X, P) = -1/n  sum_x  log  exp(x . p+) / sum_q exp(x . q)

    Embeddings and proxies keep their lengths: do not normalize what you give it.
    """

    normalized: ClassVar[bool] = False

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        return dot(x, p)

    def logits(self, S: Tensor) -> Tensor:
        return at_least_float32(S)

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.logits(S), y)

    def class_sums(self) -> ClassSums:
        return ClassSums("rows", 1.0, lambda *given: softmax_from_sums(1.0, *given[:2]))

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return plain(self, x, y, p)
