"""Proxy Synthesis at the price of the plain loss: one hand-written autograd function.

One n x c product forward, two backward, no c x d copy: neither normalised nor synthetic proxies
are ever laid beside the originals. All quantities are logits, scale x similarity:

    L   (n, c)  originals x originals: the product, columns divided by |p|
    T   (m, c)  synthetic rows: rows i and j of L mixed, in blocks of classes, never whole
    G   (n, u)  synthetic columns: columns y_i and y_j of L mixed
    C   (m, u)  synthetic rows of G

A *family* (softmax along rows, Proxy-anchor along columns) turns them into a loss; everything else
is linear and shared. With S = x^ . p^ and dL the gradient of L, the classes' gradient is

    d p_c = scale / |p_c|  sum_r dL_rc x^_r   -   (sum_r dL_rc L_rc) p_c / |p_c|^2
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from proxysynth.losses.similarity import EPS, at_least_float32
from proxysynth.regularizers.fused_families import Block, Family
from proxysynth.regularizers.fused_mixing import Mix
from proxysynth.regularizers.synthesis import Draw

CACHE = 2**18
"""Logits per block on a CPU: about a megabyte, so that a block's many passes stay in its cache."""

LAUNCH = 2**24
"""Logits per block on an accelerator, where starting a kernel costs more than memory does."""


Function = TypeVar("Function", bound=Callable[..., Any])


