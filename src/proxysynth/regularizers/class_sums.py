"""The fast path: a loss from sums over blocks of classes, as one autograd function.

One n x c product forward, two backward, and no copy of the proxies. Only the logits are kept for
the backward pass; where even they are too many, their product is computed twice. All logits are in
base 2, log2(e) scale similarity, because torch computes exp2 faster than exp on a CPU.

    L  (n, b)      embeddings x a block of b classes
    K  (n, n)      own classes x embeddings: columns y of L, transposed
    G  (n, u)      embeddings x synthetic classes: rows of K, mixed
    Z  (r, b + u)  L with G beside that of the last block: its rows (originals), then mixes of them
                   (synthetics), as far as they take part

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

from proxysynth.losses.functional import EPS, ClassSums, at_least_float32
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
                "differentiated again: leave out create_graph=True, or use the loss itself"
            )
        wanted = [tensor for tensor, need in zip((x, p), needed, strict=False) if need]
        found = iter(torch.autograd.grad(loss(x, p), wanted, grads[0], create_graph=True))
        return tuple(next(found) if need else None for need in needed)


@dataclass(eq=False)
class LossFromSums:
    """One evaluation of a loss, called with x and p; the default is a plain loss of all classes.

    Half precision (that of x and p, or autocast's) is used for the three products only.

    Args:
        sums: what the loss declares.
        normalized: whether its similarities are cosines.
        y: (n,) the row of p that is each embedding's own proxy; -1 if another process holds it.
        draw: the pairs to mix; None for none.
        embeddings, proxies: which take part, as in `ProxySynthesis`.
        labels: (n,) classes of the embeddings among all processes; None: `y`.
        classes: original classes that take part, in all processes; None: the rows of p.
        group: of the processes that each hold a part of the classes; None: there is one process.
        block: classes per block; None chooses.
        keep: whether the logits are kept for the backward pass; None: unless they are too many.
        differentiable: the same loss of (x, p) in torch's own operations, used when the gradient
            itself is to be differentiated; None refuses that.
    """

    sums: ClassSums
    normalized: bool
    y: Tensor
    draw: Draw | None = None
    embeddings: str = "both"
    proxies: str = "both"
    labels: Tensor | None = None
    classes: int | None = None
    group: Any = None
    block: int | None = None
    keep: bool | None = None
    differentiable: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if self.block is not None:
            check_integers(self, block=1)
        self.original_rows = self.draw is None or self.embeddings != "synthetic"
        self.synthetic_rows = self.draw is not None and self.embeddings != "original"
        self.original_classes = self.draw is None or self.proxies != "synthetic"

    def __call__(self, x: Tensor, p: Tensor) -> Tensor:
        if not self.original_classes:  # only the batch's own proxies are of use
            held = self.y >= 0
            present = self.y[held].unique()
            self.y = torch.where(held, torch.searchsorted(present, self.y), -1)
            p = p.index_select(0, present)
        apply: Callable[..., Tensor] = outside_graphs(_Function.apply)
        kind = x.device.type
        self.low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        with _without_autocast(kind):
            return apply(x, p, self)

    def forward(self, x: Tensor, p: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits if they are kept."""
        sums, draw, y, normalized = self.sums, self.draw, self.y, self.normalized
        X, n, c = at_least_float32(x), len(x), len(p)
        if normalized:
            self.inverse_x = _inverse_norms(X)
            X = X * self.inverse_x[:, None]
            self.inverse_p = X.new_empty(c)
        self.X, kept = X, None
        if keep and (n * c <= LARGE if self.keep is None else self.keep):
            kept = X.new_empty(n * c)
        self.rows, count = None, n if self.original_rows else 0
        if draw is not None:
            pairs = PairMatrix(draw.i, draw.j, draw.lam, X)
            K = X.new_empty(n, n) if self.group is None else X.new_zeros(n, n)
            if self.synthetic_rows:
                V, count = X if normalized else None, count + len(draw.i)
                self.rows = Mix(pairs, V, self.low, below=self.original_rows)
        cells = CACHE if X.device.type == "cpu" else LAUNCH
        self.blocks = _blocks(y, c, self.block or max(256, cells // n), self)
        total = (_RowSums if sums.along == "rows" else _ColumnSums)(self, count)
        own = X.new_zeros(count)  # logits of the own classes
        for number, block in enumerate(self.blocks):
            L = self._product(block, p, kept, first_time=True)
            if draw is not None:
                K[block.batch] = L.t().index_select(0, block.columns)
            if draw is not None and block.synthetic:
                Q = self._own_proxies(p) if normalized else X[:0]
                if self.group is not None:
                    own, K, Q = self._sum(own, K, Q)
                    total.reduce()
                if len(draw.first) < len(draw.i):  # some pairs share a class
                    at = draw.first
                    pairs = PairMatrix(draw.i[at], draw.j[at], draw.class_shares[0], X)
                self.Q, self.columns = Q, Mix(pairs, Q if normalized else None, self.low)
                self.G = self.columns(K).t()
            Z = self._logits(L, block)
            own[block.rows] = total.add(number, Z.clone() if Z is L else Z, block.own)
        if self.group is not None and draw is None:
            (own,) = self._sum(own)
            total.reduce()

        labels = y if self.labels is None else self.labels
        classes = (c if self.classes is None else self.classes) if self.original_classes else 0
        if draw is not None:
            classes += len(draw.first)
            if self.rows is not None and sums.along == "columns":  # along rows none are needed
                made = labels.max() + 1 + draw.target
                labels = torch.cat((labels, made)) if self.original_rows else made
        similarity = own.mul_(LN2 / sums.scale)
        value, own_slope, self.slope = sums.value(similarity, total.result(), labels, classes)
        self.total, self.own_slope = total, own_slope / sums.scale
        return value, kept

    def gradients(
        self, x: Tensor, p: Tensor, kept: Tensor | None, grad: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of x and p."""
        X, scale, normalized = self.X, self.sums.scale, self.normalized
        self.total.prepare(self.slope)
        d_K = d_Q = None
        # By the logarithm of the length of every mixed row: its logits fall as 1 / length.
        d_length = X.new_zeros(0 if self.rows is None else len(self.rows.weights))
        d_X, d_p = torch.empty_like(X), torch.empty_like(p)
        right, down = X if normalized else X * grad, grad * -LN2
        last = len(self.blocks) - 1
        for number in range(last, -1, -1):  # the synthetic classes come first: they give d_K
            block = self.blocks[number]
            L, p_b, d_p_b = self._product(block, p, kept), p[block.part], d_p[block.part]
            Z = self._logits(L, block)
            D = self.total.slopes(number, Z)
            D.view(-1).scatter_(0, block.own, self.own_slope[block.rows])
            if self.rows is not None and normalized:
                here = (D[self.rows.first :] * Z[self.rows.first :]).sum(dim=1)
                once = self.group is not None and block.synthetic  # the same in every process
                d_length += here / dist.get_world_size(self.group) if once else here
            d_L = D if self.rows is None else self.rows.back(D)
            if block.synthetic:
                d_L, d_G = d_L.split((L.shape[1], self.G.shape[1]), dim=1)
                d_K = self.columns.back(d_G.t().contiguous())
                if normalized:
                    d_Q = self.columns.length_gradient((d_G * self.G).sum(dim=0).mul_(down))
            if d_K is not None:
                d_L.index_add_(1, block.columns, d_K[block.batch].t())
            if normalized:
                inverse = self.inverse_p[block.part]
                step = inverse * grad
                radial = (d_L * L).sum(dim=0).mul_(inverse).mul_(step)
                d_L *= step
                torch.mul(p_b, radial.to(p.dtype)[:, None], out=d_p_b)
            self._multiply(d_L.t(), right, d_p_b, scale, -LN2 if normalized else 0.0)
            self._multiply(d_L, p_b, d_X, scale, 0.0 if number == last else 1.0)

        if self.group is not None:
            d_X, d_length = self._sum(d_X, d_length)
        if not normalized:
            return d_X.mul_(grad).to(x.dtype), d_p
        if self.rows is not None:
            d_X += self.rows.length_gradient(d_length.mul_(down))
        if d_Q is not None:
            y, Q = self.y, self.Q
            if self.group is not None:
                here = (y >= 0).nonzero()[:, 0]
                y, Q, d_Q = y[here], Q[here], d_Q[here]
            d_own = _through_norm(d_Q, Q, self.inverse_p.index_select(0, y))
            d_p.index_add_(0, y, d_own.to(p.dtype))
        return _through_norm(d_X, X, self.inverse_x).to(x.dtype), d_p

    def _product(
        self, block: _Block, p: Tensor, kept: Tensor | None, first_time: bool = False
    ) -> Tensor:
        """L, from memory if it is there."""
        n, start, stop = len(self.X), block.part.start, block.part.stop
        if kept is None:
            L = self.X.new_empty(n, stop - start)
        else:
            L = kept[n * start : n * stop].view(n, stop - start)
            if not first_time:
                return L
        p_b = p[block.part]
        self._multiply(self.X, p_b.t(), L, self.sums.scale * LOG2E, 0.0)
        if not self.normalized:
            return L
        inverse = self.inverse_p[block.part]
        if first_time:
            _inverse_norms(p_b, inverse)
        return L.mul_(inverse)

    def _multiply(self, a: Tensor, b: Tensor, out: Tensor, scale: float, beta: float) -> None:
        """out = beta out + scale a b."""
        if out.dtype == a.dtype == b.dtype == self.low:
            torch.addmm(out, a, b, beta=beta, alpha=scale, out=out)
            return
        made = (a.to(self.low) @ b.to(self.low)).to(out.dtype).mul_(scale)
        out.copy_(made) if beta == 0 else out.mul_(beta).add_(made)

    def _own_proxies(self, p: Tensor) -> Tensor:
        """Q, the batch's own proxies as unit vectors; 0 where another process holds them."""
        y = self.y
        if self.group is None:
            return p.index_select(0, y).to(self.X.dtype).mul_(self.inverse_p[y][:, None])
        found, here = torch.zeros_like(self.X), (y >= 0).nonzero()[:, 0]
        found[here] = p[y[here]].to(found.dtype) * self.inverse_p[y[here]][:, None]
        return found

    def _logits(self, L: Tensor, block: _Block) -> Tensor:
        """Z."""
        Z = torch.cat((L, self.G), dim=1) if block.synthetic else L
        Z = Z if self.rows is None else self.rows(Z)
        if not self.original_classes:
            Z[:, : L.shape[1]] = _hidden(Z)
        return Z

    def _sum(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors, each summed over all processes."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


class _Block(NamedTuple):
    """A range of classes, and where the logits of own classes are.

    part: the rows of p.   batch: the embeddings with their class among them.
    columns: the column of that class in L.   synthetic: whether G is beside L.   width: of Z.
    rows: the rows of Z with their own class in this block.
    own: the position of that logit in Z, read row by row.
    """

    part: slice
    batch: Tensor | slice
    columns: Tensor
    synthetic: bool
    width: int
    rows: Tensor | slice
    own: Tensor


def _blocks(y: Tensor, c: int, size: int, of: LossFromSums) -> list[_Block]:
    n, draw, count = len(y), of.draw, max(1, round(c / size))
    starts = [c * number // count for number in range(count + 1)]
    if of.group is not None and draw is not None:
        starts.append(c)  # G needs sums over all processes: it is a block of its own
    single = count == 1 and of.group is None
    ordered, order = (y, torch.arange(n, device=y.device)) if single else y.sort()
    edges = [0, n]
    if not single:
        edges = torch.searchsorted(ordered, torch.tensor(starts, device=y.device)).tolist()
    blocks = []
    for number, (start, stop) in enumerate(pairwise(starts)):
        batch = order[edges[number] : edges[number + 1]]
        columns = ordered[edges[number] : edges[number + 1]] - start
        width, synthetic = stop - start, draw is not None and number == len(starts) - 2
        rows, places = (batch, columns) if of.original_rows else (batch[:0], columns[:0])
        if draw is not None and synthetic:
            if of.synthetic_rows:
                first = n if of.original_rows else 0
                made = torch.arange(first, first + len(draw.i), device=y.device)
                rows, places = torch.cat((rows, made)), torch.cat((places, draw.target + width))
            width += len(draw.first)
        own, part = torch.add(places, rows, alpha=width), slice(start, stop)
        if single:  # all of them, in order
            blocks.append(_Block(part, slice(None), y, synthetic, width, slice(None), own))
        else:
            blocks.append(_Block(part, batch, columns, synthetic, width, rows, own))
    return blocks


class _RowSums:
    """log sum exp over the negatives of every row, block by block."""

    def __init__(self, of: LossFromSums, count: int) -> None:
        # A running maximum costs a pass over the logits; cosines at usual scales need none.
        self.bounded, self.group = of.normalized and of.sums.scale <= BOUND, of.group
        self.sum = of.X.new_zeros(count)
        self.top = self.sum if self.bounded else torch.full_like(self.sum, _hidden(self.sum) / 2)

    def add(self, number: int, Z: Tensor, own: Tensor) -> Tensor:
        """Add a block, but for the logits of own classes, which are returned; Z is overwritten."""
        found = _hide(Z, own)
        if not self.bounded:
            self._shift_to(torch.maximum(self.top, Z.amax(dim=1)))
            Z -= self.top[:, None]
        self.sum += Z.exp2_().sum(dim=1)
        return found

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

    def slopes(self, number: int, Z: Tensor) -> Tensor:
        return torch.add(Z, self.shift).exp2_()


class _ColumnSums:
    """The sum over classes of log(1 + sum of exp(logit + offset) over a column's negatives)."""

    def __init__(self, of: LossFromSums, count: int) -> None:
        self.offset, self.group = of.sums.offset, of.group
        self.bounded = of.normalized and of.sums.scale + self.offset <= BOUND
        self.sum = of.X.new_zeros(())
        # One tensor for all blocks: many small ones would keep the memory freed between them.
        widths = [block.width for block in of.blocks]
        self.logs = of.X.new_empty(sum(widths)).split(widths)

    def add(self, number: int, Z: Tensor, own: Tensor) -> Tensor:
        found, logs, one = _hide(Z, own), self.logs[number], -self.offset * LOG2E
        if self.bounded:
            torch.sum(Z.exp2_(), dim=0, out=logs).add_(2.0**one).log2_()
        else:
            top = Z.amax(dim=0).clamp_min_(one)
            torch.sum(Z.sub_(top).exp2_(), dim=0, out=logs)
            logs.add_((one - top).exp2_()).log2_().add_(top)
        self.sum += logs.sum().mul_(LN2).add_(self.offset * len(logs))
        return found

    def reduce(self) -> None:
        dist.all_reduce(self.sum, group=self.group)

    def result(self) -> Tensor:
        return self.sum.clone()

    def prepare(self, slope: Tensor) -> None:
        self.shift = slope.log2()

    def slopes(self, number: int, Z: Tensor) -> Tensor:
        return torch.sub(Z, self.logs[number] - self.shift).exp2_()


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
