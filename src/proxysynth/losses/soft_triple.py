"""SoftTriple."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses import functional
from proxysynth.values import check_integers


@dataclass(frozen=True)
class SoftTriple:
    """Softmax with k sub-proxies per class.                          [supplement Eqs. ii, iii]

        R(x, p) = sum_k  softmax_k(s(x, p_k) / temperature)  s(x, p_k)
        L(X, P) = -1/n  sum_x  log  exp(scale R(x, p+) - margin)
                                    / (exp(scale R(x, p+) - margin) + sum_q exp(scale R(x, q)))

    Args:
        scale: epsilon of the paper.
        temperature: gamma of the paper; a smaller one favors the nearest sub-proxy more.
        margin: delta of the paper, subtracted after scaling, as printed in Eq. iii.
        scaled_margin: the margin of SoftTriple's own paper, subtracted before scaling:
            exp(scale (R - scaled_margin)). 0.01 there, with `margin=0`.
        k: sub-proxies per class; the proxies have shape (c, k, d).
        regularizer: weight (tau) of `penalty`, 0.2 in SoftTriple's paper, off by default.

    Source: Qian et al., 2019.
    """

    normalized: ClassVar[bool] = True

    scale: float = 20.0
    temperature: float = 0.1
    margin: float = 0.01
    scaled_margin: float = 0.0
    k: int = 10
    regularizer: float = 0.0

    def __post_init__(self) -> None:
        functional.check_positive(self, scale=self.scale, temperature=self.temperature)
        functional.check_not_negative(self, margin=self.margin, scaled_margin=self.scaled_margin)
        functional.check_not_negative(self, regularizer=self.regularizer, k=self.k)
        check_integers(self, k=1)

    similarity = staticmethod(functional.cosine)
    __call__ = functional.plain

    def logits(self, S: Tensor) -> Tensor:
        S = functional.at_least_float32(S)
        if S.shape[2] != self.k:
            raise ValueError(f"SoftTriple has k={self.k}, but the proxies have {S.shape[2]}")
        relaxed = ((S / self.temperature).softmax(dim=2) * S).sum(dim=2)
        return self.scale * relaxed

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        logits = self.logits(S)
        margin = self.margin + self.scale * self.scaled_margin
        own = torch.full_like(logits[:, :1], -margin)
        return F.cross_entropy(logits.scatter_add(1, y[:, None], own), y)

    def penalty(self, p: Tensor) -> Tensor:
        """regularizer x the mean distance of sub-proxies of one class, which pulls them together.

        sum_{c, a < b} sqrt(2 + 1e-5 - 2 s(p_ca, p_cb)) / (c k (k - 1)): it lets the number of
        sub-proxies in use follow the data. One k x k product per class, never (c k) x (c k).
        """
        c, k = p.shape[:2]
        if self.regularizer == 0 or k < 2:
            return p.new_zeros((), dtype=functional.at_least_float32(p[:0]).dtype)
        centers = functional.unit(functional.at_least_float32(p))
        # The loss may run under autocast; a distance of nearly equal vectors needs all its bits.
        with torch.autocast(p.device.type, enabled=False):
            s = centers @ centers.transpose(1, 2)
        a, b = torch.triu_indices(k, k, offset=1, device=p.device)
        distances = (2 + 1e-5 - 2 * s[:, a, b]).clamp_min(torch.finfo(s.dtype).eps).sqrt()
        return self.regularizer * distances.sum() / (c * k * (k - 1))