def outside_graphs(function: Function) -> Function:
    """The function as torch.compile should see it: a call between two graphs, never traced.

    The decorator torch has for this costs as much as a small loss on every plain call, so it is
    put on only while compiling.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


def fused(family: Family, x: Tensor, y: Tensor, p: Tensor, draw: Draw) -> Tensor:
    """The loss of originals and synthetics together, with exact gradients to x and p.

    Half precision (its own, or autocast's) is used for the three products only. The gradient itself
    cannot be differentiated again; the reference path can.
    """
    low = x.dtype
    if torch.is_autocast_enabled(x.device.type):
        low = torch.get_autocast_dtype(x.device.type)
    with torch.autocast(x.device.type, enabled=False):
        value: Tensor = outside_graphs(_Fused.apply)(x, p, y, draw, family, low)
    return value


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, p: Tensor, y: Tensor, draw: Draw, family: Family, low: torch.dtype
    ) -> Tensor:
        unit_x, length_x, inverse_p = at_least_float32(x), x, x
        if family.normalized:
            length_x = torch.linalg.vector_norm(unit_x, dim=1, keepdim=True).clamp_min_(EPS)
            unit_x = unit_x / length_x
            inverse_p = torch.linalg.vector_norm(p, dim=1, dtype=unit_x.dtype).clamp_min_(EPS)
            inverse_p = inverse_p.reciprocal_()
        L = _product(unit_x, p.t(), low)
        if family.normalized:
            L *= family.scale * inverse_p

        share, of_class = (s[0].to(unit_x.dtype) for s in (draw.shares, draw.class_shares))
        pairs, parents = (draw.i, draw.j), draw.class_parents(y)
        if family.normalized:
            rows = Mix.unit(pairs, share, unit_x, None, low)
            columns = Mix.unit(parents, of_class, p, inverse_p, low)
        else:
            rows, columns = Mix.raw(pairs, share), Mix.raw(parents, of_class)
        G = columns.of_columns(L)
        C = rows.of_rows(G)
        own = torch.cat((L.gather(1, y[:, None]), C.gather(1, draw.target[:, None])))[:, 0]

        blocks = _blocks(y, *L.shape)
        parts = ((b, L[:, b.start : b.stop]) for b in blocks)
        state = family.reduce(
            ((b, L_b, rows.of_rows(L_b)) for b, L_b in parts),
            (Block(0, G.shape[1], None, draw.target), G, C),
            own,
        )
        ctx.save_for_backward(x, p, L, G, C, unit_x, length_x, inverse_p)
        ctx.rest = (rows, columns, blocks, draw.target, state, family, low)
        return state.value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p, L, G, C, unit_x, length_x, inverse_p = ctx.saved_tensors
        rows, columns, blocks, target, state, family, low = ctx.rest
        grad, n = grads[0], len(L)

        # Synthetic columns first: they end as additions to the parents' columns of dL.
        shift, shift_s = state.shifts(None)
        d_C = (C - shift_s).exp_()
        d_C.scatter_(1, target[:, None], state.own_slope[n:, None])
        d_G = (G - shift).exp_()
        rows.rows_back(d_C, d_G)
        parts, index = columns.columns_back(d_G)
        added = _Additions(parts, index, blocks)
        shrink = (d_C * C).sum(dim=1)
        d_cos, along = _columns_length_back(columns, (d_G * G).sum(dim=0), inverse_p)

        d_unit_x = torch.zeros_like(unit_x)
        d_p = torch.empty_like(p)
        for position, block in enumerate(blocks):
            part = slice(block.start, block.stop)
            L_b, p_b, d_p_b = L[:, part], p[part], d_p[part]
            shift, shift_s = state.shifts(part)
            d_L = (L_b - shift).exp_()
            block.set_own(d_L, state.own_slope[:n])
            T = rows.of_rows(L_b)
            d_T = (T - shift_s).exp_()
            rows.rows_back(d_T, d_L)
            added.to(d_L, position)
            if family.normalized:
                shrink += d_T.mul_(T).sum(dim=1)
                along[part] -= (d_L * L_b).sum(dim=0).mul_(inverse_p[part]).mul_(inverse_p[part])
                d_L *= inverse_p[part] * (family.scale * grad)
                _product_into(d_p_b, d_L.t(), unit_x, low)
                d_p_b.addcmul_(p_b, along[part].mul_(grad).to(p.dtype)[:, None])
            else:
                d_L *= grad
                _product_into(d_p_b, d_L.t(), unit_x, low)
            _add_product(d_unit_x, d_L, p_b, low)

        if family.normalized:
            weight = rows.cos_back(shrink).mul_(grad)[:, None]
            d_unit_x.index_add_(0, rows.index_a, rows.b * weight)
            d_unit_x.index_add_(0, rows.index_b, rows.a * weight)
            weight = d_cos.mul_(columns.inverse_a).mul_(columns.inverse_b).mul_(grad)
            weight = weight.to(p.dtype)[:, None]
            d_p.index_add_(0, columns.index_a, columns.b * weight)
            d_p.index_add_(0, columns.index_b, columns.a * weight)
            # Only what is at right angles to x turns it; this also clears the share of `rows.cos`
            # that lies along the parents.
            d_unit_x.addcmul_(unit_x, (d_unit_x * unit_x).sum(dim=1, keepdim=True), value=-1)
            d_unit_x /= length_x
        return d_unit_x.to(x.dtype), d_p, None, None, None, None


def _columns_length_back(columns: Mix, shrink: Tensor, inverse_p: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of the parents' cosines, and what it asks of each proxy along itself, (c,)."""
    if len(columns.cos) == 0:
        return shrink, shrink
    d_cos = columns.cos_back(shrink)
    along = torch.zeros_like(inverse_p)
    flat = d_cos * columns.cos
    along.index_add_(0, columns.index_a, flat * columns.inverse_a**2, alpha=-1)
    along.index_add_(0, columns.index_b, flat * columns.inverse_b**2, alpha=-1)
    return d_cos, along


def _blocks(y: Tensor, n: int, c: int) -> list[Block]:
    """The classes in ranges of equal size, each with the places of its own logits."""
    size = max(256, (CACHE if y.device.type == "cpu" else LAUNCH) // n)
    if c <= size + size // 2:
        return [Block(0, c, None, y)]
    starts = list(range(0, c, size))
    ordered, order = y.sort()
    edges = torch.searchsorted(ordered, torch.tensor([*starts, c], device=y.device)).tolist()
    return [
        Block(start, min(start + size, c), order[low:high], ordered[low:high] - start)
        for start, low, high in zip(starts, edges, edges[1:], strict=False)
    ]


class _Additions:
    """Columns to add to dL, sorted by the block they fall in."""

    def __init__(self, parts: Tensor, index: Tensor, blocks: list[Block]) -> None:
        self.parts, self.index, self.edges = parts, index, [0, len(index)]
        if len(blocks) > 1:
            self.index, order = index.sort()
            self.parts = parts.index_select(1, order)
            stops = torch.tensor([b.stop for b in blocks], device=index.device)
            self.edges = [0, *torch.searchsorted(self.index, stops).tolist()]
            self.index = (
                self.index - torch.bucketize(self.index, stops, right=True) * blocks[0].stop
            )

    def to(self, d_L: Tensor, position: int) -> None:
        here = slice(self.edges[position], self.edges[position + 1])
        d_L.index_add_(1, self.index[here], self.parts[:, here])


def _product(a: Tensor, b: Tensor, low: torch.dtype) -> Tensor:
    return a @ b if a.dtype == low else (a.to(low) @ b.to(low)).to(a.dtype)


def _product_into(out: Tensor, a: Tensor, b: Tensor, low: torch.dtype) -> None:
    if out.dtype == a.dtype == low:
        torch.mm(a, b, out=out)
    else:
        out.copy_(a.to(low) @ b.to(low))


def _add_product(out: Tensor, a: Tensor, b: Tensor, low: torch.dtype) -> None:
    if a.dtype == b.dtype == low:
        out.addmm_(a, b)
    else:
        out += a.to(low) @ b.to(low)
