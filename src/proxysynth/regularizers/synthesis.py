"""The synthetics of one batch: what was drawn, and what it makes.                  [Eq. 4]

x~ = lam x_i + (1 - lam) x_j        p~ = lam p_{y_i} + (1 - lam) p_{y_j},     y_i != y_j
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.losses.similarity import at_least_float32, unit


@dataclass(frozen=True)
class Draw:
    """Which pairs are mixed, with which coefficient, into which synthetic class.

    i, j: (m,) positions in the batch.      lam: a scalar, or (m,) with one coefficient per pair.
    target: (m,) synthetic class of each pair, in 0..u-1.   first: (u,) the pair that made a class.
    in_order: i is known to be 0, 1, ..., n - 1, and j the same in another order: saves gathering.
    """

    i: Tensor
    j: Tensor
    lam: Tensor
    target: Tensor
    first: Tensor
    in_order: bool = False

    @property
    def shares(self) -> tuple[Tensor, Tensor]:
        """lam and 1 - lam, one per pair, (m,)."""
        lam = self.lam.expand(len(self.i))
        return lam, 1 - lam

    @property
    def class_shares(self) -> tuple[Tensor, Tensor]:
        """lam and 1 - lam, one per synthetic class, (u,)."""
        lam = self._of_classes(self.shares[0])
        return lam, 1 - lam

    def class_parents(self, y: Tensor) -> tuple[Tensor, Tensor]:
        """The two classes each synthetic class is made of, (u,) and (u,)."""
        i, j = self._of_classes(self.i), self._of_classes(self.j)
        first = y if self.in_order and i is self.i else y.index_select(0, i)
        return first, y.index_select(0, j)

    def _of_classes(self, of_pairs: Tensor) -> Tensor:
        # As many classes as pairs: each pair made its own, in order.
        every = len(self.first) == len(of_pairs)
        return of_pairs if every else of_pairs.index_select(0, self.first)


@dataclass(frozen=True)
class Synthetics:
    """Synthetic embeddings and proxies, ready to look at.

    x: (m, d).  p: (u, d) or (u, k, d), with u = m unless duplicates are merged.
    y: (m,), the synthetic class of each embedding, counted on after the c original classes.
    lam, i, j: as drawn; the parents of x[r] are the batch's embeddings i[r] and j[r].
    """

    x: Tensor
    p: Tensor
    y: Tensor
    lam: Tensor
    i: Tensor
    j: Tensor


def floor(dtype: torch.dtype) -> float:
    """The least length a mix is divided by: opposite parents may cancel to nothing but rounding."""
    return float(torch.finfo(dtype).eps ** 0.5)


def mix(a: Tensor, b: Tensor, share_a: Tensor, share_b: Tensor) -> Tensor:
    """share_a a + share_b b, with one share per leading index, in float32 at least."""
    shape = (-1,) + (1,) * (a.dim() - 1)
    a, b = at_least_float32(a), at_least_float32(b)
    return share_a.to(a.dtype).view(shape) * a + share_b.to(a.dtype).view(shape) * b


def one_over_length(v: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / |v| along the last dimension, or 0 where it is below the floor of v's first dtype.

    A mix that has cancelled has no direction, and nothing is to be learnt from it.
    """
    long, least = torch.linalg.vector_norm(v, dim=-1), floor(dtype)
    return (1 / long.clamp_min(least)).masked_fill(long <= least, 0.0)


def normalized_mix(v: Tensor, dtype: torch.dtype) -> Tensor:
    """v / |v|, or 0 where v has cancelled."""
    one_over = one_over_length(v, dtype)[..., None]
    # Masked also where the product is 0 already: the gradient that a loss has for a vector of no
    # length may be infinite, and 0 times that is not a number.
    return (v * one_over).masked_fill(one_over == 0, 0.0)


def synthesize(x: Tensor, y: Tensor, p: Tensor, draw: Draw, normalized: bool) -> Synthetics:
    """Mix embeddings, and proxies k to k.

    For a cosine loss vectors are normalised before mixing as well as after: unequal lengths would
    weight the parents by more than lam. A dot-product loss mixes them raw.
    """
    before = unit if normalized else _same
    made_x = mix(before(x[draw.i]), before(x[draw.j]), *draw.shares)
    a, b = draw.class_parents(y)
    made_p = mix(before(p[a]), before(p[b]), *draw.class_shares)
    if normalized:
        made_x, made_p = normalized_mix(made_x, x.dtype), normalized_mix(made_p, p.dtype)
    return Synthetics(
        made_x.to(x.dtype), made_p.to(p.dtype), p.shape[0] + draw.target, draw.lam, draw.i, draw.j
    )


def _same(v: Tensor) -> Tensor:
    return v
