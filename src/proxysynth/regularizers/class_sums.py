"""The fast path: a loss from sums over blocks of classes, as one autograd function.

One n x c product forward, two backward, and no copy of the proxies. Only the logits are kept for
the backward pass; where even they are too many, their product is computed twice. All logits are in
base 2, log2(e) scale similarity, because torch computes exp2 faster than exp on a CPU.

    L  (n, b)      embeddings x a block of b classes
    K  (n, n)      own classes x embeddings: columns y of L, transposed
    G  (u, n)      synthetic classes x embeddings: rows of K, mixed
    W  (n, w)      a block: L, and beside that of the last block G transposed
    Z  (r, w)      rows of W (originals), then mixes of them (synthetics), as far as they take part

Mixing is linear, so every logit of a synthetic is a mix of two that exist already, divided by the
length of the mixed vector.

A loss declares in its own file (`ClassSums`) whether it sums along rows or columns and what it
makes of the sums. With D the gradient of the logits scale S, S = x^ . p^, a proxy's gradient is

    d p_c = scale / |p_c|  sum_r D_rc x^_r   -   scale (sum_r D_rc S_rc) p_c / |p_c|^2

Processes that each hold a part of the classes reduce the sums, K and the embeddings' gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from proxysynth.losses.functional import EPS, at_least_float32, class_sums_of
from proxysynth.regularizers.mixing import Mix, PairMatrix
from proxysynth.regularizers.pairs import Draw
from proxysynth.values import check_integers

LOG2E, LN2 = math.log2(math.e), math.log(2.0)

BOUND = 40.0
"""Cosines times a scale up to this are not shifted: exp(80) and exp(-80) are both float32."""

CACHE = 2**17
"""Logits per block on a CPU: half a megabyte, so that passes over a block stay in its cache."""

LAUNCH = 2**24
"""Logits per block on an accelerator, where starting a kernel costs more than memory does."""

LARGE = 2**27
"""Logits kept for the backward pass, half a gigabyte of float32; more are computed twice."""

ALL = slice(None)

Function = TypeVar("Function", bound=Callable[..., Any])


def outside_graphs(function: Function) -> Function:
    """The function as torch.compile should see it: a call between two graphs, never traced.

    torch's decorator for this costs as much as a small loss on every plain call, so it is applied
    only while compiling.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


def _without_autocast(kind: str) -> AbstractContextManager[Any]:
    enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if enabled else nullcontext()


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor, loss: LossFromSums) -> Tensor:
        value, kept = loss.forward(x, p, any(ctx.needs_input_grad))
        ctx.save_for_backward(x, p, kept)  # which frees them after the backward pass
        ctx.loss = loss
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p, kept = ctx.saved_tensors
        if not torch.is_grad_enabled():
            with _without_autocast(x.device.type):
                return *ctx.loss.gradients(x, p, kept, grads[0]), None
        # create_graph=True: the gradient needs a graph of its own
        loss, needed = ctx.loss.differentiable, ctx.needs_input_grad
        if loss is None:
            raise RuntimeError(
                "the gradient of a loss over blocks or shards of the classes cannot be "
                "differentiated again: omit create_graph=True, or call the loss itself"
            )
        wanted = [tensor for tensor, need in zip((x, p), needed, strict=False) if need]
        found = iter(torch.autograd.grad(loss(x, p), wanted, grads[0], create_graph=True))
        return tuple(next(found) if need else None for need in needed)


class _Block(NamedTuple):
    """A range of classes, and where the logits of the embeddings' own classes are."""

    part: slice  # its rows of p, the columns of L
    places: slice  # those of W, with the synthetic classes after the last row of p
    batch: Tensor | slice  # the embeddings with their own class in L
    columns: Tensor  # the column of that class
    rows: Tensor | slice  # the rows of Z with their own class in this block
    own: Tensor  # the position of that logit in Z, read row by row

    @property
    def synthetic(self) -> bool:
        """Whether G is beside L."""
        return self.places.stop > self.part.stop


