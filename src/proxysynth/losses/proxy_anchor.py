"""Proxy-anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxysynth.losses import functional


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
        functional.check_positive(self, scale=self.scale)
        functional.check_not_negative(self, margin=self.margin)

    similarity = staticmethod(functional.cosine)
    logits = functional.scaled
    __call__ = functional.plain

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        S, own = functional.at_least_float32(S), y[:, None]
        pull = positive_term(self.scale * (self.margin - S.gather(1, own)[:, 0]), y, S.shape[1])
        push = (self.scale * (S + self.margin)).scatter(1, own, -torch.inf)
        zero = torch.zeros_like(push[:1])
        return pull + torch.cat((zero, push)).logsumexp(dim=0).mean()

    def class_sums(self) -> functional.ClassSums:
        def value(
            own: Tensor, push: Tensor, labels: Tensor, classes: int
        ) -> tuple[Tensor, Tensor, Tensor]:
            present, labels = labels.unique(return_inverse=True)
            a = self.scale * (self.margin - own)
            pull = positive_sums(a, labels, len(present))
            own_slope = torch.exp(a - pull[labels]).mul_(-self.scale / len(present))
            return pull.mean() + push / classes, own_slope, torch.full_like(push, 1 / classes)

        return functional.ClassSums("columns", self.scale, value, offset=self.scale * self.margin)


def positive_term(a: Tensor, y: Tensor, c: int) -> Tensor:
    """The mean over the classes present of `positive_sums`."""
    return positive_sums(a, y, c).sum() / a.new_zeros(c).scatter(0, y, 1.0).sum()


def positive_sums(a: Tensor, y: Tensor, c: int) -> Tensor:
    """(c,) log(1 + sum of exp(a) over the embeddings of each class), 0 for an absent class."""
    shift = a.new_zeros(c).scatter_reduce(0, y, a.detach(), "amax")
    return torch.exp(-shift).scatter_add(0, y, torch.exp(a - shift[y])).log() + shift
