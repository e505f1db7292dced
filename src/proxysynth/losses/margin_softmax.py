"""SphereFace, CosFace, ArcFace: one family of margins on the angle to the positive proxy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.losses import functional


@dataclass(frozen=True)
class MarginSoftmax:
    """Norm-softmax whose positive similarity is made harder.              [supplement Eq. viii]

        L(X, P) = -1/n  sum_x  log  exp(scale g(s(x, p+)))
                                    / (exp(scale g(s(x, p+))) + sum_{q != p+} exp(scale s(x, q)))
        g(s) = cos(m1 arccos s + m2) - m3

    The formula is used as printed: past m1 angle + m2 = pi the cosine rises again, which with small
    margins happens only if an embedding points away from its own proxy.

    Args:
        scale: gamma of the paper.
        m1: factor on the angle (SphereFace), 1 for none.
        m2: added to the angle (ArcFace), in radians, 0 for none.
        m3: subtracted from the cosine (CosFace), 0 for none.
    """

    normalized: ClassVar[bool] = True

    scale: float = 23.0
    m1: float = 1.0
    m2: float = 0.0
    m3: float = 0.0

    def __post_init__(self) -> None:
        functional.check_positive(self, scale=self.scale, m1=self.m1)
        functional.check_not_negative(self, m2=self.m2, m3=self.m3)
        if self.m2 >= math.pi:
            raise ValueError(
                f"{type(self).__name__}: m2 must be an angle in radians below pi, got {self.m2!r}; "
                f"if it is in degrees, give {math.radians(self.m2):.4g}"
            )

    similarity = staticmethod(functional.cosine)
    logits = functional.scaled
    __call__ = functional.plain

    def harder(self, s: Tensor) -> Tensor:
        """g(s), the positive similarity with its margin."""
        if self.m1 == 1.0 and self.m2 == 0.0:
            return s - self.m3
        return torch.cos(self.m1 * torch.arccos(inside(s)) + self.m2) - self.m3

    def harder_slope(self, s: Tensor) -> Tensor:
        """g'(s) = m1 sin(m1 arccos s + m2) / sqrt(1 - s^2), and 0 where `inside` cuts off."""
        if self.m1 == 1.0 and self.m2 == 0.0:
            return torch.ones_like(s)
        t = inside(s)
        slope = self.m1 * torch.sin(self.m1 * torch.arccos(t) + self.m2) * torch.rsqrt(1 - t * t)
        return slope * (t == s)

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        S = functional.at_least_float32(S)
        own = y[:, None]
        return F.cross_entropy(self.scale * S.scatter(1, own, self.harder(S.gather(1, own))), y)

    def class_sums(self) -> functional.ClassSums:
        return functional.softmax_sums(self.scale, self.harder, self.harder_slope)


def inside(s: Tensor) -> Tensor:
    """Cosines kept a rounding error away from -1 and 1, where the slope of arccos is infinite."""
    limit = 1 - 2 * torch.finfo(s.dtype).eps
    return s.clamp(-limit, limit)


# The three losses of the paper are the family at other defaults (section C.2), nothing more.


@dataclass(frozen=True)
class SphereFace(MarginSoftmax):
    """The margin multiplies the angle: g(s) = cos(m1 arccos s).           [supplement Eq. viii]

    As in the paper, m1 may be any number, and both embeddings and proxies are normalized.
    Source: Liu et al., 2017; values of section C.2.
    """

    scale: float = 30.0
    m1: float = 1.05


@dataclass(frozen=True)
class CosFace(MarginSoftmax):
    """The margin is subtracted from the cosine: g(s) = s - m3.            [supplement Eq. viii]

    Source: Wang et al., 2018; values of section C.2.
    """

    m3: float = 0.1


@dataclass(frozen=True)
class ArcFace(MarginSoftmax):
    """The margin is added to the angle: g(s) = cos(arccos s + m2), radians.  [supplement Eq. viii]

    Source: Deng et al., 2019; values of section C.2.
    """

    m2: float = 0.1
