"""The fast path: a loss from sums over blocks of classes, as one autograd function.

One n x c product forward, two backward, and no copy of the proxies. Only the logits are kept for
the backward pass; where even they are too many, their product is computed twice. All logits are in
base 2, log2(e) scale similarity, because torch computes exp2 faster than exp on a CPU.

    L  (n, b)      embeddings x a block of b classes
    K  (n, n)      own classes x embeddings: columns y of L, transposed
    G  (n, u)      embeddings x synthetic classes: rows of K, mixed
    W  (n, b + u)  L, and G beside that of the last block
    Z  (r, b + u)  the rows that take part: those of W (originals), then mixes of them (synthetics)

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


@dataclass(frozen=True)
class Plan:
    """What a loss is computed over; the default is a plain loss of all classes.

    Args:
        draw: the pairs to mix; None for none.
        embeddings, proxies: which take part, as in `ProxySynthesis`.
        labels: (n,) classes of the embeddings among all processes; None: `y`.
        classes: original classes that take part, in all processes; None: the rows of p.
        group: of the processes that each hold a part of the classes; None: there is one process.
        distributed: whether there are other processes.
        block: classes per block; None chooses.
        keep: whether the logits are kept for the backward pass; None: unless they are too many.
        differentiable: the same loss of (x, p) in torch's own operations, used when the gradient
            itself is to be differentiated; None refuses that.
    """

    draw: Draw | None = None
    embeddings: str = "both"
    proxies: str = "both"
    labels: Tensor | None = None
    classes: int | None = None
    group: Any = None
    distributed: bool = False
    block: int | None = None
    keep: bool | None = None
    differentiable: Callable[[Tensor, Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        block = self.block
        if block is not None and (
            isinstance(block, bool) or not isinstance(block, int) or block < 1
        ):
            raise ValueError(f"block must be a number of classes >= 1 (or None), got {block!r}")

    @property
    def original_rows(self) -> bool:
        return self.draw is None or self.embeddings != "synthetic"

    @property
    def synthetic_rows(self) -> bool:
        return self.draw is not None and self.embeddings != "original"

    @property
    def original_classes(self) -> bool:
        return self.draw is None or self.proxies != "synthetic"

    def sum(self, *tensors: Tensor) -> list[Tensor]:
        """The tensors, each summed over all processes."""
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        dist.all_reduce(flat, group=self.group)
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]


def loss_from_sums(
    sums: ClassSums, normalized: bool, x: Tensor, y: Tensor, p: Tensor, plan: Plan
) -> Tensor:
    """The loss, with exact gradients to x and p.

    y: the row of p that is each embedding's own proxy; -1 if another process holds it.
    Half precision (that of x and p, or autocast's) is used for the three products only.
    """
    if not plan.original_classes:  # only the batch's own proxies are of use
        present = y[y >= 0].unique()
        p, y = p.index_select(0, present), torch.where(y >= 0, torch.searchsorted(present, y), -1)
    apply: Callable[..., Tensor] = outside_graphs(_LossFromSums.apply)
    kind = x.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    with _without_autocast(kind):
        return apply(x, p, _Evaluation(sums, normalized, plan, y, low))


def _without_autocast(kind: str) -> AbstractContextManager[Any]:
    enabled = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if enabled else nullcontext()


def outside_graphs(function: Function) -> Function:
    """The function as torch.compile should see it: a call between two graphs, never traced.

    torch's decorator for this costs as much as a small loss on every plain call, so it is applied
    only while compiling.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


class _LossFromSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: Tensor, evaluation: _Evaluation) -> Tensor:
        value, kept = evaluation.forward(x, p, any(ctx.needs_input_grad))
        ctx.save_for_backward(x, p, kept)  # which frees them after the backward pass
        ctx.evaluation = evaluation
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p, kept = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient needs a graph of its own
            return _differentiable_gradients(ctx, x, p, grads[0])
        with _without_autocast(x.device.type):
            return *ctx.evaluation.gradients(x, p, kept, grads[0]), None


def _differentiable_gradients(
    ctx: Any, x: Tensor, p: Tensor, grad: Tensor
) -> tuple[Tensor | None, ...]:
    loss = ctx.evaluation.plan.differentiable
    if loss is None:
        raise RuntimeError(
            "the gradient of a loss over blocks or shards of the classes cannot be differentiated "
            "again: leave out create_graph=True, or use the loss itself with all proxies"
        )
    needed = ctx.needs_input_grad
    wanted = [tensor for tensor, need in zip((x, p), needed, strict=False) if need]
    found = iter(torch.autograd.grad(loss(x, p), wanted, grad, create_graph=True))
    return tuple(next(found) if need else None for need in needed)


