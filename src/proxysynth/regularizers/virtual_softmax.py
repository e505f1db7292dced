"""Virtual Softmax: one more negative class for every embedding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxysynth.losses import functional


@dataclass(frozen=True)
class VirtualSoftmax:
    """Softmax with a virtual class that follows each embedding.   [Related work; supplement D.4]

        W_virt = |p+| x / |x|        x . W_virt = |p+| |x|
        L(X, P) = -1/n  sum_x  log  exp(x . p+) / (sum_q exp(x . q) + exp(min(|p+| |x|, clip)))

    The virtual logit is at least as large as the own one, x . p+, and equal to it only where x
    points along its proxy: it keeps pulling long after the other classes are separated. W_virt is a
    function of x and p+, not a weight, so the gradient flows through the logit to both.

    Args:
        loss: a loss of raw dot products, such as `Softmax()`. With cosines |p+| |x| is 1 for every
            embedding and would be constant.
        clip: upper bound of the virtual logit, above which it has no gradient. The paper uses 10
            for retrieval, where training fails without it; None (for classification) is no bound.

    Source: Chen et al., Virtual Class Enhanced Discriminative Embedding Learning, 2018.
    """

    loss: Any
    clip: float | None = 10.0

    def __post_init__(self) -> None:
        functional.check_plain_loss(self, self.loss)
        if self.clip is not None:
            functional.check_positive(self, clip=self.clip)
        if not functional.has_similarity(self.loss) or getattr(self.loss, "normalized", True):
            raise ValueError(
                "VirtualSoftmax needs a loss of raw dot products such as Softmax(), got "
                f"{type(self.loss).__name__}: with cosines the virtual logit |p+| |x| is constant 1"
            )

    @property
    def normalized(self) -> bool:
        """False: embeddings and proxies keep their lengths."""
        return bool(self.loss.normalized)

    def virtual(self, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The virtual logit of each embedding, (n,), in float32 or better: float16 overflows."""
        lengths = torch.linalg.vector_norm(functional.at_least_float32(p)[y], dim=1)
        logit = lengths * torch.linalg.vector_norm(functional.at_least_float32(x), dim=1)
        return logit if self.clip is None else logit.clamp(max=self.clip)

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        y = functional.check_batch(x, y, p, subproxies=functional.has_subproxies(self.loss))
        S = functional.at_least_float32(self.loss.similarity(x, p))
        with_virtual = torch.cat((S, self.virtual(x, y, p)[:, None].to(S.dtype)), dim=1)
        value: Tensor = self.loss.from_similarity(with_virtual, y)
        return value + functional.penalty(self.loss, p)