@dataclass(eq=False)
class LossFromSums:
    """One evaluation of a loss, called with x and p.

    Half precision (that of x and p, or autocast's) is used for the three products only.

    Args:
        loss: a loss that declares `class_sums`, or `ProxySynthesis` over one.
        y: (n,) the row of p that is each embedding's own proxy; -1 if another process holds it.
        draw: the pairs to mix; None for none.
        labels: (n,) classes of the embeddings among all processes; None: `y`.
        classes: original classes that take part, in all processes; None: the rows of p.
        group: of the processes that each hold a part of the classes; None: there is one process.
        block: classes per block; None chooses.
        keep: whether the logits are kept for the backward pass; None: unless they are too many.
        differentiable: the same loss of (x, p) in torch's own operations, used when the gradient
            itself is to be differentiated; None refuses that.
    """

    loss: Any
    y: Tensor
    draw: Draw | None = None
    labels: Tensor | None = None
    classes: int | None = None
    group: Any = None
    block: int | None = None
    keep: bool | None = None
    differentiable: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.block is not None:
            check_integers(self, block=1)
        draw, plain = self.draw, self.loss
        if class_sums_of(plain) is None:  # it is ProxySynthesis
            plain = getattr(plain, "loss", plain)
        sums = class_sums_of(plain)
        if sums is None:
            raise ValueError(
                f"{type(plain).__name__} declares no class_sums: use a softmax (with or without a "
                "margin) or Proxy-anchor, or another path"
            )
        self.sums, self.normalized = sums, plain.normalized
        self.original_rows = draw is None or self.loss.embeddings != "synthetic"
        self.synthetic_rows = draw is not None and self.loss.embeddings != "original"
        self.original_classes = draw is None or self.loss.proxies != "synthetic"

    def __call__(self, x: Tensor, p: Tensor) -> Tensor:
        if not self.original_classes:  # only the batch's own proxies are of use
            held = self.y >= 0
            present = self.y[held].unique()
            self.y = torch.where(held, torch.searchsorted(present, self.y), -1)
            p = p.index_select(0, present)
        apply: Callable[..., Tensor] = outside_graphs(_Function.apply)
        kind = x.device.type
        autocast = torch.is_autocast_enabled(kind)
        self.product_dtype = torch.get_autocast_dtype(kind) if autocast else x.dtype
        with _without_autocast(kind):
            return apply(x, p, self)

    def forward(self, x: Tensor, p: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits if they are kept."""
        sums, draw, normalized = self.sums, self.draw, self.normalized
        X, n, c = at_least_float32(x), len(x), len(p)
        if normalized:
            self.inverse_x = _inverse_norms(X)
            X = X * self.inverse_x[:, None]
            self.inverse_p = X.new_empty(c)
        self.X = X
        self.rows = None
        # One process fills `new` tensors; of several, each fills a part, and the parts are summed.
        new = X.new_empty if self.group is None else X.new_zeros
        r = n if self.original_rows else 0
        u = 0
        if draw is not None:
            u = len(draw.first)
            pairs = PairMatrix(draw.i, draw.j, draw.lam, X)
            K = new((n, n))
            if self.synthetic_rows:
                r += len(draw.i)
                vectors = X if normalized else None
                self.rows = Mix(pairs, vectors, self.product_dtype, below=self.original_rows)
        self.blocks = self._blocks(c, u)
        kept = None
        if keep and (n * c <= LARGE if self.keep is None else self.keep):
            kept = X.new_empty(n * (c + u))
        total = (_RowSums if sums.along == "rows" else _ColumnSums)(self, r, c + u)
        own = new((r,))  # logits of the own classes
        for block in self.blocks:
            W, L = self._product(block, p, kept, first_time=True)
            if draw is not None:
                K = _put(K, block.batch, L.t().index_select(0, block.columns))
                if block.synthetic:
                    self.Q = self._own_proxies(p) if normalized else X[:0]
                    if self.group is not None:
                        own, K, self.Q = self._sum(own, K, self.Q)
                        total.reduce()
                    if u < len(draw.i):  # some pairs share a class
                        pairs = PairMatrix(*draw.class_pairs, X)
                    self.columns = Mix(pairs, self.Q if normalized else None, self.product_dtype)
                    self.G = self.columns(K)
                    W[:, L.shape[1] :] = self.G.t()
            Z = self._mixed(W, L)
            Z = Z.clone() if Z is W else Z
            own = _put(own, block.rows, _hide(Z, block.own))
            total.add(block, Z)
        if self.group is not None and draw is None:
            (own,) = self._sum(own)
            total.reduce()

        labels = self.y if self.labels is None else self.labels
        classes = (c if self.classes is None else self.classes) if self.original_classes else 0
        if draw is not None and self.rows is not None and sums.along == "columns":
            made = labels.max() + 1 + draw.target  # along rows no labels are needed
            labels = torch.cat((labels, made)) if self.original_rows else made
        similarity = own.mul_(LN2 / sums.scale)
        value, own_slope, slope = sums.value(similarity, total.result(), labels, classes + u)
        total.prepare(slope)
        self.total, self.own_slope = total, own_slope / sums.scale
        return value, kept

    def gradients(
        self, x: Tensor, p: Tensor, kept: Tensor | None, grad: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of x and p."""
        X, scale, normalized, rows = self.X, self.sums.scale, self.normalized, self.rows
        d_K = d_Q = None
        # By the logarithm of the length of every mixed row: its logits fall as 1 / length.
        d_length = X.new_zeros(0 if rows is None else len(rows.weights))
        d_X = torch.empty_like(X) if self.blocks else torch.zeros_like(X)
        d_p = torch.empty_like(p)
        right = X if normalized else X * grad
        down = grad * -LN2
        for block in reversed(self.blocks):  # the synthetic classes come first: they give d_K
            W, L = self._product(block, p, kept)
            p_b, d_p_b, b = p[block.part], d_p[block.part], L.shape[1]
            Z = self._mixed(W, L)
            D = self.total.slopes(block, Z)
            D.view(-1).scatter_(0, block.own, self.own_slope[block.rows])
            if rows is not None and normalized:
                here = (D[rows.first :] * Z[rows.first :]).sum(dim=1)
                once = self.group is not None and block.synthetic  # the same in every process
                d_length += here / dist.get_world_size(self.group) if once else here
            d_W = D if rows is None else rows.back(D)
            d_L, d_G = d_W[:, :b], d_W[:, b:]
            if block.synthetic:
                d_K = self.columns.back(d_G.t().contiguous())
                if normalized:
                    d_Q = self.columns.length_gradient((d_G * W[:, b:]).sum(dim=0).mul_(down))
            if d_K is not None:
                d_L.index_add_(1, block.columns, d_K[block.batch].t())
            if normalized:
                inverse = self.inverse_p[block.part]
                step = inverse * grad
                radial = (d_L * L).sum(dim=0).mul_(inverse).mul_(step)
                d_L *= step
                torch.mul(p_b, radial.to(p.dtype)[:, None], out=d_p_b)
            self._multiply(d_L.t(), right, d_p_b, scale, -LN2 if normalized else 0.0)
            self._multiply(d_L, p_b, d_X, scale, 0.0 if block is self.blocks[-1] else 1.0)

        if self.group is not None:
            d_X, d_length = self._sum(d_X, d_length)
        if not normalized:
            return d_X.mul_(grad).to(x.dtype), d_p
        if rows is not None:
            d_X += rows.length_gradient(d_length.mul_(down))
        if d_Q is not None:
            held, y = self._held()
            d_own = _through_norm(d_Q[held], self.Q[held], self.inverse_p.index_select(0, y))
            d_p.index_add_(0, y, d_own.to(p.dtype))
        return _through_norm(d_X, X, self.inverse_x).to(x.dtype), d_p

    def _blocks(self, c: int, u: int) -> list[_Block]:
        """The c classes in blocks of equal size; the u synthetic classes are in the last."""
        y, own = self.y, self.y if self.original_rows else self.y[:0]
        if self.draw is not None and self.synthetic_rows:
            own = torch.cat((own, self.draw.target + c))
        size = self.block or max(256, (CACHE if y.is_cpu else LAUNCH) // len(y))
        count = max(1, round(c / size))
        if count == 1 and self.group is None:
            places = torch.arange(0, len(own) * (c + u), c + u, device=y.device).add_(own)
            return [_Block(slice(0, c), slice(0, c + u), ALL, y, ALL, places)]
        starts = [c * number // count for number in range(count)]
        if self.group is not None and u > 0:
            starts.append(c)  # G needs sums over all processes: it is a block of its own
        stops, ends = [*starts[1:], c], [*starts[1:], c + u]
        blocks = []
        for start, stop, end, (batch, labels), (rows, places) in zip(
            starts, stops, ends, _split(y, starts, c), _split(own, starts, c + u), strict=True
        ):
            if start < end:  # else this process holds no class that takes part
                at = torch.add(places - start, rows, alpha=end - start)
                part, wide = slice(start, stop), slice(start, end)
                blocks.append(_Block(part, wide, batch, labels - start, rows, at))
        return blocks

    def _product(
        self, block: _Block, p: Tensor, kept: Tensor | None, first_time: bool = False
    ) -> tuple[Tensor, Tensor]:
        """W and L, from memory if they are there; the first time without G."""
        X, part, places = self.X, block.part, block.places
        n, b, w = len(X), part.stop - part.start, places.stop - places.start
        if kept is None:
            W = X.new_empty(n, w)
        else:
            W = kept[n * places.start : n * places.stop].view(n, w)
        L = W[:, :b]
        if kept is not None and not first_time:
            return W, L
        p_b = p[part]
        self._multiply(X, p_b.t(), L, self.sums.scale * LOG2E, 0.0)
        if self.normalized:
            inverse = self.inverse_p[part]
            if first_time:
                _inverse_norms(p_b, inverse)
            L.mul_(inverse)
        if block.synthetic and not first_time:
            W[:, b:] = self.G.t()
        return W, L

    def _multiply(self, a: Tensor, b: Tensor, out: Tensor, scale: float, beta: float) -> None:
        """out = beta out + scale a b."""
        low = self.product_dtype
        if out.dtype == a.dtype == b.dtype == low:
            torch.addmm(out, a, b, beta=beta, alpha=scale, out=out)
            return
        made = (a.to(low) @ b.to(low)).to(out.dtype).mul_(scale)
        out.copy_(made) if beta == 0 else out.mul_(beta).add_(made)

    def _mixed(self, W: Tensor, L: Tensor) -> Tensor:
        """Z."""
        Z = W if self.rows is None else self.rows(W)
        if not self.original_classes:
            Z[:, : L.shape[1]] = _hidden(Z)
        return Z

    def _held(self) -> tuple[Tensor | slice, Tensor]:
        """The embeddings whose own proxies this process holds, and the rows of p these are."""
        held = ALL if self.group is None else (self.y >= 0).nonzero()[:, 0]
        return held, self.y[held]

    def _own_proxies(self, p: Tensor) -> Tensor:
        """Q, the batch's own proxies as unit vectors; 0 where another process holds them."""
        held, y = self._held()
        found = p.index_select(0, y).to(self.X.dtype)
        found *= self.inverse_p.index_select(0, y)[:, None]
        return found if held is ALL else _put(torch.zeros_like(self.X), held, found)

    def _sum(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors, each summed over all processes."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


class _RowSums:
    """log sum exp over the negatives of every row, block by block."""

    def __init__(self, of: LossFromSums, count: int, width: int) -> None:
        # A running maximum costs a pass over the logits; cosines at usual scales need none.
        self.bounded, self.group = of.normalized and of.sums.scale <= BOUND, of.group
        self.sum = of.X.new_zeros(count)
        self.top = self.sum if self.bounded else torch.full_like(self.sum, _hidden(self.sum) / 2)

    def add(self, block: _Block, Z: Tensor) -> None:
        """Add a block, in which the logits of own classes are hidden; Z is overwritten."""
        if not self.bounded:
            self._shift_to(torch.maximum(self.top, Z.amax(dim=1)))
            Z -= self.top[:, None]
        self.sum += Z.exp2_().sum(dim=1)

    def _shift_to(self, top: Tensor) -> None:
        self.sum *= (self.top - top).exp2_()
        self.top = top

    def reduce(self) -> None:
        """Sum over processes."""
        if not self.bounded:
            top = self.top.clone()
            dist.all_reduce(top, dist.ReduceOp.MAX, group=self.group)
            self._shift_to(top)
        dist.all_reduce(self.sum, group=self.group)

    def result(self) -> Tensor:
        logs = self.sum.log()
        return logs if self.bounded else logs.add_(self.top, alpha=LN2)

    def prepare(self, slope: Tensor) -> None:
        """For `slopes`: exp2(z + shift) is a logit's slope; without negatives it is 0."""
        shift = (slope / self.sum).nan_to_num_(nan=0.0).log2_()
        self.shift = (shift if self.bounded else shift.sub_(self.top))[:, None]

    def slopes(self, block: _Block, Z: Tensor) -> Tensor:
        return torch.add(Z, self.shift).exp2_()


class _ColumnSums:
    """The sum over classes of log(1 + sum of exp(logit + offset) over a column's negatives)."""

    def __init__(self, of: LossFromSums, count: int, width: int) -> None:
        self.offset, self.group = of.sums.offset, of.group
        self.bounded = of.normalized and of.sums.scale + self.offset <= BOUND
        self.sum = of.X.new_zeros(())
        # One tensor for all blocks: many small ones would keep the memory freed between them.
        self.logs = of.X.new_empty(width)

    def add(self, block: _Block, Z: Tensor) -> None:
        logs, one = self.logs[block.places], -self.offset * LOG2E
        if self.bounded:
            torch.sum(Z.exp2_(), dim=0, out=logs).add_(2.0**one).log2_()
        else:
            top = Z.amax(dim=0).clamp_min_(one)
            torch.sum(Z.sub_(top).exp2_(), dim=0, out=logs)
            logs.add_((one - top).exp2_()).log2_().add_(top)
        self.sum += logs.sum().mul_(LN2).add_(self.offset * len(logs))

    def reduce(self) -> None:
        dist.all_reduce(self.sum, group=self.group)

    def result(self) -> Tensor:
        return self.sum.clone()

    def prepare(self, slope: Tensor) -> None:
        self.shift = slope.log2()

    def slopes(self, block: _Block, Z: Tensor) -> Tensor:
        return torch.sub(Z, self.logs[block.places] - self.shift).exp2_()


def _split(labels: Tensor, starts: list[int], end: int) -> list[tuple[Tensor, Tensor]]:
    """The positions of the labels in each range up to the next start, and these labels."""
    ordered, order = labels.sort()
    edges = torch.tensor([*starts, end], device=labels.device)
    cuts = torch.searchsorted(ordered, edges).tolist()
    return [(order[a:b], ordered[a:b]) for a, b in pairwise(cuts)]


def _put(rows: Tensor, where: Tensor | slice, values: Tensor) -> Tensor:
    """The rows with these values at some of them, or the values if they are for all."""
    return values if isinstance(where, slice) else rows.index_copy_(0, where, values)


def _hidden(Z: Tensor) -> float:
    """A logit whose exponential is 0, also after a shift."""
    return torch.finfo(Z.dtype).min / 4


def _hide(Z: Tensor, places: Tensor) -> Tensor:
    """The logits at these places, which are hidden."""
    flat = Z.view(-1)
    found = flat.index_select(0, places)
    flat.index_fill_(0, places, _hidden(Z))
    return found


def _inverse_norms(V: Tensor, out: Tensor | None = None) -> Tensor:
    dtype = None if out is None else out.dtype
    return torch.linalg.vector_norm(V, dim=1, dtype=dtype, out=out).clamp_min_(EPS).reciprocal_()


def _through_norm(d_unit: Tensor, unit: Tensor, inverse_norm: Tensor) -> Tensor:
    """The gradient of v from that of v / |v|: the part at right angles to v, divided by |v|."""
    d_unit.addcmul_(unit, (d_unit * unit).sum(dim=1)[:, None], value=-1)
    return d_unit.mul_(inverse_norm[:, None])
