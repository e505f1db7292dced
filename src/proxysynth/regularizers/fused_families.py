"""The two families of the fused path: softmax along rows, Proxy-anchor along columns.

Both are told of four blocks of logits (see `fused`): L and T over the original classes, in parts,
G and C over the synthetic ones. Entries where an embedding meets its own proxy are left out of the
sums; those *own* logits come apart. What is kept for the way back is a `State`: a negative's
gradient is exp(logit - shift), the shift being of its row or of its column.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from proxysynth.interfaces import ProxyLoss
from proxysynth.losses import (
    MarginSoftmax,
    NormSoftmax,
    ProxyAnchor,
    Softmax,
    SquaredProxyNCA,
)


class Block(NamedTuple):
    """A range of classes, and where in it own logits stand: (rows, columns); no rows is all."""

    start: int
    stop: int
    rows: Tensor | None
    columns: Tensor

    def set_own(self, M: Tensor, values: Tensor | float) -> None:
        """Writes the entries where an embedding meets its own proxy; one value, or one per row."""
        if self.rows is not None:
            M[self.rows, self.columns] = values if isinstance(values, float) else values[self.rows]
        elif isinstance(values, float):
            M.scatter_(1, self.columns[:, None], values)
        else:
            M.scatter_(1, self.columns[:, None], values[:, None])


Pieces = Iterable[tuple[Block, Tensor, Tensor]]


class State(NamedTuple):
    """The loss, and shifts of shape (rows, 1) or (1, columns), whichever the family has."""

    value: Tensor
    own_slope: Tensor
    originals: Tensor | None = None
    synthetics: Tensor | None = None
    columns: Tensor | None = None
    synthetic_columns: Tensor | None = None

    def shifts(self, part: slice | None) -> tuple[Tensor, Tensor]:
        """For original and for synthetic rows, over these classes (None: the synthetic ones)."""
        if self.originals is not None and self.synthetics is not None:
            return self.originals, self.synthetics
        column = self.synthetic_columns if part is None else self.columns[:, part]  # type: ignore[index]
        assert column is not None
        return column, column


@dataclass(frozen=True)
class Rows:
    """The softmax family: -log of the own logit's share of its row."""

    scale: float
    normalized: bool = True
    margin: MarginSoftmax | None = None

    def reduce(self, pieces: Pieces, last: tuple[Block, Tensor, Tensor], own: Tensor) -> State:
        originals, synthetics = [], []
        for block, L, T in pieces:
            originals.append(_log_sum(L, block))
            synthetics.append(_log_sum(T))
        block, G, C = last
        originals.append(_log_sum(G))
        synthetics.append(_log_sum(C, block))
        others = torch.cat((_joined(originals), _joined(synthetics)))

        hard, slope = own, None
        if self.margin is not None:
            s = own / self.scale
            hard, slope = self.scale * self.margin.harder(s), self.margin.harder_slope(s)
        total = torch.logaddexp(others, hard)
        own_slope = torch.exp(hard - total).sub_(1.0).div_(len(own))
        if slope is not None:
            own_slope *= slope
        shift = (total + math.log(len(own)))[:, None]
        n = len(G)
        return State((total - hard).mean(), own_slope, shift[:n], shift[n:])


@dataclass(frozen=True)
class Columns:
    """Proxy-anchor: a log-sum-exp over each column's strangers, another over its own."""

    scale: float
    margin: float
    normalized: bool = True

    def reduce(self, pieces: Pieces, last: tuple[Block, Tensor, Tensor], own: Tensor) -> State:
        ahead = self.scale * self.margin
        labels, totals = [], []
        for block, L, T in pieces:
            totals.append(_log_one_plus_sum(L, T, ahead, block, None))
            labels.append(block)
        block, G, C = last
        totals.append(_log_one_plus_sum(G, C, ahead, None, block))
        push = torch.cat(totals)

        c = labels[-1].stop
        y = torch.empty(len(own), dtype=torch.long, device=own.device)
        for b in labels:
            y[slice(len(G)) if b.rows is None else b.rows] = b.columns + b.start
        y[len(G) :] = block.columns + c
        pull = ahead - own
        total, present = _log_one_plus_own(pull, y, len(push))
        own_slope = torch.exp(pull - total[y]).div_(present).neg_()
        shift = (push + (math.log(len(push)) - ahead))[None]
        value = total.sum() / present + push.mean()
        return State(value, own_slope, columns=shift[:, :c], synthetic_columns=shift[:, c:])


Family = Rows | Columns


def family_of(loss: ProxyLoss) -> Family | None:
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


def _log_sum(M: Tensor, own: Block | None = None) -> Tensor:
    """log sum exp of each row, own entries left out."""
    top = M.amax(dim=1, keepdim=True)
    E = (M - top).exp_()
    if own is not None:
        own.set_own(E, 0.0)
    return E.sum(dim=1).log_().add_(top[:, 0])


def _joined(parts: list[Tensor]) -> Tensor:
    return torch.logaddexp(*parts) if len(parts) == 2 else torch.stack(parts).logsumexp(dim=0)


def _log_one_plus_sum(
    M: Tensor, N: Tensor, ahead: float, own_M: Block | None, own_N: Block | None
) -> Tensor:
    """log(1 + sum of exp(logit + ahead)) of each column of M over N, own entries left out."""
    top = torch.maximum(M.amax(dim=0), N.amax(dim=0)).clamp_min_(-ahead)
    total = torch.exp(-ahead - top)
    for part, own in ((M, own_M), (N, own_N)):
        E = (part - top).exp_()
        if own is not None:
            own.set_own(E, 0.0)
        total += E.sum(dim=0)
    return total.log_().add_(top).add_(ahead)


def _log_one_plus_own(pull: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """log(1 + sum of exp(pull) over each class's embeddings), and how many classes have any."""
    top = pull.new_zeros(classes).scatter_reduce_(0, y, pull, "amax")
    total = torch.exp(-top).scatter_add_(0, y, torch.exp(pull - top[y]))
    present = pull.new_zeros(classes).scatter_(0, y, 1.0).sum()
    return total.log_().add_(top), present
