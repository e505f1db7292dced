"""The two families of the fused path: softmax along rows, Proxy-anchor along columns.

A family is shown the logits (see `fused`) a block of classes at a time: M of the original rows,
N of the synthetic ones. Entries where an embedding meets its own proxy are left out of the sums;
those *own* logits come apart. Each block leaves its exponentials behind: a negative's gradient is
its exponential times a factor of its row or of its column.

The logits of M and N are in base 2: times log2(e), so that their powers of two are exponentials.
A CPU takes a third of the time for these: torch's `exp` goes to a library that is slow on some.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from proxysynth.losses import (
    MarginSoftmax,
    NormSoftmax,
    ProxyAnchor,
    Softmax,
    SquaredProxyNCA,
)

BOUND = 40.0
"""Cosines times a scale up to this need no shift: exp(80) is a float32, and so is exp(-80)."""

LOG2E, LN2 = math.log2(math.e), math.log(2.0)
"""Between logits and logits in base 2."""


class Own(NamedTuple):
    """Where in a block own logits stand: at (rows, columns); no rows is every row in order."""

    rows: Tensor | None
    columns: Tensor

    def clear(self, M: Tensor) -> None:
        if self.rows is None:
            M.scatter_(1, self.columns[:, None], 0.0)
        else:
            M[self.rows, self.columns] = 0.0

    def tops_of_others(self, M: Tensor) -> Tensor:
        """The largest of each column, own logits left out. M is as it was afterwards."""
        rows = torch.arange(len(M), device=M.device) if self.rows is None else self.rows
        kept = M[rows, self.columns]
        M[rows, self.columns] = -math.inf
        tops = M.amax(dim=0)
        M[rows, self.columns] = kept
        return tops

    def add(self, M: Tensor, values: Tensor) -> None:
        if self.rows is None:
            M.scatter_add_(1, self.columns[:, None], values[:, None])
        else:
            M.index_put_((self.rows, self.columns), values[self.rows], accumulate=True)


class Piece(NamedTuple):
    """What a block leaves behind.

    originals, synthetics: exponentials of the rows' logits, less `tops` where there are any.
    sums: of the exponentials of each row (n + m,), or the log-sum-exp of each column.
    tops: the largest logit of each row (n + m,), in base 2; None where logits are bounded.
    factor: of the columns, for a family along columns.
    shrink: (m,) the sum of exponential (x factor of the column) x logit along each synthetic row:
        what the length of the mixed embedding answers for.
    """

    originals: Tensor
    synthetics: Tensor
    sums: Tensor
    tops: Tensor | None
    factor: Tensor | None
    shrink: Tensor


class Outcome(NamedTuple):
    """The loss, the slope of the own logits, and the factors of the rows, for each block."""

    value: Tensor
    own_slope: Tensor
    factors: list[Tensor] | None = None


@dataclass(frozen=True)
class Rows:
    """The softmax family: -log of the own logit's share of its row."""

    scale: float
    normalized: bool = True
    margin: MarginSoftmax | None = None

    def piece(self, M: Tensor, N: Tensor, own_M: Own, own_N: Own | None, classes: int) -> Piece:
        tops = None
        if self.normalized and self.scale <= BOUND:  # the paper's losses all are
            E_M, E_N = M.exp2(), N.exp2()
        else:
            top_M, top_N = M.amax(dim=1, keepdim=True), N.amax(dim=1, keepdim=True)
            E_M, E_N = (M - top_M).exp2_(), (N - top_N).exp2_()
            tops = torch.cat((top_M, top_N))[:, 0]
        own_M.clear(E_M)
        if own_N is not None:
            own_N.clear(E_N)
        sums = torch.cat((E_M.sum(dim=1), E_N.sum(dim=1)))
        shrink = (E_N * N).sum(dim=1).mul_(LN2) if self.normalized else sums
        return Piece(E_M, E_N, sums, tops, None, shrink)

    def outcome(
        self, pieces: list[Piece], own: Tensor, y: Tensor, made_y: Tensor, c: int, u: int
    ) -> Outcome:
        tops = [piece.tops * LN2 for piece in pieces if piece.tops is not None]
        if tops:
            logs = [piece.sums.log() + top for piece, top in zip(pieces, tops, strict=True)]
            others = torch.stack(logs).logsumexp(dim=0)
        else:
            others = sum((piece.sums for piece in pieces[1:]), pieces[0].sums).log()
        hard, slope = own, None
        if self.margin is not None:
            s = own / self.scale
            hard, slope = self.scale * self.margin.harder(s), self.margin.harder_slope(s)
        total = torch.logaddexp(others, hard)
        own_slope = torch.exp(hard - total).sub_(1.0).div_(len(own))
        if slope is not None:
            own_slope *= slope
        if tops:
            factors = [torch.exp(top - total).div_(len(own)) for top in tops]
        else:
            factors = [torch.exp(-total).div_(len(own))] * len(pieces)
        return Outcome((total - hard).mean(), own_slope, factors)


