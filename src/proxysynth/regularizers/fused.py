"""Proxy Synthesis without a second pass over the proxies: one hand-written autograd function.

One n x c product forward, two backward, no c x d copy: neither normalised nor synthetic proxies
are ever laid beside the originals. All are logits in base 2, log2(e) x scale x similarity:

    L   (n, c)  originals x originals: the product, columns divided by |p|
    T   (m, c)  synthetic rows: rows i and j of L mixed
    G   (n, u)  synthetic columns: columns y_i and y_j of L mixed
    C   (m, u)  synthetic rows of G

The classes are gone through in blocks that fit the cache, since most of the work besides the
products is passing over these numbers. A *family* (softmax along rows, Proxy-anchor along columns)
turns them into a loss; everything else is linear and shared. With S = x^ . p^ and dS the gradient
of scale S, the gradient of a proxy is

    d p_c = scale / |p_c|  sum_r dS_rc x^_r   -   scale (sum_r dS_rc S_rc) p_c / |p_c|^2

In the code d_L and its like are gradients of natural logits: no base matters to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from proxysynth.losses.similarity import EPS, at_least_float32
from proxysynth.regularizers.fused_families import LN2, LOG2E, Family, Own
from proxysynth.regularizers.fused_mixing import Mix, Share
from proxysynth.regularizers.fused_small import FusedSmall, is_small
from proxysynth.regularizers.second_gradient import Again, again_if_asked
from proxysynth.regularizers.synthesis import Draw

CACHE = 2**18
"""Logits per block on a CPU: about a megabyte, so that a block's many passes stay in its cache."""

STRIP = 1024
"""Classes per product on a CPU: with more, the packed operands outgrow its cache."""

LAUNCH = 2**24
"""Logits per block on an accelerator, where starting a kernel costs more than memory does."""


Function = TypeVar("Function", bound=Callable[..., Any])


