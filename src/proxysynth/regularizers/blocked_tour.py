"""A tour of the classes, a block at a time: the n x c logits never exist whole.

    Z_b = (scale x . p_b / |p_b|,  and its rows i and j mixed for every synthetic embedding)

Forward, each block adds to the sums of `blocked_sums` and is forgotten. Backward, its product is
computed again, and the block's slopes go to the embeddings and to its own proxies at once. Besides
the proxies and their gradient, memory does not grow with c. Four n x c products in all, one more
than the fused path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxysynth.losses.similarity import EPS, at_least_float32
from proxysynth.regularizers.blocked_sums import Own, sums_of
from proxysynth.regularizers.fused import outside_graphs
from proxysynth.regularizers.fused_families import Family
from proxysynth.regularizers.fused_mixing import Mix
from proxysynth.regularizers.second_gradient import refused_if_asked
from proxysynth.regularizers.synthesis import Draw


@dataclass(frozen=True)
class Tour:
    """What is visited, and by whom.

    draw: the synthetic embeddings; None for none.
    originals: whether the original embeddings take part besides.
    own: the place of each row's own class among the visited, originals before synthetics; -1 if it
        is not there, as for a process that holds other classes.
    looked_up: rows of p to give back, zeros for -1; they are the batch's own proxies.
    chosen: rows of p that are visited, in this order; None for all of them.
    block: classes in a block.
    low: the type in which products are taken.
    """

    draw: Draw | None
    originals: bool
    own: Tensor
    looked_up: Tensor
    chosen: Tensor | None
    block: int
    low: torch.dtype

    @property
    def synthetics(self) -> int:
        return 0 if self.draw is None else len(self.draw.i)

    def held(self) -> tuple[Tensor, Tensor]:
        """Which of those looked up are here, and in which rows of p."""
        at = (self.looked_up >= 0).nonzero()[:, 0]
        return at, self.looked_up.index_select(0, at)

    def blocks(self, c: int) -> Iterator[tuple[slice | Tensor, Own]]:
        """The rows of p in each block, and where own logits stand in it."""
        c = c if self.chosen is None else len(self.chosen)
        starts = list(range(0, c, self.block))
        ordered, order = self.own.sort()
        edges = torch.searchsorted(ordered, torch.tensor([*starts, c], device=order.device))
        found = edges.tolist()
        for start, low, high in zip(starts, found, found[1:], strict=False):
            part = slice(start, min(start + self.block, c))
            own = Own(order[low:high], ordered[low:high] - start)
            yield part if self.chosen is None else self.chosen[part], own


def tour(family: Family, x: Tensor, one_over: Tensor, p: Tensor, plan: Tour) -> tuple[Tensor, ...]:
    """The family's sums over the visited classes, and the proxies that were looked up; with exact
    gradients to x, one_over and p.

    x: embeddings, of unit length for cosines.     one_over: (m,) one over the length of each mix.
    """
    made: tuple[Tensor, ...] = outside_graphs(_Tour.apply)(x, one_over, p, plan, family)
    return made


class _Tour(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, one_over: Tensor, p: Tensor, plan: Tour, family: Family
    ) -> tuple[Tensor, Tensor]:
        found = x.new_zeros(len(plan.looked_up), x.shape[1])
        at, rows = plan.held()
        found[at] = p.index_select(0, rows).to(x.dtype)
        sums, logits = sums_of(family, len(plan.own), x), _Logits(family, x, one_over, plan)
        for part, own in plan.blocks(len(p)):
            Z, _ = logits.of(p[part])
            counting = Z[len(Z) - len(plan.own) :]
            own.fill(counting, -torch.inf)
            sums.add(counting)
        total = sums.total()
        ctx.save_for_backward(x, one_over, p, total)
        ctx.rest = plan, family
        return total, found

    @staticmethod
    @refused_if_asked
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, one_over, p, total = ctx.saved_tensors
        plan, family = ctx.rest
        n, m = len(x), plan.synthetics
        sums, logits = sums_of(family, len(plan.own), x), _Logits(family, x, one_over, plan)
        # Every row of the gradient is written once, unless some classes are not visited.
        d_p = torch.empty_like(p) if plan.chosen is None else torch.zeros_like(p)
        d_x, shrink = torch.zeros_like(x), torch.zeros_like(one_over)
        for part, own in plan.blocks(len(p)):
            p_b = p[part]
            Z, inverse = logits.of(p_b)
            E = sums.slopes(Z[len(Z) - len(plan.own) :], own, total, grads[0])
            d_L = E[:n] if plan.originals else torch.zeros_like(Z[:n])
            if m:
                shrink += (E[-m:] * Z[-m:]).sum(dim=1)
                logits.rows.rows_back(E[-m:], None, d_L)
            if inverse is not None:
                turned = (d_L * Z[:n]).sum(dim=0).mul_(inverse).mul_(inverse)
                d_L *= inverse * family.scale
            d_x += _product(d_L, p_b, plan.low)
            d_p_b = _product(d_L.t(), x, plan.low)
            if inverse is not None:
                d_p_b.addcmul_(p_b, turned[:, None], value=-1)
            d_p[part] = d_p_b.to(p.dtype)
        at, rows = plan.held()
        d_p.index_add_(0, rows, grads[1].index_select(0, at).to(p.dtype))
        # A mix's logits are proportional to one over its length; of one that cancelled all are 0.
        least = torch.finfo(one_over.dtype).tiny
        return d_x, shrink.div_(one_over.clamp_min(least)), d_p, None, None


class _Logits:
    """Blocks of logits, all written into one piece of memory."""

    def __init__(self, family: Family, x: Tensor, one_over: Tensor, plan: Tour) -> None:
        self.family, self.low = family, plan.low
        self.x = x.to(plan.low)
        self.n, self.m = len(x), plan.synthetics
        self.space = x.new_empty((self.n + self.m) * plan.block)
        if plan.draw is not None:
            draw = plan.draw
            lam, other = (share.to(x.dtype) for share in draw.shares)
            self.rows = Mix(draw.i, draw.j, lam * one_over, other * one_over, None, draw.in_order)

    def of(self, p_b: Tensor) -> tuple[Tensor, Tensor | None]:
        """Z (n + m, b), valid until the next call; for cosines also one over |p|, (b,)."""
        Z = self.space[: (self.n + self.m) * len(p_b)].view(self.n + self.m, len(p_b))
        L, inverse = Z[: self.n], None
        if L.dtype == self.low == p_b.dtype:
            torch.mm(self.x, p_b.t(), out=L)
        else:
            L.copy_(self.x @ p_b.to(self.low).t())
        if self.family.normalized:
            inverse = torch.linalg.vector_norm(p_b, dim=1, dtype=Z.dtype).clamp_min_(EPS)
            inverse = inverse.reciprocal_()
            L *= inverse * self.family.scale
        if self.m:
            Z[self.n :] = self.rows.of_rows(L)
        return Z, inverse


def _product(a: Tensor, b: Tensor, low: torch.dtype) -> Tensor:
    return at_least_float32(a.to(low) @ b.to(low))
