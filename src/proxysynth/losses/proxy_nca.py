"""Proxy-NCA, as the paper prints it and as it is usually implemented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from proxysynth.losses import functional


@dataclass(frozen=True)
class ProxyNCA:
    """Neighborhood component analysis with proxies.                        [supplement Eq. i]

        L(X, P) = -1/n  sum_x  log  exp(-scale d(x, p+)) / sum_{q != p+} exp(-scale d(x, q))
        d(a, b) = | a/|a| - b/|b| | = sqrt(2 - 2 s(a, b)),  not squared

    The positive is not in the denominator, so the loss may be negative.

    Args:
        scale: 1 is the equation as printed; larger is stricter.

    Source: Movshovitz-Attias et al., 2017.
    """

    normalized: ClassVar[bool] = True

    scale: float = 1.0

    def __post_init__(self) -> None:
        functional.check_positive(self, scale=self.scale)

    similarity = staticmethod(functional.cosine)
    __call__ = functional.plain

    def logits(self, S: Tensor) -> Tensor:
        S = functional.at_least_float32(S)
        # The slope of the square root is infinite at zero: stay a rounding error above it.
        return -self.scale * (2 - 2 * S).clamp_min(4 * torch.finfo(S.dtype).eps).sqrt()

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        if S.shape[1] < 2:
            raise ValueError(
                "Proxy-NCA compares a proxy with those of other classes: give at least 2 classes, "
                f"got {S.shape[1]}"
            )
        own, logits = y[:, None], self.logits(S)
        others = logits.scatter(1, own, -torch.inf).logsumexp(dim=1)
        return (others - logits.gather(1, own)[:, 0]).mean()


@dataclass(frozen=True)
class SquaredProxyNCA:
    """Proxy-NCA with the distance squared and the positive in the denominator.

        L(X, P) = -1/n  sum_x  log  exp(-scale d(x, p+)^2) / sum_q exp(-scale d(x, q)^2)

    On unit vectors d^2 = 2 - 2 s, and the constant cancels: this *is* Norm-softmax at twice the
    scale, to the last bit of the gradient. Much code called Proxy-NCA, including the paper's,
    computes this; it has its own name here, so that tables say what was run.

    Args:
        scale: of the squared distance; `NormSoftmax(2 * scale)` is the same loss.
    """

    normalized: ClassVar[bool] = True

    scale: float = 1.0

    def __post_init__(self) -> None:
        functional.check_positive(self, scale=self.scale)

    similarity = staticmethod(functional.cosine)
    from_similarity = functional.cross_entropy
    __call__ = functional.plain

    def logits(self, S: Tensor) -> Tensor:
        return 2 * self.scale * (functional.at_least_float32(S) - 1)

    def class_sums(self) -> functional.ClassSums:
        return functional.softmax_sums(2 * self.scale)
