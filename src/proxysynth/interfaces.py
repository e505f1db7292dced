"""Shapes and protocols that all modules share. Read this first.

    n  images in a batch          x  (n, d)            embeddings
    d  dimensions                 y  (n,)              labels, integers in [0, c)
    c  classes                    p  (c, d), (c, k, d) proxies, with k sub-proxies per class
    k  sub-proxies per class      S  (n, c), (n, c, k) similarities of embeddings and proxies
    m  synthetics                 x^, y^, p^           originals and synthetics together

A loss is a frozen value and a pure function (x, y, p) -> scalar. It owns no parameters; the proxies
belong to the caller. Every loss sees embeddings and proxies only through S, so it splits into two
functions, and everything between them (mixing, sharding, blocks of classes) is linear algebra on S.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

import torch
from torch import Tensor, nn


class Loss(Protocol):
    """A pure function of embeddings, labels and proxies: a plain loss or a regularized one."""

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor: ...


class ProxyLoss(Loss, Protocol):
    """A plain proxy-based loss: `loss(x, y, p) = from_similarity(similarity(x, p), y)`.

    Optional parts: `k`, the number of sub-proxies per class; `penalty(p)`, a term of the proxies
    alone, added once (SoftTriple has both); `class_sums()`, which makes it fast and shardable.
    """

    normalized: ClassVar[bool]
    """Whether similarities are cosines (True) or raw dot products."""

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        """S, (n, c) or (n, c, k)."""

    def logits(self, S: Tensor) -> Tensor:
        """Scores (n, c) for inference, without margin; larger is more likely."""

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        """The scalar loss."""


class Objective(Protocol):
    """What training minimizes: a function of network, images, labels and proxies."""

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor: ...
