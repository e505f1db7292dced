"""Mixing rows and columns of logits, and the way back: the linear part of the fused path.

For cosines a mix of unit vectors a and b is divided by its length. With cos = a . b,

    |l a + l' b|^2 = (l - l')^2 + 2 l l' (1 + cos)

so one dot product per pair is all that is asked of the vectors themselves.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.regularizers.synthesis import floor

Share = Tensor | float
"""lam: one number for all mixes, or one for each."""


@dataclass(frozen=True)
class Vectors:
    """The parents of normalised mixes, and what their lengths need on the way back.

    `a`, `b`: the parents' vectors; `inverse_a`, `inverse_b`: one over their lengths, None if 1.
    `cos`: their cosines.
    """

    a: Tensor
    b: Tensor
    inverse_a: Tensor | None
    inverse_b: Tensor | None
    cos: Tensor


@dataclass(frozen=True)
class Mix:
    """Rows (or columns) index_a and index_b of the logits, mixed with these weights.

    `in_order`: index_a is 0, 1, 2, ... to the last, which needs no gathering.
    `vectors`: of cosines; None where vectors are mixed as they are.
    """

    index_a: Tensor
    index_b: Tensor
    weight_a: Tensor
    weight_b: Tensor
    vectors: Vectors | None = None
    in_order: bool = False

    @staticmethod
    def raw(
        indices: tuple[Tensor, Tensor], share: Share, like: Tensor, in_order: bool = False
    ) -> Mix:
        """Dot products: vectors are mixed as they are."""
        weight = like.new_ones(len(indices[0])) * share
        return Mix(*indices, weight, 1 - weight, None, in_order)

    @staticmethod
    def unit(
        indices: tuple[Tensor, Tensor],
        share: Share,
        vectors: Tensor,
        inverse: Tensor | None,
        low: torch.dtype,
        in_order: bool = False,
    ) -> Mix:
        """Cosines: rows of `vectors`, of length 1 / inverse (None: all 1), are normalised first."""
        a = vectors if in_order else vectors.index_select(0, indices[0])
        b = vectors.index_select(0, indices[1])
        inverse_a = inverse_b = None
        if inverse is None:
            cos = (a * b).sum(dim=1)
        else:
            inverse_a, inverse_b = (inverse.index_select(0, index) for index in indices)
            cos = (a * b).sum(dim=1, dtype=inverse.dtype).mul_(inverse_a).mul_(inverse_b)
        other = 1 - share
        square = (cos + 1).mul_(2 * share * other).add_((share - other) ** 2)
        gone = square <= floor(low) ** 2  # see `one_over_length`
        one_over = square.rsqrt_().masked_fill_(gone, 0.0)
        held = Vectors(a, b, inverse_a, inverse_b, cos)
        return Mix(*indices, one_over * share, one_over * other, held, in_order)

    def cos_back(self, shrink: Tensor) -> Tensor:
        """The gradient of the parents' cosine, which the mix's length depends on.

        `shrink` is the sum of logit x gradient over a synthetic: its logits fall as 1 / length, and
        l l' / length^2 is what a change of the cosine does to the logarithm of that.
        """
        return shrink.mul_(self.weight_a).mul_(self.weight_b).neg_()

    def cosines_back(self, d_dots: Tensor, d_vectors: Tensor) -> None:
        """Adds to d_vectors what the gradient of the parents' dot products gives it."""
        held, weight = self.vectors, d_dots[:, None]
        assert held is not None
        if self.in_order:
            d_vectors.addcmul_(held.b, weight)
        else:
            d_vectors.index_add_(0, self.index_a, held.b * weight)
        d_vectors.index_add_(0, self.index_b, held.a * weight)

    def of_rows(self, M: Tensor) -> Tensor:
        """The synthetic rows of M."""
        if self.in_order:
            made = M * self.weight_a[:, None]
        else:
            made = M.index_select(0, self.index_a).mul_(self.weight_a[:, None])
        return made.addcmul_(M.index_select(0, self.index_b), self.weight_b[:, None])

    def rows_back(self, d_made: Tensor, factor: Tensor | None, d_M: Tensor) -> None:
        """Adds to d_M what the gradient of `of_rows(M)`, d_made x factor of its row, gives it."""
        a, b = self.weight_a, self.weight_b
        if factor is not None:
            a, b = a * factor, b * factor
        if self.in_order:
            d_M.addcmul_(d_made, a[:, None])
        else:
            d_M.index_add_(0, self.index_a, d_made * a[:, None])
        d_M.index_add_(0, self.index_b, d_made * b[:, None])

    def own_back(self, d_own: Tensor, columns: Tensor, d_M: Tensor) -> None:
        """The same for single entries of the made rows: row k's at columns[k]."""
        if self.in_order:
            d_M.scatter_add_(1, columns[:, None], (d_own * self.weight_a)[:, None])
        else:
            d_M.index_put_((self.index_a, columns), d_own * self.weight_a, accumulate=True)
        d_M.index_put_((self.index_b, columns), d_own * self.weight_b, accumulate=True)

    def of_columns(self, M: Tensor) -> Tensor:
        """The synthetic columns of M."""
        made = M.index_select(1, self.index_a).mul_(self.weight_a)
        return made.addcmul_(M.index_select(1, self.index_b), self.weight_b)

    def columns_back(self, d_made: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The gradient of `of_columns(M)`: for either parent, which columns of d_M get what."""
        return [
            (self.index_a, d_made * self.weight_a),
            (self.index_b, d_made * self.weight_b),
        ]