def outside_graphs(function: Function) -> Function:
    """The function as torch.compile should see it: a call between two graphs, never traced.

    The decorator torch has for this costs as much as a small loss on every plain call, so it is
    put on only while compiling.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


def fused(family: Family, x: Tensor, y: Tensor, p: Tensor, draw: Draw, again: Again) -> Tensor:
    """The loss of originals and synthetics together, with exact gradients to x and p.

    Half precision (its own, or autocast's) is used for the three products only. Where the gradient
    itself is to be differentiated, it is that of `again`.
    """
    apply: Callable[..., Tensor] = outside_graphs(_Fused.apply)
    if not torch.is_autocast_enabled(x.device.type):
        if is_small(x, p, draw):
            return outside_graphs(FusedSmall.apply)(x, p, y, draw, family, again)
        return apply(x, p, y, draw, family, again, x.dtype)
    low = torch.get_autocast_dtype(x.device.type)
    with torch.autocast(x.device.type, enabled=False):
        return apply(x, p, y, draw, family, again, low)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        p: Tensor,
        y: Tensor,
        draw: Draw,
        family: Family,
        again: Again,
        low: torch.dtype,
    ) -> Tensor:
        (n, _), c, u = x.shape, len(p), len(draw.first)
        unit_x, length_x, inverse_p = at_least_float32(x), x, x
        if family.normalized:
            length_x = torch.linalg.vector_norm(unit_x, dim=1, keepdim=True).clamp_min_(EPS)
            unit_x = unit_x / length_x
        share, of_class = _shares(draw, unit_x.dtype)
        pairs, parents = (draw.i, draw.j), draw.class_parents(y)
        if family.normalized:
            rows = Mix.unit(pairs, share, unit_x, None, low, draw.in_order)
        else:
            rows = Mix.raw(pairs, share, unit_x, draw.in_order)

        L = unit_x.new_empty(n, c + u)
        blocks, pieces, inverses = _blocks(y, draw.target, n, c), [], []
        for block in blocks:
            p_b, L_b = p[block.part], L[:, block.part]
            for part in _strips(len(p_b), p.device):
                _product_into(L_b[:, part], unit_x, p_b[part].t(), low)
            if family.normalized:
                inverse = torch.linalg.vector_norm(p_b, dim=1, dtype=unit_x.dtype).clamp_min_(EPS)
                inverses.append(inverse.reciprocal_())
                L_b *= inverse * (family.scale * LOG2E)
            else:
                L_b *= LOG2E
            if block.part.stop == c:
                if family.normalized:
                    inverse_p = inverses[0] if len(blocks) == 1 else torch.cat(inverses)
                    columns = Mix.unit(parents, of_class, p, inverse_p, low)
                else:
                    columns = Mix.raw(parents, of_class, unit_x)
                L[:, c:] = columns.of_columns(L)
            L_b = L[:, block.whole]
            T = rows.of_rows(L_b)
            pieces.append(family.piece(L_b, T, block.own, block.own_synthetic, c + u))

        assert blocks[-1].own_synthetic is not None
        target = blocks[-1].own_synthetic.columns
        own = torch.cat((L.gather(1, y[:, None]), T.gather(1, target[:, None])))[:, 0].mul_(LN2)
        outcome = family.outcome(pieces, own, y, draw.target, c, u)
        ctx.save_for_backward(x, p, L, own, unit_x, length_x, inverse_p)
        ctx.rest = (rows, columns, blocks, pieces, target, outcome, family, low)
        ctx.again = (again, draw, y)
        return outcome.value

    @staticmethod
    @again_if_asked
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p, L, own, unit_x, length_x, inverse_p = ctx.saved_tensors
        rows, columns, blocks, pieces, target, outcome, family, low = ctx.rest
        grad, n, c = grads[0], len(L), len(p)
        own_slope, own_slope_s = outcome.own_slope[:n], outcome.own_slope[n:]

        d_unit_x, d_p = torch.empty_like(unit_x), torch.empty_like(p)
        # The last block first: its synthetic columns end as additions to their parents' columns.
        for position in reversed(range(len(blocks))):
            block, piece = blocks[position], pieces[position]
            if outcome.factors is not None:
                factor = outcome.factors[position]
                d_L = piece.originals * factor[:n, None]
                rows.rows_back(piece.synthetics, factor[n:], d_L)
            else:
                d_L = piece.originals.clone()
                rows.rows_back(piece.synthetics, None, d_L)
                d_L *= piece.factor
            block.own.add(d_L, own_slope)
            if block.own_synthetic is not None:
                rows.own_back(own_slope_s, target, d_L)
                d_G, d_L = d_L[:, -len(columns.index_a) :], d_L[:, : -len(columns.index_a)]
                added = _Additions(columns.columns_back(d_G), blocks)
                if columns.vectors is not None:
                    d_cos = columns.cos_back((d_G * L[:, c:]).sum(dim=0).mul_(LN2))
                    along = _along(columns, d_cos, inverse_p)
            added.to(d_L, position)
            L_b, p_b, d_p_b = L[:, block.part], p[block.part], d_p[block.part]
            if family.normalized:
                inverse = inverse_p[block.part]
                turned = (d_L * L_b).sum(dim=0).mul_(inverse * LN2).mul_(inverse)
                d_L *= inverse * (family.scale * grad)
                turned = along[block.part].sub_(turned).mul_(grad)
                turned = turned.to(p.dtype)[:, None]
                for part in _strips(len(p_b), p.device):
                    torch.mul(p_b[part], turned[part], out=d_p_b[part])
                    _add_product(d_p_b[part], d_L[:, part].t(), unit_x, low)
            else:
                d_L *= grad
                for part in _strips(len(p_b), p.device):
                    _product_into(d_p_b[part], d_L[:, part].t(), unit_x, low)
            if position == len(blocks) - 1:
                _product_into(d_unit_x, d_L, p_b, low)
            else:
                _add_product(d_unit_x, d_L, p_b, low)

        if family.normalized:
            shrink = own_slope_s * own[n:]
            for position, piece in enumerate(pieces):
                if outcome.factors is not None:
                    shrink.addcmul_(piece.shrink, outcome.factors[position][n:])
                else:
                    shrink += piece.shrink
            rows.cosines_back(rows.cos_back(shrink).mul_(grad), d_unit_x)
            lengths = columns.vectors
            d_dots = d_cos.mul_(lengths.inverse_a).mul_(lengths.inverse_b).mul_(grad)
            columns.cosines_back(d_dots.to(p.dtype), d_p)
            # Only what is at right angles to x turns it; this also clears the share of `rows.cos`
            # that lies along the parents.
            d_unit_x.addcmul_(unit_x, (d_unit_x * unit_x).sum(dim=1, keepdim=True), value=-1)
            d_unit_x /= length_x
        return d_unit_x.to(x.dtype), d_p, None, None, None, None, None


def _shares(draw: Draw, dtype: torch.dtype) -> tuple[Share, Share]:
    """lam of each pair and of each synthetic class: plain numbers, where that costs no waiting."""
    if draw.lam.dim() == 0 and draw.lam.device.type == "cpu":
        lam = float(draw.lam)
        return lam, lam
    return draw.shares[0].to(dtype), draw.class_shares[0].to(dtype)


def _along(columns: Mix, d_cos: Tensor, inverse_p: Tensor) -> Tensor:
    """What the gradient of their cosines asks of the parents along themselves, (c,)."""
    along, vectors = torch.zeros_like(inverse_p), columns.vectors
    assert vectors is not None
    asked = d_cos * vectors.cos
    for index, inverse in (
        (columns.index_a, vectors.inverse_a),
        (columns.index_b, vectors.inverse_b),
    ):
        assert inverse is not None
        along.index_add_(0, index, (asked * inverse).mul_(inverse), alpha=-1)
    return along


class Block(NamedTuple):
    """A range of classes, and where own logits stand in it; the last has the synthetic ones too.

    part: the original classes.     whole: with the synthetic classes behind the last of them.
    """

    part: slice
    whole: slice
    own: Own
    own_synthetic: Own | None


def _blocks(y: Tensor, target: Tensor, n: int, c: int) -> list[Block]:
    """The classes in ranges of equal size."""
    size = max(256, (CACHE if y.device.type == "cpu" else LAUNCH) // n)
    if c <= size + size // 2:
        return [Block(slice(0, c), slice(None), Own(None, y), Own(None, c + target))]
    starts = list(range(0, c, size))
    ordered, order = y.sort()
    edges = torch.searchsorted(ordered, torch.tensor([*starts, c], device=y.device)).tolist()
    blocks = []
    for start, low, high in zip(starts, edges, edges[1:], strict=False):
        part = slice(start, min(start + size, c))
        own = Own(order[low:high], ordered[low:high] - start)
        if part.stop < c:
            blocks.append(Block(part, part, own, None))
        else:
            synthetic = Own(None, target + (c - start))
            blocks.append(Block(part, slice(start, None), own, synthetic))
    return blocks


class _Additions:
    """Columns to add to dL, sorted by the block they fall in."""

    def __init__(self, both: list[tuple[Tensor, Tensor]], blocks: list[Block]) -> None:
        self.both = both
        if len(blocks) > 1:
            index = torch.cat([index for index, _ in both])
            self.index, order = index.sort()
            self.parts = torch.cat([parts for _, parts in both], dim=1).index_select(1, order)
            stops = torch.tensor([b.part.stop for b in blocks], device=index.device)
            self.edges = [0, *torch.searchsorted(self.index, stops).tolist()]
            self.index = (
                self.index - torch.bucketize(self.index, stops, right=True) * blocks[0].part.stop
            )

    def to(self, d_L: Tensor, position: int) -> None:
        if not hasattr(self, "edges"):  # all in one block
            for index, parts in self.both:
                d_L.index_add_(1, index, parts)
            return
        here = slice(self.edges[position], self.edges[position + 1])
        d_L.index_add_(1, self.index[here], self.parts[:, here])


def _strips(c: int, device: torch.device) -> list[slice]:
    size = STRIP if device.type == "cpu" else c
    return [slice(at, at + size) for at in range(0, c, size)]


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
