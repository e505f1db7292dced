"""Mixing rows and columns of logits, and the way back: the linear part of the fused path."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.regularizers.synthesis import length


@dataclass(frozen=True)
class Mix:
    """Vectors a and b, mixed as share_a a + share_b b and, for cosines, divided by their length.

    `index_a`, `index_b`: the parents' rows (embeddings) or columns (classes) of the logits.
    `mixed`: the mixed vectors, `long`: their lengths, None when they are not normalised.
    """

    index_a: Tensor
    index_b: Tensor
    share_a: Tensor
    share_b: Tensor
    unit_a: Tensor | None
    unit_b: Tensor | None
    mixed: Tensor | None
    long: Tensor | None
    weight_a: Tensor
    weight_b: Tensor

    @staticmethod
    def make(
        indices: tuple[Tensor, Tensor],
        shares: tuple[Tensor, Tensor],
        units: tuple[Tensor, Tensor] | None,
    ) -> Mix:
        (a, b), (share_a, share_b) = indices, shares
        if units is None:
            return Mix(a, b, share_a, share_b, None, None, None, None, share_a, share_b)
        mixed = (share_a[:, None] * units[0]).addcmul_(units[1], share_b[:, None])
        long = length(mixed)
        return Mix(a, b, share_a, share_b, *units, mixed, long, share_a / long, share_b / long)

    def of_rows(self, M: Tensor) -> Tensor:
        """The synthetic rows of M."""
        made = M.index_select(0, self.index_a).mul_(self.weight_a[:, None])
        return made.addcmul_(M.index_select(0, self.index_b), self.weight_b[:, None])

    def rows_back(self, d_made: Tensor, d_M: Tensor) -> None:
        """Adds to d_M what the gradient of `of_rows(M)` gives it."""
        d_M.index_add_(0, self.index_a, d_made * self.weight_a[:, None])
        d_M.index_add_(0, self.index_b, d_made * self.weight_b[:, None])

    def of_columns(self, M: Tensor) -> Tensor:
        """The synthetic columns of M."""
        made = M.index_select(1, self.index_a).mul_(self.weight_a)
        return made.addcmul_(M.index_select(1, self.index_b), self.weight_b)

    def columns_back(self, d_made: Tensor) -> tuple[Tensor, Tensor]:
        """The gradient of `of_columns(M)` as columns to add to d_M, and which ones they are."""
        parts = torch.cat((d_made * self.weight_a, d_made * self.weight_b), dim=1)
        return parts, torch.cat((self.index_a, self.index_b))

    def length_back(self, shrink: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """The part of the gradient that goes through the length; rows for a and for b.

        `shrink` is the sum of logit x gradient over a synthetic: logits fall as 1 / length.
        """
        assert self.mixed is not None and self.long is not None
        d_mixed = self.mixed * (-shrink / (self.long * self.long))[:, None]
        return (
            (self.index_a, d_mixed * self.share_a[:, None]),
            (self.index_b, d_mixed * self.share_b[:, None]),
        )
