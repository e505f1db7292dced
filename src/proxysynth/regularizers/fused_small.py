"""The fused path where classes are few: the same sums in numpy.

With a hundred classes the products take a third of the time; the rest is a hundred operations on
little, and on a CPU numpy starts one of them in a third of the time that torch needs. The products
stay torch's, on as many threads as it was given. Letters are those of `fused`, and all logits are
one matrix:

    M (n + m, c + u)  embeddings and synthetic ones x classes and synthetic ones
    D (n + m, c + u)  the gradient of the loss by M, but for a factor of each row

Neither embeddings nor proxies are normalised: M is divided by their lengths, and what their
gradients lose along them is found in M and D, which are narrower than the vectors.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from proxysynth.losses.similarity import EPS
from proxysynth.regularizers.fused_families import BOUND, Columns, Family, Rows
from proxysynth.regularizers.synthesis import Draw, floor

SMALL = 2**17
"""Logits, synthetic ones included, up to which one thread of numpy is quicker than torch."""

LEAST = {
    np.dtype(np.float32): floor(torch.float32) ** 2,
    np.dtype(np.float64): floor(torch.float64) ** 2,
}
"""The square of the least length a mix is divided by."""

Floats = NDArray[Any]
Ints = NDArray[np.int64]
Share = Floats | float


def is_small(x: Tensor, p: Tensor, draw: Draw) -> bool:
    """Whether this module serves the step, and is the quicker."""
    return (
        (len(x) + len(draw.i)) * (len(p) + len(draw.first)) <= SMALL
        and x.device.type == "cpu"
        and x.dtype == p.dtype
        and x.dtype in (torch.float32, torch.float64)
    )


class FusedSmall(torch.autograd.Function):
    """See `fused`."""

    @staticmethod
    @np.errstate(all="ignore")  # what is not finite shows in the loss
    def forward(ctx: Any, x: Tensor, p: Tensor, y: Tensor, draw: Draw, family: Family) -> Tensor:
        X, P, labels = x.detach().numpy(), p.detach().numpy(), y.numpy()
        i, j = _places(draw)
        first, second = i.of(labels), j.of(labels)
        if len(draw.first) < len(second):
            made = draw.first.numpy()
            first, second = first[made], second[made]
        n, c, m, u = len(X), len(P), len(draw.j), len(first)
        share, of_class = _shares(draw, X.dtype)
        rows = _mixes(X, i, j, share, family.normalized)
        columns = _mixes(P, Places(first), Places(second), of_class, family.normalized)

        M = np.empty((n + m, c + u), X.dtype)
        originals, L, T = M[:n], M[:n, :c], M[n:]
        torch.mm(x, p.t(), out=torch.from_numpy(L))
        unit = None
        if family.normalized:
            unit = rows.inverse[:, None] * (columns.inverse * X.dtype.type(family.scale))
            L *= unit
        blend = np.zeros((c, u), X.dtype)  # of which classes each synthetic one is made
        each = np.arange(u)
        blend[first, each], blend[second, each] = columns.weight_a, columns.weight_b
        torch.mm(torch.from_numpy(L), torch.from_numpy(blend), out=torch.from_numpy(M[:n, c:]))
        np.multiply(i.of(originals), rows.weight_a[:, None], out=T)
        other = j.of(originals)
        other *= rows.weight_b[:, None]
        T += other

        own = np.concatenate((labels, c + draw.target.numpy()))
        along = _along_rows if isinstance(family, Rows) else _along_columns
        value, D, factor = along(family, M, own)  # type: ignore[arg-type]
        ctx.save_for_backward(x, p)
        ctx.rest = (rows, columns, M, D, factor, unit, blend)
        return torch.from_numpy(np.array(value, X.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p = ctx.saved_tensors
        rows, columns, M, D, factor, unit, blend = ctx.rest
        n, c = len(x), len(p)
        factor = factor * grads[0].item()

        d_originals, d_T = D[:n] * factor[:n, None], D[n:]
        by_originals = torch.from_numpy(d_originals)
        rows.a.add(by_originals, d_T, rows.weight_a * factor[n:])
        rows.b.add(by_originals, d_T, rows.weight_b * factor[n:])
        d_L, d_G = d_originals[:, :c], d_originals[:, c:]
        by_L = torch.from_numpy(d_L)
        by_L.addmm_(torch.from_numpy(d_G), torch.from_numpy(blend).t())
        if unit is None:
            return by_L @ p, by_L.t() @ x, None, None, None

        answered = d_originals * M[:n]
        of_columns = answered.sum(axis=0)
        of_rows = answered[:, :c].sum(axis=1)
        d_x = rows.lengths_back(x, of_rows, _dots(d_T, M[n:]) * factor[n:])
        d_p = columns.lengths_back(p, of_columns[:c], of_columns[c:])
        d_L *= unit
        return d_x.addmm_(by_L, p), d_p.addmm_(by_L.t(), x), None, None, None


class Places(NamedTuple):
    """Which rows of a matrix: None stands for 0, 1, 2, ... to the last.

    inverse: of rows that name every one once, and so can be added to without collisions.
    """

    rows: Ints | None = None
    inverse: Ints | None = None

    def of(self, V: Floats) -> Floats:
        return V if self.rows is None else V.take(self.rows, axis=0)

    def sums(self, values: Floats, n: int) -> Floats:
        """The sum of the values at each of n places."""
        if self.rows is None:
            return values
        if self.inverse is not None:
            return values[self.inverse]
        return np.bincount(self.rows, values, n)

    def add(self, to: Tensor, V: Floats, weights: Floats) -> None:
        """Adds V, rows times weights, to these rows of `to`."""
        if self.rows is None:
            to.addcmul_(torch.from_numpy(V), torch.from_numpy(weights)[:, None])
        elif self.inverse is not None:
            Places().add(to, V.take(self.inverse, axis=0), weights[self.inverse])
        else:
            parts = torch.from_numpy(V) * torch.from_numpy(weights)[:, None]
            to.index_add_(0, torch.from_numpy(self.rows), parts)


def _places(draw: Draw) -> tuple[Places, Places]:
    """Of the parents in the batch."""
    j = draw.j.numpy()
    if not draw.in_order:
        return Places(draw.i.numpy()), Places(j)
    inverse = np.empty_like(j)
    inverse[j] = np.arange(len(j))
    return Places(), Places(j, inverse)


class Mixes(NamedTuple):
    """Vectors a and b of V, mixed with these weights; the rest is known of unit vectors only.

    inverse: 1 / |V|.      cos: of the parents.
    """

    a: Places
    b: Places
    weight_a: Floats
    weight_b: Floats
    inverse: Floats
    V_a: Floats
    V_b: Floats
    inverse_a: Floats
    inverse_b: Floats
    cos: Floats

    def lengths_back(self, V: Tensor, along: Floats, shrink: Floats) -> Tensor:
        """The gradient of V through its lengths and those of the mixes.

        along, shrink: the sums of logit x gradient over each vector, and over each mix. Logits fall
        as 1 / length; see `fused_mixing.Mix.cos_back` for the length of a mix.
        """
        shrink = shrink * self.weight_a * self.weight_b
        asked = shrink * self.cos
        along = along - self.a.sums(asked, len(V)) - self.b.sums(asked, len(V))
        along *= -self.inverse
        along *= self.inverse
        shrink *= -self.inverse_a
        shrink *= self.inverse_b
        d_V = V * torch.from_numpy(along.astype(shrink.dtype, copy=False))[:, None]
        self.a.add(d_V, self.V_b, shrink)
        self.b.add(d_V, self.V_a, shrink)
        return d_V


def _mixes(V: Floats, a: Places, b: Places, share: Share, normalized: bool) -> Mixes:
    if not normalized:
        assert b.rows is not None
        weight = np.full(len(b.rows), share, V.dtype)
        return Mixes(a, b, weight, 1 - weight, *[weight] * 6)
    inverse = 1 / np.maximum(np.sqrt(_dots(V, V)), V.dtype.type(EPS))
    V_a, V_b, inverse_a, inverse_b = a.of(V), b.of(V), a.of(inverse), b.of(inverse)
    cos = _dots(V_a, V_b)
    cos *= inverse_a
    cos *= inverse_b
    other = 1 - share
    square = (cos + 1) * (2 * share * other)
    square += (share - other) ** 2
    one_over = 1 / np.sqrt(np.maximum(square, LEAST[V.dtype]))
    weight_a, weight_b = one_over * share, one_over * other
    return Mixes(a, b, weight_a, weight_b, inverse, V_a, V_b, inverse_a, inverse_b, cos)


def _shares(draw: Draw, dtype: np.dtype[Any]) -> tuple[Share, Share]:
    """lam of each pair and of each synthetic class; one number, if it is the same for all."""
    if draw.lam.dim() == 0:
        return (lam := draw.lam.item()), lam
    return draw.lam.numpy().astype(dtype), draw.class_shares[0].numpy().astype(dtype)


def _dots(a: Floats, b: Floats) -> Floats:
    """The products of rows with rows."""
    if hasattr(np, "vecdot"):  # numpy 2: half the time
        return np.vecdot(a, b)
    return np.einsum("rk,rk->r", a, b)


def _along_rows(family: Rows, M: Floats, own: Ints) -> tuple[float, Floats, Floats]:
    """The softmax family's loss, D and factors: see `fused_families.Rows`."""
    at = own + np.arange(0, M.size, M.shape[1])
    hard, slope, top = M.reshape(-1)[at], None, None
    if family.margin is not None:
        s = torch.from_numpy(hard / M.dtype.type(family.scale))
        hard = family.margin.harder(s).numpy() * M.dtype.type(family.scale)
        slope = family.margin.harder_slope(s).numpy()
    if family.normalized and family.scale <= BOUND:
        E, e = np.exp(M), np.exp(hard)
    else:
        top = np.maximum(M.max(axis=1), hard)
        E, e = np.exp(M - top[:, None]), np.exp(hard - top)
    E.reshape(-1)[at] = 0.0
    others = _dots(E, np.ones((1, E.shape[1]), E.dtype))
    total = others + e
    losses = np.log(total) - hard
    if top is not None:
        losses += top
    E.reshape(-1)[at] = -others if slope is None else -others * slope
    return float(losses.sum()) / len(own), E, 1 / (total * len(own))


