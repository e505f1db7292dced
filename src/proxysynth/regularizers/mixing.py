"""The synthetics of a batch: mixed vectors, and mixed similarities.                   [Eq. 4]

x~ = lam x_i + (1 - lam) x_j        p~ = lam p_{y_i} + (1 - lam) p_{y_j},     y_i != y_j

Either the vectors are mixed (`synthesize`, for the reference path) or their similarities. Mixing is
linear, so every similarity with a synthetic is a mix of rows and columns of the one matrix S that
the plain loss computes anyway, divided by the length of the mixed vector (`mixed_similarity`):

    synthetic row i, original column:   (lam S_i + lam' S_j) / |lam x_i + lam' x_j|
    original row, synthetic column:     the same over the columns of the parents' classes
    synthetic row, synthetic column:    the row rule on the column rule's result

`Mix` does the same for the fused path, which has no autograd.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.interfaces import ProxyLoss
from proxysynth.losses.functional import at_least_float32, unit
from proxysynth.regularizers.pairs import Draw


@dataclass(frozen=True)
class Synthetics:
    """Synthetic embeddings and proxies, as `ProxySynthesis.synthesize` returns them.

    x: (m, d).  p: (u, d) or (u, k, d), with u = m unless duplicates are merged.
    y: (m,), the synthetic class of each embedding, numbered after the c original classes.
    lam, i, j: as drawn; the parents of x[r] are the batch's embeddings i[r] and j[r].
    """

    x: Tensor
    p: Tensor
    y: Tensor
    lam: Tensor
    i: Tensor
    j: Tensor


def mix(a: Tensor, b: Tensor, lam: Tensor) -> Tensor:
    """lam a + (1 - lam) b in float32 at least; lam is a scalar or has one number per row."""
    a, b = at_least_float32(a), at_least_float32(b)
    shape = (-1,) + (1,) * (a.dim() - 1)
    return lam.to(a.dtype).view(shape) * a + (1 - lam).to(a.dtype).view(shape) * b


def one_over_length(v: Tensor, dtype: torch.dtype) -> Tensor:
    """1 / |v| along the last dimension; 0 where v has canceled up to the dtype's rounding errors:
    a mix of opposite parents has no direction, and nothing is learned from it."""
    long, least = torch.linalg.vector_norm(v, dim=-1), torch.finfo(dtype).eps ** 0.5
    return F.threshold(long, least, math.inf).reciprocal()


def normalized_mix(v: Tensor, dtype: torch.dtype) -> Tensor:
    """v / |v|, or 0 where v has canceled."""
    one_over = one_over_length(v, dtype)[..., None]
    # Masked also where the product is 0 already: the gradient that a loss has for a vector of no
    # length may be infinite, and 0 times that is not a number.
    return (v * one_over).masked_fill(one_over == 0, 0.0)


def synthesize(x: Tensor, y: Tensor, p: Tensor, draw: Draw, normalized: bool) -> Synthetics:
    """Mix embeddings, and proxies k to k.

    For a cosine loss vectors are normalized before mixing as well as after: unequal lengths would
    weight the parents by more than lam. A dot-product loss mixes them raw.
    """
    before = unit if normalized else lambda v: v
    i, j, lam = draw.class_pairs
    made_x = mix(before(x[draw.i]), before(x[draw.j]), draw.lam)
    made_p = mix(before(p[y[i]]), before(p[y[j]]), lam)
    if normalized:
        made_x, made_p = normalized_mix(made_x, x.dtype), normalized_mix(made_p, p.dtype)
    return Synthetics(
        made_x.to(x.dtype), made_p.to(p.dtype), p.shape[0] + draw.target, draw.lam, draw.i, draw.j
    )


def mixed_similarity(
    loss: ProxyLoss, x: Tensor, y: Tensor, p: Tensor, draw: Draw, normalized: bool
) -> Tensor:
    """S^ of originals and synthetics, (n + m, c + u) or (n + m, c + u, k)."""
    S = loss.similarity(x, p)
    dtype, S = S.dtype, at_least_float32(S)
    i, j, lam = draw.class_pairs
    over_x = over_p = None
    if normalized:
        over_x = one_over_length(mix(unit(x[draw.i]), unit(x[draw.j]), draw.lam), dtype)
        over_p = one_over_length(mix(unit(p[y[i]]), unit(p[y[j]]), lam), dtype)

    columns = _mixed(S.transpose(0, 1), y[i], y[j], lam, over_p).transpose(0, 1)
    wide = torch.cat((S, columns), dim=1)
    return torch.cat((wide, _mixed(wide, draw.i, draw.j, draw.lam, over_x)))


def _mixed(S: Tensor, a: Tensor, b: Tensor, lam: Tensor, over: Tensor | None) -> Tensor:
    """Rows a and b of S mixed and divided by the mixed vectors' lengths, one or k per row."""
    made = mix(S[a], S[b], lam)
    if over is None:
        return made
    # Rows of S have all columns (and sub-proxies) behind them; columns, transposed, have all rows
    # and then the sub-proxies, which each have a length of their own.
    return made * (over[:, None, :] if over.dim() == 2 else over.view((-1,) + (1,) * (S.dim() - 1)))