@dataclass(frozen=True)
class Columns:
    """Proxy-anchor: a log-sum-exp over each column's strangers, another over its own."""

    scale: float
    margin: float
    normalized: bool = True

    @property
    def bounded(self) -> bool:
        return self.scale * (1 + self.margin) <= BOUND

    def piece(self, M: Tensor, N: Tensor, own_M: Own, own_N: Own | None, classes: int) -> Piece:
        ahead = self.scale * self.margin
        if self.bounded:
            E_M, E_N, total = M.exp2(), N.exp2(), M.new_tensor(math.exp(-ahead))
        else:
            top_N = N.amax(dim=0) if own_N is None else own_N.tops_of_others(N)
            top = torch.maximum(own_M.tops_of_others(M), top_N).clamp_min_(-ahead * LOG2E)
            E_M, E_N, total = (M - top).exp2_(), (N - top).exp2_(), torch.exp(-ahead - top * LN2)
        own_M.clear(E_M)
        if own_N is not None:
            own_N.clear(E_N)
        total = (total + E_M.sum(dim=0)).add_(E_N.sum(dim=0))
        factor = (total * classes).reciprocal_()
        sums = total.log_().add_(ahead)
        if not self.bounded:
            sums += top * LN2
        return Piece(E_M, E_N, sums, None, factor, ((E_N * N) @ factor).mul_(LN2))

    def outcome(
        self, pieces: list[Piece], own: Tensor, y: Tensor, made_y: Tensor, c: int, u: int
    ) -> Outcome:
        y, classes = torch.cat((y, c + made_y)), c + u
        push = torch.cat([piece.sums for piece in pieces]).mean()
        pull = self.scale * self.margin - own
        if self.bounded:
            E = pull.exp()
            sums = E.new_zeros(classes).scatter_add_(0, y, E)
            present = (sums > 0).sum()
            own_slope = E.div_(sums.index_select(0, y).add_(1.0)).div_(present).neg_()
            return Outcome(sums.log1p_().sum() / present + push, own_slope)
        top = pull.new_zeros(classes).scatter_reduce_(0, y, pull, "amax")
        total = torch.exp(-top).scatter_add_(0, y, torch.exp(pull - top[y])).log_().add_(top)
        present = pull.new_zeros(classes).scatter_(0, y, 1.0).sum()
        own_slope = torch.exp(pull - total[y]).div_(present).neg_()
        return Outcome(total.sum() / present + push, own_slope)


Family = Rows | Columns


def family_of(loss: object) -> Family | None:
    """How the fused path computes this loss; None if it does not serve it."""
    if type(loss) is Softmax:
        return Rows(1.0, normalized=False)
    if type(loss) is NormSoftmax:
        return Rows(loss.scale)
    if type(loss) is SquaredProxyNCA:
        return Rows(2 * loss.scale)
    if isinstance(loss, MarginSoftmax):
        return Rows(loss.scale, margin=loss)
    if type(loss) is ProxyAnchor:
        return Columns(loss.scale, loss.margin)
    return None