def _along_columns(family: Columns, M: Floats, own: Ints) -> tuple[float, Floats, Floats]:
    """Proxy-anchor's loss, D and factors: see `fused_families.Columns`."""
    at = own + np.arange(0, M.size, M.shape[1])
    classes, ahead = M.shape[1], family.scale * family.margin
    flat = M.reshape(-1)
    mine = flat[at]
    pull = ahead - mine
    top, strain = np.zeros(classes, M.dtype), np.zeros(classes, M.dtype)
    if not family.bounded:  # the largest of a column's strangers, and of its own
        flat[at] = -np.inf
        np.maximum(M.max(axis=0), -ahead, out=top)
        flat[at] = mine
        np.maximum.at(strain, own, pull)
    E = np.exp(M) if family.bounded else np.exp(M - top)
    E.reshape(-1)[at] = 0.0  # may be infinite before
    total = E.sum(axis=0) + np.exp(-ahead - top)
    E *= 1 / (total * classes)
    e = np.exp(pull - strain[own])
    whole = np.bincount(own, e, classes) + np.exp(-strain)
    present = np.count_nonzero(np.bincount(own, minlength=classes))
    E.reshape(-1)[at] = -e / (whole[own] * present)
    push = float((np.log(total) + top).mean()) + ahead
    loss = push + float((np.log(whole) + strain).sum()) / present
    return loss, E, np.ones(len(M), M.dtype)