class PairMatrix:
    """A sparse matrix (m, n) with two entries a row, lam in column a and 1 - lam in column b.

    numpy starts such small operations in a fraction of torch's time.

    Attributes:
        shares: (m, 2) the entries.     index: their columns, and the starts of the rows.
        below: the same with an identity matrix above.
        transposed: the entries in order of their columns: which they are, their rows, the starts.
    """

    def __init__(self, a: Tensor, b: Tensor, lam: Tensor, like: Tensor) -> None:
        m, n = len(a), len(like)
        self.n = n
        shares, columns = np.empty((m, 2)), np.empty(n + 2 * m, np.int64)
        shares[:, 0] = lam.cpu().numpy()
        shares[:, 1] = 1 - shares[:, 0]
        columns[:n] = np.arange(n)
        columns[n::2], columns[n + 1 :: 2] = a.cpu().numpy(), b.cpu().numpy()
        pairs, starts = columns[n:], np.arange(0, 2 * m, 2)
        order, counts = pairs.argsort(kind="stable"), np.bincount(pairs, minlength=n)

        def tensor(array: NDArray[Any]) -> Tensor:
            made = torch.from_numpy(array)
            return made if like.is_cpu else made.to(like.device, non_blocking=True)

        self.shares = tensor(shares).to(like.dtype)
        self.index = tensor(pairs), tensor(starts)
        self.below = tensor(columns), tensor(np.concatenate((columns[:n], n + starts)))
        self.transposed = tensor(order), tensor(order // 2), tensor(np.cumsum(counts) - counts)


class Mix:
    """Mixes pairs of rows of an (n, .) matrix M, by explicit forward and backward functions.

    If V is given, the mixes are divided by the lengths of the mixes of its rows, unit vectors.
    With `below` the mixed rows come below those of M, (n + m, .); without they are alone, (m, .).
    """

    def __init__(
        self, pairs: PairMatrix, V: Tensor | None, dtype: torch.dtype, below: bool = False
    ) -> None:
        self.weights, self.transposed = pairs.shares, pairs.transposed
        if V is not None:
            self.vectors = _weighted_sums(V, *pairs.index, self.weights.view(-1))
            self.inverse = one_over_length(self.vectors, dtype)
            self.weights = pairs.shares * self.inverse[:, None]
        self.first, self.index, self.entries = 0, pairs.index, self.weights.view(-1)
        if below:
            self.first, self.index = pairs.n, pairs.below
            self.entries = torch.cat((self.weights.new_ones(pairs.n), self.entries))

    def __call__(self, M: Tensor) -> Tensor:
        return _weighted_sums(M, *self.index, self.entries)

    def back(self, d_mixed: Tensor) -> Tensor:
        """The gradient of M, from that of the result."""
        d_M = self._back(d_mixed[self.first :], self.weights)
        return d_M.add_(d_mixed[: self.first]) if self.first else d_M

    def length_gradient(self, slope: Tensor) -> Tensor:
        """The gradient of V, from that of the logarithms of the lengths."""
        return self._back(self.vectors, (slope * self.inverse)[:, None] * self.weights)

    def _back(self, d_mixed: Tensor, weights: Tensor) -> Tensor:
        order, rows, starts = self.transposed
        return _weighted_sums(d_mixed, rows, starts, weights.view(-1).index_select(0, order))


def _weighted_sums(M: Tensor, index: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Sums of weighted rows of M, one for each run of entries."""
    made: Tensor = torch.embedding_bag(M, index, starts, False, 0, False, weights)[0]
    return made
