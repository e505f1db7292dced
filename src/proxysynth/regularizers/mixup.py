"""Input Mixup and Manifold Mixup: mix pairs of images, or of feature maps.

For a cross-entropy, the loss is that of the soft label lam y + (1 - lam) y'. This file draws the
pairs and computes the loss; the mixing itself happens inside the network, in an objective
(`training.learner`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from proxysynth.losses import functional
from proxysynth.losses.proxy_anchor import ProxyAnchor
from proxysynth.regularizers.pairs import numpy_generator


@dataclass(frozen=True)
class Mixing:
    """What is mixed in one batch: element r with element `partner[r]`, at the stage `at`.

    lam: one share for the whole batch.    partner: (n,), a permutation.
    """

    lam: float
    partner: Tensor
    at: int = 0

    def __call__(self, h: Tensor) -> Tensor:
        """lam h + (1 - lam) h', for images or feature maps (n, ...)."""
        return self.lam * h + (1 - self.lam) * h[self.partner.to(h.device)]

    def score(self, loss: Any, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """lam L(x, y) + (1 - lam) L(x, y'), from one matrix of similarities where there is one."""
        partner = self.partner.to(y.device)
        extra: Tensor | float = 0.0
        if functional.has_similarity(loss):
            y = functional.check_batch(x, y, p, subproxies=functional.has_subproxies(loss))
            S, extra = loss.similarity(x, p), functional.penalty(loss, p)
            own, other = loss.from_similarity(S, y), loss.from_similarity(S, y[partner])
        else:
            own, other = loss(x, y, p), loss(x, y[partner], p)
        return self.lam * own + (1 - self.lam) * other + extra


@dataclass(frozen=True)
class InputMixup:
    """Mix the images of a batch and their labels.                    [Section 4.5, Table E]

        image~ = lam image + (1 - lam) image'
        L = lam L(X~, y) + (1 - lam) L(X~, y')          lam ~ Beta(alpha, alpha), one per batch

    Args:
        loss: a plain loss that is a mean over embeddings; Proxy-anchor is not.
        alpha: larger mixes more evenly; 0.5 is best in most columns of the paper's Table E.

    Source: Zhang et al., mixup, 2018.
    """

    loss: Any
    alpha: float = 0.5

    def __post_init__(self) -> None:
        functional.check_positive(self, alpha=self.alpha)
        functional.check_plain_loss(self, self.loss)
        if isinstance(self.loss, ProxyAnchor):
            raise ValueError(
                f"{type(self).__name__} needs a loss that is a mean over embeddings, got "
                "ProxyAnchor, a mean over proxies: choose another loss"
            )

    @property
    def normalized(self) -> bool:
        """Whether the wrapped loss sees unit vectors."""
        return bool(getattr(self.loss, "normalized", True))

    def stages_of(self, depth: int) -> tuple[int, ...]:
        """The stages to choose from in a network of `depth` stages: the images alone."""
        return (0,)

    def draw(self, n: int, depth: int = 0, generator: torch.Generator | None = None) -> Mixing:
        """Share, partners and stage for a batch of n; all from one draw of torch's generator."""
        rng, stages = numpy_generator(generator), self.stages_of(depth)
        lam = float(rng.beta(self.alpha, self.alpha))
        partner = torch.from_numpy(rng.permutation(n))
        return Mixing(lam, partner, stages[int(rng.integers(len(stages)))])

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} mixes images, not embeddings: train it with a Run, or call "
            "proxysynth.training.learner.Mixup(loss)(net, images, labels, proxies)"
        )


@dataclass(frozen=True)
class ManifoldMixup(InputMixup):
    """Mix the input of a random stage of the network.                    [Section 4.5, Table E]

        h~ = lam h + (1 - lam) h',   h the input of stage s,   s uniform over `stages`
        L = lam L(X~, y) + (1 - lam) L(X~, y')          lam ~ Beta(alpha, alpha), one per batch

    Args:
        loss, alpha: as in `InputMixup`.
        stages: to choose from: 0 is the images, the number of stages the last feature maps.
            Default: 0, 1 and 2, as in the published code, where the network has them.

    Source: Verma et al., Manifold Mixup, 2019.
    """

    stages: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        wrong = any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in self.stages)
        if wrong or len(set(self.stages)) < len(self.stages):
            raise ValueError(
                f"ManifoldMixup: stages must be different integers >= 0, got {self.stages!r}"
            )

    def stages_of(self, depth: int) -> tuple[int, ...]:
        if not self.stages:
            return tuple(range(min(2, depth) + 1))
        if max(self.stages) > depth:
            raise ValueError(
                f"ManifoldMixup: stages must lie in 0..{depth} for this network, "
                f"got {self.stages!r}"
            )
        return self.stages