class _Evaluation:
    """One evaluation of a loss: the forward pass, and what it leaves for the backward pass.

    low: the precision of the products.
    """

    def __init__(
        self, sums: ClassSums, normalized: bool, plan: Plan, y: Tensor, low: torch.dtype
    ) -> None:
        self.sums, self.normalized, self.plan, self.y, self.low = sums, normalized, plan, y, low

    def forward(self, x: Tensor, p: Tensor, keep: bool) -> tuple[Tensor, Tensor | None]:
        """The loss, and the logits if they are kept."""
        sums, plan, y, normalized = self.sums, self.plan, self.y, self.normalized
        X, n, c, draw = at_least_float32(x), len(x), len(p), plan.draw
        if normalized:
            self.inverse_x = _inverse_norms(X)
            X = X * self.inverse_x[:, None]
            self.inverse_p = X.new_empty(c)
        self.X, self.first = X, n if plan.original_rows else 0  # first: of the synthetic rows
        kept = None
        if keep and (n * c <= LARGE if plan.keep is None else plan.keep):
            kept = X.new_empty(n * c)
        self.rows = self.columns = None
        if draw is not None:
            pairs = class_pairs = PairMatrix(draw.i, draw.j, draw.lam, X)
            if plan.synthetic_rows:
                self.rows = Mix(pairs, X if normalized else None, self.low)
        on_cpu = X.device.type == "cpu"
        size = plan.block or max(256, (CACHE if on_cpu else LAUNCH) // n)
        self.blocks = _blocks(y, c, size, plan)
        self.total = total = (_RowSums if sums.along == "rows" else _ColumnSums)(self)

        count = self.first + (0 if self.rows is None else len(draw.i))  # type: ignore[union-attr]
        own = X.new_zeros(count)  # logits of the own classes
        K = X.new_zeros(n, n)
        for number, block in enumerate(self.blocks):
            L = self._product(block, p, kept, first_time=True)
            if draw is not None:
                rows_of_K = L.t().index_select(0, block.columns)
                K = rows_of_K if block.batch is None else K.index_copy_(0, block.batch, rows_of_K)
            if block.synthetic:
                assert draw is not None
                Q = self.Q = self._own_proxies(p) if normalized else None
                if plan.distributed:
                    own, K, *rest = plan.sum(own, K, *([] if Q is None else [Q]))
                    Q = rest[0] if rest else None
                    total.reduce()
                if len(draw.first) < len(draw.i):  # some pairs share a class
                    at = draw.first
                    lam = draw.lam[at] if draw.lam.dim() else draw.lam
                    class_pairs = PairMatrix(draw.i[at], draw.j[at], lam, X)
                self.columns = Mix(class_pairs, Q, self.low)
                self.G = self.columns(K).t()
            W = self._with_synthetic(L, block)
            if W is None:
                continue
            Z = self._with_mixed_rows(W)
            found = total.add(number, Z.clone() if Z is L else Z, block.own)
            own = found if block.rows is None else own.index_copy_(0, block.rows, found)
        if plan.distributed and draw is None:
            (own,) = plan.sum(own)
            total.reduce()

        labels = y if plan.labels is None else plan.labels
        classes = (c if plan.classes is None else plan.classes) if plan.original_classes else 0
        if draw is not None:
            classes += len(draw.first)
            if self.rows is not None and sums.along == "columns":  # along rows none are needed
                made = labels.max() + 1 + draw.target
                labels = torch.cat((labels, made)) if plan.original_rows else made
        similarity = own.mul_(LN2 / sums.scale)
        value, own_slope, slope = sums.value(similarity, total.result(), labels, classes)
        self.own_slope, self.slope = own_slope / sums.scale, slope
        return value, kept

    def gradients(
        self, x: Tensor, p: Tensor, kept: Tensor | None, grad: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The gradients of x and p."""
        X, plan, scale, normalized = self.X, self.plan, self.sums.scale, self.normalized
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
            W = self._with_synthetic(L, block)
            if W is None:
                d_L = torch.zeros_like(L)
            else:
                Z = self._with_mixed_rows(W)
                D = self.total.slopes(number, Z)
                slope = self.own_slope
                slope = slope if block.rows is None else slope.index_select(0, block.rows)
                D.view(-1).scatter_(0, block.own, slope)
                if self.rows is not None and normalized:
                    here = (D[self.first :] * Z[self.first :]).sum(dim=1)
                    once = plan.distributed and block.synthetic  # the same in every process
                    d_length += here / dist.get_world_size(plan.group) if once else here
                d_L = self._from_mixed_rows(D)
                if block.synthetic:
                    assert self.columns is not None
                    b = W.shape[1] - self.G.shape[1]
                    d_L, d_G = d_L[:, :b], d_L[:, b:]
                    d_K = self.columns.back(d_G.t().contiguous())
                    if normalized:
                        d_Q = self.columns.length_gradient((d_G * self.G).sum(dim=0).mul_(down))
                    if not plan.original_classes:
                        d_L = torch.zeros_like(L)
            if d_K is not None:
                some = d_K if block.batch is None else d_K.index_select(0, block.batch)
                d_L.index_add_(1, block.columns, some.t())
            if normalized:
                inverse = self.inverse_p[block.part]
                step = inverse * grad
                radial = (d_L * L).sum(dim=0).mul_(inverse).mul_(step)
                d_L *= step
                torch.mul(p_b, radial.to(p.dtype)[:, None], out=d_p_b)
            self._multiply(d_L.t(), right, d_p_b, scale, -LN2 if normalized else 0.0)
            self._multiply(d_L, p_b, d_X, scale, 0.0 if number == last else 1.0)

        if plan.distributed:
            d_X, d_length = plan.sum(d_X, d_length)
        if not normalized:
            return d_X.mul_(grad).to(x.dtype), d_p
        if self.rows is not None:
            d_X += self.rows.length_gradient(d_length.mul_(down))
        if d_Q is not None:
            y, Q = self.y, self.Q
            assert Q is not None
            if plan.distributed:
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
        if not self.plan.distributed:
            return p.index_select(0, y).to(self.X.dtype).mul_(self.inverse_p[y][:, None])
        found, here = torch.zeros_like(self.X), (y >= 0).nonzero()[:, 0]
        found[here] = p[y[here]].to(found.dtype) * self.inverse_p[y[here]][:, None]
        return found

    def _with_synthetic(self, L: Tensor, block: _Block) -> Tensor | None:
        """W; None if no class of the block takes part."""
        if not block.synthetic:
            return L if self.plan.original_classes else None
        return torch.cat((L, self.G), dim=1) if self.plan.original_classes else self.G.contiguous()

    def _with_mixed_rows(self, W: Tensor) -> Tensor:
        """Z."""
        if self.rows is None:
            return W
        return self.rows.below(W) if self.first else self.rows(W)

    def _from_mixed_rows(self, D: Tensor) -> Tensor:
        """The gradient of W, from that of Z."""
        if self.rows is None:
            return D
        d_W = self.rows.back(D[self.first :])
        return d_W.add_(D[: self.first]) if self.first else d_W


class _Block(NamedTuple):
    """A range of classes, and where the logits of own classes are.

    part: the rows of p.   batch: the embeddings with their class among them; None: all, in order.
    columns: the column of that class in L.   synthetic: whether G is beside L.   width: of Z.
    rows: the rows of Z with their own class in this block; None: all, in order.
    own: the position of that logit in Z, read row by row.
    """

    part: slice
    batch: Tensor | None
    columns: Tensor
    synthetic: bool
    width: int
    rows: Tensor | None
    own: Tensor


def _blocks(y: Tensor, c: int, size: int, plan: Plan) -> list[_Block]:
    n, draw, count = len(y), plan.draw, max(1, round(c / size))
    starts = [c * number // count for number in range(count + 1)]
    if plan.distributed and draw is not None:
        starts.append(c)  # G needs sums over all processes: it is a block of its own
    single = count == 1 and not plan.distributed
    if not single:
        ordered, order = y.sort()
        edges = torch.searchsorted(ordered, torch.tensor(starts, device=y.device)).tolist()
    blocks = []
    for number, (start, stop) in enumerate(pairwise(starts)):
        batch, columns = None, y
        if not single:
            low, high = edges[number : number + 2]
            batch, columns = order[low:high], ordered[low:high] - start
        width = stop - start if plan.original_classes else 0
        rows, places = [batch], [columns]
        if not (plan.original_rows and plan.original_classes):
            rows, places = [y[:0]], [y[:0]]
        synthetic = draw is not None and stop == c and number == len(starts) - 2
        if synthetic and draw is not None:
            if plan.synthetic_rows:
                first = n if plan.original_rows else 0
                rows.append(torch.arange(first, first + len(draw.i), device=y.device))
                places.append(draw.target + width)
            width += len(draw.first)
        own = torch.cat(places)
        at = torch.arange(len(own), device=y.device) if single else torch.cat(rows)  # type: ignore[arg-type]
        own.add_(at, alpha=width)
        part = slice(start, stop)
        blocks.append(_Block(part, batch, columns, synthetic, width, None if single else at, own))
    return blocks


class _RowSums:
    """log sum exp over the negatives of every row, block by block."""

    def __init__(self, of: _Evaluation) -> None:
        # A running maximum costs a pass over the logits; cosines at usual scales need none.
        self.bounded = of.normalized and of.sums.scale <= BOUND
        self.group, self.least = of.plan.group, torch.finfo(of.X.dtype).min
        self.sum: Tensor | None = None
        self.top: Tensor | None = None

    def add(self, number: int, Z: Tensor, own: Tensor) -> Tensor:
        """Add a block, but for the logits of own classes, which are returned; Z is overwritten."""
        found = _mask(Z, own, self.least / 4)
        if not self.bounded:
            top = Z.amax(dim=1).clamp_min_(self.least / 8)
            if self.top is not None:
                top = torch.maximum(self.top, top)
            self._shift_to(top)
            Z -= top[:, None]
        here = Z.exp2_().sum(dim=1)
        self.sum = here if self.sum is None else self.sum.add_(here)
        return found

    def _shift_to(self, top: Tensor) -> None:
        if self.sum is not None and self.top is not None:
            self.sum *= (self.top - top).exp2_()
        self.top = top

    def reduce(self) -> None:
        """Sum over processes."""
        if self.sum is None:  # M2: no original class takes part
            return
        if self.top is not None:
            top = self.top.clone()
            dist.all_reduce(top, dist.ReduceOp.MAX, group=self.group)
            self._shift_to(top)
        dist.all_reduce(self.sum, group=self.group)

    def result(self) -> Tensor:
        assert self.sum is not None
        logs = self.sum.log()
        return logs if self.top is None else logs.add_(self.top, alpha=LN2)

    def prepare(self, slope: Tensor) -> None:
        """For `slopes`: exp2(z + shift) is a logit's slope; without negatives it is 0."""
        assert self.sum is not None
        shift = (slope / self.sum).nan_to_num_(nan=0.0).log2_()
        self.shift = (shift if self.top is None else shift.sub_(self.top))[:, None]

    def slopes(self, number: int, Z: Tensor) -> Tensor:
        return torch.add(Z, self.shift).exp2_()


class _ColumnSums:
    """The sum over classes of log(1 + sum of exp(logit + offset) over a column's negatives)."""

    def __init__(self, of: _Evaluation) -> None:
        self.offset, self.group = of.sums.offset, of.plan.group
        self.bounded = of.normalized and of.sums.scale + self.offset <= BOUND
        self.least = torch.finfo(of.X.dtype).min
        self.sum = of.X.new_zeros(())
        # One tensor for all blocks: many small ones would keep the memory freed between them.
        widths = [block.width for block in of.blocks]
        self.logs = of.X.new_empty(sum(widths)).split(widths)

    def add(self, number: int, Z: Tensor, own: Tensor) -> Tensor:
        found = _mask(Z, own, self.least / 4)
        one = -self.offset * LOG2E
        logs = self.logs[number]
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


def _mask(Z: Tensor, places: Tensor, value: float) -> Tensor:
    """What is at these places, which are given another value."""
    flat = Z.view(-1)
    found = flat.index_select(0, places)
    flat.index_fill_(0, places, value)
    return found


def _inverse_norms(V: Tensor, out: Tensor | None = None) -> Tensor:
    dtype = None if out is None else out.dtype
    return torch.linalg.vector_norm(V, dim=1, dtype=dtype, out=out).clamp_min_(EPS).reciprocal_()


def _through_norm(d_unit: Tensor, unit: Tensor, inverse_norm: Tensor) -> Tensor:
    """The gradient of v from that of v / |v|: the part at right angles to v, divided by |v|."""
    d_unit.addcmul_(unit, (d_unit * unit).sum(dim=1)[:, None], value=-1)
    return d_unit.mul_(inverse_norm[:, None])
