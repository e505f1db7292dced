"""Proxy-anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxysynth.losses.functional import (
    ClassSums,
    at_least_float32,
    check_not_negative,
    check_positive,
    cosine,
    plain,
    with_slopes,
)


@dataclass(frozen=True)
class ProxyAnchor:
    """Each proxy as an anchor against the whole batch.                      [supplement Eq. iv]

        L(X, P) =  1/|P+|  sum_{p in P+}  log(1 + sum_{x in X_p+} exp(-scale (s(x, p) - margin)))
                 + 1/|P|   sum_{p in P}   log(1 + sum_{x in X_p-} exp( scale (s(x, p) + margin)))

    P+ are the proxies with an embedding of their class in the batch. Both sums are log-sum-exps
    with a zero among the terms, so nothing overflows in half precision.

    Args:
        scale: gamma of the paper.
        margin: delta of the paper.

    Source: Kim et al., 2020.
    """

    normalized: ClassVar[bool] = True

    scale: float = 32.0
    margin: float = 0.1

    def __post_init__(self) -> None:
        check_positive(self, scale=self.scale)
        check_not_negative(self, margin=self.margin)

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        return cosine(x, p)

    def logits(self, S: Tensor) -> Tensor:
        return self.scale * at_least_float32(S)

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        S, own = at_least_float32(S), y[:, None]
        pull = positive_term(self.scale * (self.margin - S.gather(1, own)[:, 0]), y, S.shape[1])
        push = (self.scale * (S + self.margin)).scatter(1, own, -torch.inf)
        zero = torch.zeros_like(push[:1])
        return pull + torch.cat((zero, push)).logsumexp(dim=0).mean()

    def class_sums(self) -> ClassSums:
        def value(own: Tensor, push: Tensor, labels: Tensor, classes: int) -> Tensor:
            present, labels = labels.unique(return_inverse=True)
            pull = positive_term(self.scale * (self.margin - own), labels, len(present))
            return pull + push / classes

        return ClassSums("columns", self.scale, with_slopes(value), offset=self.scale * self.margin)

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return plain(self, x, y, p)


def positive_term(a: Tensor, y: Tensor, c: int) -> Tensor:
    """The mean over classes present of log(1 + sum of exp(a) over the class's embeddings)."""
    zero = a.new_zeros(c)
    shift = zero.scatter_reduce(0, y, a.detach(), "amax")
    total = torch.exp(-shift).scatter_add(0, y, torch.exp(a - shift[y]))
    present = zero.scatter(0, y, 1.0).sum()
    return (total.log() + shift).sum() / present
