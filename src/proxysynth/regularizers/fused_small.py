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

from proxysynth.losses.similarity import EPS
from proxysynth.regularizers.fused_families import BOUND, Columns, Family, Rows
from proxysynth.regularizers.second_gradient import Again, again_if_asked
from proxysynth.regularizers.synthesis import Draw, floor

SMALL = 2**17
"""Logits, synthetic ones included, up to which one thread of numpy is quicker than torch."""

LEAST = {
    np.dtype(np.float32): floor(torch.float32) ** 2,
    np.dtype(np.float64): floor(torch.float64) ** 2,
}
"""The square of the least length that a mix has a direction with."""

Floats = NDArray[Any]
Ints = NDArray[np.int64]
Share = Floats | float


def is_small(x: Tensor, p: Tensor, draw: Draw) -> bool:
    """Whether this module serves the step, and is the quicker."""
    rows, columns = x.shape[0] + draw.i.shape[0], p.shape[0] + draw.first.shape[0]
    return (
        rows * columns <= SMALL
        and x.device.type == "cpu"
        and x.dtype == p.dtype
        and x.dtype in (torch.float32, torch.float64)
    )


class FusedSmall(torch.autograd.Function):
    """See `fused`."""

    @staticmethod
    @np.errstate(all="ignore")  # what is not finite shows in the loss
    def forward(
        ctx: Any, x: Tensor, p: Tensor, y: Tensor, draw: Draw, family: Family, again: Again
    ) -> Tensor:
        X, P, labels = x.detach().numpy(), p.detach().numpy(), y.numpy()
        rows, columns = _mixes(draw, X, P, labels, family.normalized)
        n, c, m, u = len(X), len(P), len(rows.b), len(columns.b)

        M = np.empty((n + m, c + u), X.dtype)
        originals, L, T = M[:n], M[:n, :c], M[n:]
        torch.mm(x, p.t(), out=torch.from_numpy(L))
        unit = None
        if family.normalized:
            unit = rows.inverse[:, None] * (columns.inverse * X.dtype.type(family.scale))
            L *= unit
        blend = np.zeros((c, u), X.dtype)  # of which classes each synthetic one is made
        each = np.arange(u)
        blend[columns.a, each], blend[columns.b, each] = columns.weight_a, columns.weight_b
        torch.mm(torch.from_numpy(L), torch.from_numpy(blend), out=torch.from_numpy(M[:n, c:]))
        np.multiply(_rows(originals, rows.a), rows.weight_a[:, None], out=T)
        other = originals.take(rows.b, axis=0)
        other *= rows.weight_b[:, None]
        T += other

        own = np.empty(n + m, np.int64)
        own[:n] = labels
        np.add(draw.target.numpy(), c, out=own[n:])
        along = _along_rows if isinstance(family, Rows) else _along_columns
        value, D, factor = along(family, M, own)  # type: ignore[arg-type]
        ctx.save_for_backward(x, p)
        ctx.rest = (rows, columns, M, D, factor, unit, blend)
        ctx.again = (again, draw, y)
        return torch.from_numpy(np.array(value, X.dtype))

    @staticmethod
    @again_if_asked
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p = ctx.saved_tensors
        rows, columns, M, D, factor, unit, blend = ctx.rest
        n, c = len(x), len(p)
        factor = factor * grads[0].item()

        d_originals, d_T = D[:n] * factor[:n, None], D[n:]
        weight_a, weight_b = rows.weight_a * factor[n:], rows.weight_b * factor[n:]
        rows.add(torch.from_numpy(d_originals), d_T, weight_a, d_T, weight_b)
        d_L, d_G = d_originals[:, :c], d_originals[:, c:]
        by_L = torch.from_numpy(d_L)
        by_L.addmm_(torch.from_numpy(d_G), torch.from_numpy(blend).t())
        if unit is None:
            return by_L @ p, by_L.t() @ x, None, None, None, None

        answered = d_originals * M[:n]
        of_columns = answered.sum(axis=0)
        of_rows = answered[:, :c].sum(axis=1)
        d_x = rows.lengths_back(x, of_rows, _dots(d_T, M[n:]) * factor[n:])
        d_p = columns.lengths_back(p, of_columns[:c], of_columns[c:])
        d_L *= unit
        return d_x.addmm_(by_L, p), d_p.addmm_(by_L.t(), x), None, None, None, None


