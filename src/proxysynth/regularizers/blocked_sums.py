"""What a tour of the classes adds up, a block at a time: along rows, or along columns.

A block is shown as logits Z (rows, b), with -inf where an embedding meets its own class. The
softmax family needs one log-sum-exp for each row over all classes, so each block mends a running
one; Proxy-anchor needs one for each column, which a block holds whole, and only their sum goes on.
On the way back the logits come again, and `slopes` says what the sums ask of each.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from proxysynth.regularizers.fused_families import BOUND, Columns, Family, Rows


class Own(NamedTuple):
    """Where own logits stand in a block: at (rows, columns)."""

    rows: Tensor
    columns: Tensor

    def fill(self, Z: Tensor, value: float) -> None:
        if len(self.rows):
            Z[self.rows, self.columns] = value


class RowSums:
    """log sum exp of every row's strangers, (rows,): -inf for a row that meets none."""

    def __init__(self, family: Rows, rows: int, like: Tensor) -> None:
        # Cosines at the paper's scales need no shift; a running maximum costs a pass over Z.
        self.bounded = family.normalized and family.scale <= BOUND
        lowest = 0.0 if self.bounded else torch.finfo(like.dtype).min / 2
        self.top, self.sum = like.new_full((rows,), lowest), like.new_zeros(rows)

    def add(self, Z: Tensor) -> None:
        """Take in a block; Z is used up."""
        if not self.bounded:
            top = torch.maximum(self.top, Z.amax(dim=1))
            self.sum *= (self.top - top).exp_()
            self.top = top
            Z -= top[:, None]
        self.sum += Z.exp_().sum(dim=1)

    def total(self) -> Tensor:
        return self.sum.log() + self.top

    def slopes(self, Z: Tensor, own: Own, total: Tensor, grad: Tensor) -> Tensor:
        """The gradient of a block's logits, given that of the sums."""
        # A row without strangers has no slope anywhere: its -inf would only make NaN of its zeros.
        shift = total.masked_fill(total == -torch.inf, 0.0)
        E = (Z - shift[:, None]).exp_()
        own.fill(E, 0.0)
        return E.mul_(grad[:, None])


class ColumnSums:
    """The sum over classes of log(1 + sum of exp(logit + scale margin) over strangers), ()."""

    def __init__(self, family: Columns, rows: int, like: Tensor) -> None:
        self.ahead, self.bounded = family.scale * family.margin, family.bounded
        self.sum = like.new_zeros(())

    def add(self, Z: Tensor) -> None:
        """Take in a block; Z is used up."""
        Z += self.ahead
        top, total = self._exponentials(Z)
        self.sum += (total.log_() if top is None else total.log_().add_(top)).sum()

    def total(self) -> Tensor:
        return self.sum

    def slopes(self, Z: Tensor, own: Own, total: Tensor, grad: Tensor) -> Tensor:
        """The gradient of a block's logits, given that of the sum."""
        E = Z + self.ahead
        own.fill(E, -torch.inf)
        _, column = self._exponentials(E)
        return E.mul_(grad / column)

    def _exponentials(self, Z: Tensor) -> tuple[Tensor | None, Tensor]:
        """Z becomes exp(Z - top); returns top and the columns' sums with the 1 among them."""
        if self.bounded:
            return None, Z.exp_().sum(dim=0).add_(1.0)
        top = Z.amax(dim=0).clamp_min_(0.0)
        Z -= top
        return top, Z.exp_().sum(dim=0).add_((-top).exp_())


def sums_of(family: Family, rows: int, like: Tensor) -> RowSums | ColumnSums:
    """What the family adds up, at its start; `like` has the numbers' type and device."""
    kind = RowSums if isinstance(family, Rows) else ColumnSums
    return kind(family, rows, like)  # type: ignore[arg-type]
