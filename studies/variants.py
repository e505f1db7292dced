"""Variants of Proxy Synthesis that were tried, as losses for a Run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from proxysynth.losses import NormSoftmax, ProxyAnchor
from proxysynth.losses.functional import unit
from proxysynth.losses.proxy_anchor import positive_term
from proxysynth.regularizers import ProxySynthesis
from proxysynth.regularizers.mixing import mixed_similarity
from proxysynth.regularizers.pairs import Draw, numpy_generator
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
        for parent, first in zip((draw.i, draw.j), draw.class_pairs[:2], strict=True):
            out[:n, c:] |= y[:, None] == y[first]
            out[each, y[parent]] = True
        labels = torch.cat((y, c + draw.target))
        return self.loss.from_similarity(S.masked_fill(out, -torch.inf), labels)


@dataclass(frozen=True)
class KParents:
    """Synthetics of k parents of different classes instead of two.

        x~ = sum_k lam_k x_k     p~ = sum_k lam_k p_k     lam ~ Dirichlet(alpha, ..., alpha)

    As in Proxy Synthesis, vectors have unit length before and after mixing, and one lam is drawn
    for the batch. With k = 2, Dirichlet(alpha, alpha) is the Beta distribution of the paper. A
    batch of fewer than k classes gives the plain loss.
    """

    loss: NormSoftmax = NormSoftmax()
    parents: int = 3
    alpha: float = 0.4

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        rng = numpy_generator(generator)
        lam = torch.from_numpy(rng.dirichlet([self.alpha] * self.parents))
        chosen = draw_parents(y.numpy(), self.parents, rng)
        if chosen is None:
            return self.loss(x, y, p)
        return self.on(torch.from_numpy(chosen), lam, x, y, p)

    def on(self, chosen: Tensor, lam: Tensor, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The loss for these parents, positions in the batch (m, k), and coefficients (k,)."""
        mixing = x.new_zeros(len(chosen), len(x))
        mixing.scatter_(1, chosen, lam.to(x.dtype).expand(chosen.shape))
        x, p = unit(x), unit(p)
        x, p = torch.cat((x, unit(mixing @ x))), torch.cat((p, unit(mixing @ p[y])))
        labels = torch.cat((y, torch.arange(len(p) - len(chosen), len(p))))
        return self.loss.from_similarity(x @ p.t(), labels)


def draw_parents(
    labels: NDArray[np.int64], k: int, rng: np.random.Generator
) -> NDArray[np.int64] | None:
    """k positions of different classes for each position of the batch, which is the first of them;
    None if there are fewer classes."""
    if len(np.unique(labels)) < k:
        return None
    parents = np.empty((len(labels), k), np.int64)
    for row, chosen in enumerate(parents):
        chosen[0], count = row, 1
        while count < k:
            chosen[count] = rng.integers(len(labels))
            count += labels[chosen[count]] not in labels[chosen[:count]]
    return parents


@dataclass(frozen=True)
class MuRamp:
    """The number of synthetics rises linearly from 0 to mu over the first steps of training.

    Early proxies are random, and mixes of them are classes without meaning. It counts its own
    calls, so a training that uses it cannot be resumed.
    """

    loss: NormSoftmax = NormSoftmax()
    alpha: float = 0.4
    mu: float = 1.0
    steps: int = 250

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        done = self.__dict__.get("calls", 0)
        object.__setattr__(self, "calls", done + 1)
        return self.at(done)(x, y, p, generator)

    def at(self, step: int) -> ProxySynthesis:
        """The loss of a step, counted from 0."""
        mu = self.mu * min(1.0, step / self.steps)
        return ProxySynthesis(self.loss, alpha=self.alpha, mu=mu)


@dataclass(frozen=True)
class SoftPairs:
    """Proxy-anchor under Proxy Synthesis, where a synthetic repels its parents less.

    A synthetic belongs to its parents' classes with shares lam and 1 - lam, an original to its own
    with 1. The overlap o(x, p) of an embedding and a proxy is the sum over classes of the smaller
    of their shares: lam between an embedding of class a and lam p_a + (1 - lam) p_b. In the
    negative term of Proxy-anchor, a pair takes part according to 1 - o.

    Args:
        how: "weight" multiplies exp(scale (s + margin)) by 1 - o; "margin" lowers the logit by
            scale o, so that s is compared with o instead of with 0; "apart" leaves out all pairs
            with an overlap.
    """

    loss: ProxyAnchor = ProxyAnchor()
    alpha: float = 0.4
    how: Literal["weight", "margin", "apart"] = "weight"

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        draw = ProxySynthesis(self.loss, alpha=self.alpha).draw(y, generator)
        return self.loss(x, y, p) if draw is None else self.on(draw, x, y, p)

    def on(self, draw: Draw, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
        """The loss for these pairs and coefficients."""
        c, scale, margin = len(p), self.loss.scale, self.loss.margin
        S = mixed_similarity(self.loss, x, y, p, draw, normalized=True)
        labels = torch.cat((y, c + draw.target))
        pull = positive_term(
            scale * (margin - S.gather(1, labels[:, None])[:, 0]), labels, S.shape[1]
        )
        shares = class_shares(draw, y, c, S.dtype)
        overlap = torch.minimum(
            torch.cat((one_hot(y, c), shares))[:, None], torch.cat((torch.eye(c), shares))
        ).sum(dim=2)
        push = scale * (S + margin)
        if self.how == "weight":
            push = push + (1 - overlap).clamp_min(0).log()
        elif self.how == "margin":
            push = push - scale * overlap
        else:
            push = push.masked_fill(overlap > 0, -torch.inf)
        push = push.scatter(1, labels[:, None], -torch.inf)
        return pull + torch.cat((torch.zeros_like(push[:1]), push)).logsumexp(dim=0).mean()


def class_shares(draw: Draw, y: Tensor, c: int, dtype: torch.dtype) -> Tensor:
    """The share of every original class in every synthetic, (m, c)."""
    made = torch.zeros(len(draw.i), c, dtype=dtype)
    lam = draw.lam.expand(len(draw.i))
    for parent, share in ((draw.i, lam), (draw.j, 1 - lam)):
        made.scatter_(1, y[parent, None], share.to(dtype)[:, None])
    return made


KINDS.update(
    {kind.__name__: kind for kind in (HarderPartners, ParentsApart, KParents, MuRamp, SoftPairs)}
)