class Mixes(NamedTuple):
    """Vectors a and b of V, mixed with these weights; the rest is known of unit vectors only.

    a: None stands for 0, 1, 2, ... to the last.
    turn: where it is known, b[turn] is a, so that what goes to b can be brought in order and go
        to a with the rest.
    inverse: 1 / |V|.      cos: of the parents.
    """

    a: Ints | None
    b: Ints
    turn: Ints | None
    weight_a: Floats
    weight_b: Floats
    inverse: Floats
    V_a: Floats
    V_b: Floats
    inverse_a: Floats
    inverse_b: Floats
    cos: Floats

    def add(
        self, to: Tensor, to_a: Floats, weight_a: Floats, to_b: Floats, weight_b: Floats
    ) -> None:
        """Adds to_a, rows times weights, to the rows a of `to`, and to_b to the rows b."""
        if self.turn is not None:
            to_b, weight_b = to_b.take(self.turn, axis=0), weight_b[self.turn]
        a, b, *weights = (torch.from_numpy(v) for v in (to_a, to_b, weight_a, weight_b))
        of_a, of_b = (weight[:, None] for weight in weights)
        if self.turn is not None and self.a is None:
            to.addcmul_(a, of_a).addcmul_(b, of_b)
        elif self.turn is not None:
            to.index_add_(0, torch.from_numpy(self.a), (a * of_a).addcmul_(b, of_b))
        else:
            to.index_add_(0, torch.from_numpy(self.a), a * of_a)
            to.index_add_(0, torch.from_numpy(self.b), b * of_b)

    def sums(self, values: Floats, n: int) -> Floats:
        """For each of n vectors the sum of the values of mixes it is a parent of."""
        if self.turn is None:
            assert self.a is not None
            return np.bincount(self.a, values, n) + np.bincount(self.b, values, n)
        values = values + values[self.turn]
        return values if self.a is None else np.bincount(self.a, values, n)

    def lengths_back(self, V: Tensor, along: Floats, shrink: Floats) -> Tensor:
        """The gradient of V through its lengths and those of the mixes.

        along, shrink: the sums of logit x gradient over each vector, and over each mix. Logits fall
        as 1 / length; see `fused_mixing.Mix.cos_back` for the length of a mix.
        """
        shrink = shrink * self.weight_a * self.weight_b
        along = along - self.sums(shrink * self.cos, len(self.inverse))
        along *= -self.inverse
        along *= self.inverse
        shrink *= -self.inverse_a
        shrink *= self.inverse_b
        d_V = V * torch.from_numpy(along.astype(shrink.dtype, copy=False))[:, None]
        self.add(d_V, self.V_b, shrink, self.V_a, shrink)
        return d_V


def _mixes(draw: Draw, X: Floats, P: Floats, y: Ints, normalized: bool) -> tuple[Mixes, Mixes]:
    """Of the embeddings, and of the proxies."""
    i, j, turn, turn_of_class = None, draw.j.numpy(), None, None
    if draw.in_order:
        turn = np.empty_like(j)
        turn[j] = np.arange(len(j))
    else:
        i = draw.i.numpy()
    share: Share = draw.lam.item() if draw.lam.dim() == 0 else draw.lam.numpy().astype(X.dtype)
    rows = _mixed(X, i, j, turn, share, normalized)
    a, b = _rows(y, i), y[j]
    if draw.first.shape[0] < len(j):
        made = draw.first.numpy()
        a, b = a[made], b[made]
        share = share if isinstance(share, float) else share[made]
    else:
        turn_of_class = turn
    return rows, _mixed(P, a, b, turn_of_class, share, normalized)


def _mixed(
    V: Floats, a: Ints | None, b: Ints, turn: Ints | None, share: Share, normalized: bool
) -> Mixes:
    if not normalized:
        weight = np.full(len(b), share, V.dtype)
        return Mixes(a, b, turn, weight, 1 - weight, *[weight] * 6)
    inverse = 1 / np.maximum(np.sqrt(_dots(V, V)), V.dtype.type(EPS))
    V_a, V_b, inverse_a, inverse_b = _rows(V, a), V.take(b, axis=0), _rows(inverse, a), inverse[b]
    cos = _dots(V_a, V_b)
    cos *= inverse_a
    cos *= inverse_b
    other = 1 - share
    square = (cos + 1) * (2 * share * other)
    square += (share - other) ** 2
    gone = square <= LEAST[V.dtype]  # see `one_over_length`
    one_over = 1 / np.sqrt(square)
    one_over[gone] = 0.0
    weights = (one_over * share, one_over * other)
    return Mixes(a, b, turn, *weights, inverse, V_a, V_b, inverse_a, inverse_b, cos)


def _rows(V: Floats, index: Ints | None) -> Floats:
    return V if index is None else V.take(index, axis=0)


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
        E = np.exp(M)
        e = E.reshape(-1)[at] if slope is None else np.exp(hard)
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
