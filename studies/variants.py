"""Variants of Proxy Synthesis that were tried, as losses for a Run."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from proxysynth.losses import NormSoftmax
from proxysynth.losses.functional import unit
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import mixed_similarity
from proxysynth.regularizers.pairs import Draw
from proxysynth.training.run import KINDS


@dataclass(frozen=True)
class HarderPartners:
    """Every embedding is mixed with one of a similar class.

    Random pairs are mostly far apart, and few embeddings lie between distant classes, so a
    synthetic proxy there has little effect. Here the partner is drawn from the embeddings of the
    batch whose proxies are the most similar.

    Args:
        nearest: the number of candidates from which the partner is drawn.
    """

    loss: NormSoftmax = NormSoftmax()
    alpha: float = 0.4
    nearest: int = 8

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        ours = ProxySynthesis(self.loss, alpha=self.alpha)
        draw = ours.draw(y, generator)
        if draw is None:
            return self.loss(x, y, p)
        return ours.on(self.partners(draw, y, p, generator), x, y, p)

    def partners(self, draw: Draw, y: Tensor, p: Tensor, generator: torch.Generator | None) -> Draw:
        """The draw with its second parents replaced."""
        own = unit(p.detach()[y])
        close = (own[draw.i] @ own.t()).masked_fill_(y[draw.i, None] == y, -torch.inf)
        others = int((close > -torch.inf).sum(dim=1).min())
        nearest = close.topk(min(self.nearest, others), dim=1).indices
        chosen = torch.randint(nearest.shape[1], (len(nearest), 1), generator=generator)
        return replace(draw, j=nearest.gather(1, chosen)[:, 0])


@dataclass(frozen=True)
class ParentsApart:
    """A synthetic and its parents are not negatives of each other.

    The synthetic proxy of classes a and b contains a part of p_a. As a negative of an embedding of
    a it repels what the positive attracts, more so the closer lam is to 1. Here these entries are
    left out of the sums: original x synthetic proxy, synthetic x original proxy.
    """

    loss: NormSoftmax = NormSoftmax()
    alpha: float = 0.4

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        draw = ProxySynthesis(self.loss, alpha=self.alpha).draw(y, generator)
        if draw is None:
            return self.loss(x, y, p)
        n, c = len(x), len(p)
        S = mixed_similarity(self.loss, x, y, p, draw, normalized=True)
        out = torch.zeros_like(S, dtype=torch.bool)
        each = torch.arange(n, len(S))
        for parent, of_class in zip((draw.i, draw.j), draw.class_parents(y), strict=True):
            out[:n, c:] |= y[:, None] == of_class
            out[each, y[parent]] = True
        labels = torch.cat((y, c + draw.target))
        return self.loss.from_similarity(S.masked_fill(out, -torch.inf), labels)


KINDS.update({kind.__name__: kind for kind in (HarderPartners, ParentsApart)})
