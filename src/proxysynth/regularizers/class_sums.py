"""The fast path: a loss from sums over blocks of classes, as one autograd function.

One n x c product forward, two backward, and no copy of the proxies. Only the logits are kept for
the backward pass; where even they are too many, their product is computed again. All of them are in
base 2, log2(e) scale similarity, because torch computes exp2 faster than exp on a CPU.

    L  (n, b)   embeddings x a block of b classes; the columns are divided by |p|
    K  (n, n)   the batch's own classes x embeddings: columns y of L, transposed
    G  (n, u)   embeddings x synthetic classes: rows of K, mixed
    Z  (r, b)   the rows that take part, of L or of G: originals, then synthetics (rows, mixed)

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
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.losses.functional import EPS, ClassSums, at_least_float32
from proxysynth.regularizers.pairs import Draw

LOG2E, LN2 = math.log2(math.e), math.log(2.0)

BOUND = 40.0
"""Cosines times a scale up to this are not shifted: exp(80) and exp(-80) are both float32."""

CACHE = 2**17
"""Logits per block on a CPU: half a megabyte, so that passes over a block stay in its cache."""

LAUNCH = 2**24
"""Logits per block on an accelerator, where starting a kernel costs more than memory does."""

LARGE = 2**27
"""Logits kept for the backward pass, half a gigabyte of float32; more are computed again."""

Function = TypeVar("Function", bound=Callable[..., Any])

Again = Callable[[Tensor, Tensor], Tensor]
"""The same loss as a function of x and p in torch's own operations."""


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
        again: computes the loss when its gradient is to be differentiated; None refuses that.
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
    again: Again | None = None

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
        if not self.distributed:
            return list(tensors)
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
        held = y[y >= 0].unique()
        p, y = p.index_select(0, held), torch.where(y >= 0, torch.searchsorted(held, y), -1)
    apply: Callable[..., Tensor] = outside_graphs(_LossFromSums.apply)
    kind = x.device.type
    if not torch.is_autocast_enabled(kind):
        return apply(x, p, y, sums, normalized, plan, x.dtype)
    low = torch.get_autocast_dtype(kind)
    with torch.autocast(kind, enabled=False):
        return apply(x, p, y, sums, normalized, plan, low)


def outside_graphs(function: Function) -> Function:
    """The function as torch.compile should see it: a call between two graphs, never traced.

    torch's decorator for this costs as much as a small loss on every plain call, so it is applied
    only while compiling.
    """
    return torch.compiler.disable(function) if torch.compiler.is_compiling() else function


class _LossFromSums(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        p: Tensor,
        y: Tensor,
        sums: ClassSums,
        normalized: bool,
        plan: Plan,
        low: torch.dtype,
    ) -> Tensor:
        n, c, draw = len(x), len(p), plan.draw
        X, inverse_x = at_least_float32(x), None
        if normalized:
            inverse_x = torch.linalg.vector_norm(X, dim=1).clamp_min_(EPS).reciprocal_()
            X = X * inverse_x[:, None]
        rows = None
        if draw is not None and plan.synthetic_rows:
            rows = Mix(draw.i, draw.j, draw.lam, n, plan.original_rows, X, normalized, low)
        logits = _Logits(X, c, sums.scale * LOG2E, normalized, low, plan)
        kept = logits.space(c) if any(ctx.needs_input_grad) else None
        blocks = _blocks(y, logits.size, c, plan.distributed)
        total = (_RowSums if sums.along == "rows" else _ColumnSums)(sums, normalized, plan, X)

        K = X.new_zeros(n, n)
        for block in blocks:
            L = logits.compute(block, p, kept)
            K[block.batch] = L.index_select(1, block.columns).t()
            if plan.original_classes:
                Z = L.clone() if rows is None else rows(L)
                total.add(Z, block.own if plan.original_rows else None)
        Q = None  # the batch's own proxies as unit vectors
        if draw is not None and logits.inverse is not None:
            Q = _own_proxies(p, logits.inverse, y, plan.distributed, X)
        if plan.distributed:
            K, *rest = plan.sum(K, *([] if Q is None else [Q]))
            Q = rest[0] if rest else None
            total.reduce()

        labels, own = y if plan.labels is None else plan.labels, [K.diagonal()]
        classes = (c if plan.classes is None else plan.classes) if plan.original_classes else 0
        columns = G = made_own = None
        if draw is not None:
            a, b, lam = draw.i, draw.j, draw.lam
            if len(draw.first) < len(a):  # some pairs share a class
                a, b = a[draw.first], b[draw.first]
                lam = lam[draw.first] if lam.dim() else lam
            columns = Mix(a, b, lam, n, False, X if Q is None else Q, normalized, low)
            G = columns(K).t().contiguous()
            Z = G.clone() if rows is None else rows(G)
            if plan.synthetic_rows:
                first = n if plan.original_rows else 0
                made_own = torch.arange(first * len(b), Z.numel(), len(b), device=x.device)
                made_own += draw.target
                own = [*own[: int(plan.original_rows)], Z.view(-1).index_select(0, made_own)]
                if sums.along == "columns":  # along rows nobody asks for labels
                    made = labels.max() + 1 + draw.target
                    labels = torch.cat((labels, made)) if plan.original_rows else made
            total.add(Z, made_own)
            classes += len(b)

        similarity = torch.cat(own).mul_(LN2 / sums.scale)
        value, own_slope, slope = sums.value(similarity, total.result(), labels, classes)
        ctx.save_for_backward(x, p, kept)  # which frees them after the backward pass
        ctx.y, ctx.sums, ctx.plan, ctx.low = y, sums, plan, low
        ctx.held = X, inverse_x, Q, G, rows, columns, logits, blocks, total
        ctx.slopes = made_own, own_slope / sums.scale, slope
        return value

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, p, _ = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True: the gradient needs a graph of its own
            return _gradient_with_graph(ctx, x, p, grads[0])
        if not torch.is_autocast_enabled(x.device.type):
            return *_gradients(ctx, x, p, grads[0]), None, None, None, None, None
        with torch.autocast(x.device.type, enabled=False):
            return *_gradients(ctx, x, p, grads[0]), None, None, None, None, None


def _gradients(ctx: Any, x: Tensor, p: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    kept = ctx.saved_tensors[2]
    X, inverse_x, Q, G, rows, columns, logits, blocks, total = ctx.held
    y, plan, sums, low = ctx.y, ctx.plan, ctx.sums, ctx.low
    made_own, own_slope, slope = ctx.slopes
    n, normalized = len(X), inverse_x is not None
    first = n if plan.original_rows else 0  # of the synthetic rows
    total.prepare(slope)

    # The synthetic classes first: what their logits ask of the columns they are mixed of.
    d_K = d_Q = None
    shrink = made_shrink = X.new_zeros(0)
    if plan.draw is not None:
        Z = G if rows is None else rows(G)
        D = total.slopes(Z, len(blocks))
        if rows is not None:
            D.view(-1).scatter_(0, made_own, own_slope[first:])
            shrink, made_shrink = X.new_zeros(len(Z) - first), _dots(D[first:], Z[first:])
        d_G = D if rows is None else rows.back(D)
        d_K = columns.back(d_G.t().contiguous())
        if normalized:
            d_Q = columns.lengths_back((d_G * G).sum(dim=0).mul_(LN2 * grad))

    d_X, d_p = torch.empty_like(X), torch.empty_like(p)
    right = X if normalized else X * grad
    for number, block in enumerate(blocks):
        L, p_b, d_p_b = logits.again(block, p, kept), p[block.part], d_p[block.part]
        if plan.original_classes:
            Z = L if rows is None else rows(L)
            D = total.slopes(Z, number)
            if plan.original_rows:
                D.view(-1).scatter_(0, block.own, own_slope[block.batch])
            if rows is not None and normalized:
                shrink += _dots(D[first:], Z[first:])
            d_L = D if rows is None else rows.back(D)
        else:
            d_L = torch.zeros_like(L)
        if d_K is not None:
            d_L.scatter_add_(1, block.columns.expand(n, -1), d_K[block.batch].t())
        if normalized:
            inverse = logits.inverse[block.part]
            turn = (d_L * L).sum(dim=0).mul_(inverse).mul_(inverse).mul_(-LN2 * grad)
            d_L *= inverse * (sums.scale * grad)
            torch.mul(p_b, turn.to(p.dtype)[:, None], out=d_p_b)
        _product(d_p_b, d_L.t(), right, low, add=normalized)
        _product(d_X, d_L, p_b, low, add=number > 0)

    if plan.distributed:
        d_X, shrink = plan.sum(d_X, shrink)
    if not normalized:
        return d_X.mul_(grad).to(x.dtype), d_p
    if rows is not None:
        d_X += rows.lengths_back((shrink + made_shrink).mul_(LN2 * grad))
    if d_Q is not None:
        if plan.distributed:
            held = (y >= 0).nonzero()[:, 0]
            y, Q, d_Q = y[held], Q[held], d_Q[held]
        d_p.index_add_(0, y, _turned(d_Q, Q, logits.inverse.index_select(0, y)).to(p.dtype))
    return _turned(d_X, X, inverse_x).to(x.dtype), d_p


def _gradient_with_graph(ctx: Any, x: Tensor, p: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
    if ctx.plan.again is None:
        raise RuntimeError(
            "the gradient of a loss over blocks or shards of the classes cannot be differentiated "
            "again: leave out create_graph=True, or use the loss itself with all proxies"
        )
    inputs = zip((x, p), ctx.needs_input_grad, strict=False)
    wanted = [tensor for tensor, needed in inputs if needed]
    value = ctx.plan.again(x, p)
    found = iter(torch.autograd.grad(value, wanted, grad, create_graph=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


class Mix:
    """Rows a and b of an (n, .) matrix, mixed: a sparse matrix with two entries a row.

    Its weights are lam and 1 - lam; those of unit vectors V are divided by the length of the mix.
    With `originals` the n rows themselves come first, one entry each.
    """

    def __init__(
        self, a: Tensor, b: Tensor, lam: Tensor, n: int, originals: bool, V: Tensor,
        normalized: bool, low: torch.dtype,
    ) -> None:  # fmt: skip
        # numpy starts such small operations in a fraction of torch's time.
        self.n, self.ones, self.device = n, n if originals else 0, a.device
        ones, share = np.arange(self.ones), lam.cpu().numpy()
        self.index = np.empty(self.ones + 2 * len(a), np.int64)
        weights = np.ones(len(self.index))
        self.index[: self.ones] = ones
        self.index[self.ones :: 2] = a.cpu().numpy()
        self.index[self.ones + 1 :: 2] = b.cpu().numpy()
        weights[self.ones :: 2], weights[self.ones + 1 :: 2] = share, 1 - share
        offsets = np.concatenate((ones, np.arange(self.ones, len(self.index), 2)))
        self.entries = self._tensor(self.index), self._tensor(offsets)
        self.weights = self._tensor(weights).to(V.dtype)
        if normalized:
            self.vectors = self(V)
            lengths = torch.linalg.vector_norm(self.vectors[self.ones :], dim=1)
            # Opposite parents may cancel to nothing but rounding: then there is no direction, and
            # nothing is learned from it.
            gone = lengths <= math.sqrt(torch.finfo(low).eps)
            self.one_over = lengths.reciprocal_().masked_fill_(gone, 0.0)
            self.weights[self.ones :].view(-1, 2).mul_(self.one_over[:, None])

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        made = torch.from_numpy(array)
        return made if self.device.type == "cpu" else made.to(self.device, non_blocking=True)

    def __call__(self, M: Tensor) -> Tensor:
        return _weighted_rows(M, *self.entries, self.weights)

    def back(self, d_made: Tensor) -> Tensor:
        """The gradient of M, from that of the mixed rows."""
        if not hasattr(self, "transposed"):
            order = self.index.argsort(kind="stable")
            starts = np.searchsorted(self.index[order], np.arange(self.n))
            # Entry e is in row e, or, behind `ones` single entries, in one of two.
            row = np.where(order < self.ones, order, (order + self.ones) // 2)
            weights = self.weights.index_select(0, self._tensor(order))
            self.transposed = self._tensor(row), self._tensor(starts), weights
        return _weighted_rows(d_made, *self.transposed)

    def lengths_back(self, shrink: Tensor) -> Tensor:
        """The gradient of V through the lengths of its mixes.

        shrink: the sum of logit x gradient over each mix, whose logits fall as 1 / length.
        """
        factor = torch.mul(shrink, self.one_over).neg_()
        if self.ones:
            factor = torch.cat((factor.new_zeros(self.ones), factor))
        return self.back(self.vectors * factor[:, None])


def _weighted_rows(M: Tensor, index: Tensor, offsets: Tensor, weights: Tensor) -> Tensor:
    """Sums of rows of M times weights, one for each run of entries."""
    made: Tensor = torch.embedding_bag(M, index, offsets, False, 0, False, weights)[0]
    return made


class _Block(NamedTuple):
    """A range of classes; which embeddings have theirs in it, in which column, and at which places
    of the block's logits, read row by row."""

    part: slice
    batch: Tensor | slice
    columns: Tensor
    own: Tensor


def _blocks(y: Tensor, size: int, c: int, distributed: bool) -> list[_Block]:
    count = max(1, round(c / size))
    if count == 1 and not distributed:
        own = torch.arange(0, c * len(y), c, device=y.device).add_(y)
        return [_Block(slice(0, c), slice(None), y, own)]
    starts = [c * number // count for number in range(count + 1)]
    ordered, order = y.sort()
    edges = torch.searchsorted(ordered, torch.tensor(starts, device=y.device)).tolist()
    blocks = []
    for start, stop, low, high in zip(starts, starts[1:], edges, edges[1:], strict=False):
        batch, columns = order[low:high], ordered[low:high] - start
        blocks.append(_Block(slice(start, stop), batch, columns, batch * (stop - start) + columns))
    return blocks


class _Logits:
    """L of one block after the other: kept in one piece of memory, or computed twice."""

    def __init__(
        self, X: Tensor, c: int, scale: float, normalized: bool, low: torch.dtype, plan: Plan
    ) -> None:
        n, on_cpu = len(X), X.device.type == "cpu"
        self.X, self.scale, self.low = X, scale, low
        self.size = plan.block or max(256, (CACHE if on_cpu else LAUNCH) // n)
        self.keep = n * c <= LARGE if plan.keep is None else plan.keep
        self.inverse = X.new_empty(c) if normalized else None  # 1 / |p|

    def space(self, c: int) -> Tensor | None:
        """Memory for all logits, if they are to be kept."""
        return self.X.new_empty(len(self.X) * c) if self.keep else None

    def compute(self, block: _Block, p: Tensor, kept: Tensor | None) -> Tensor:
        """L (n, b)."""
        p_b = p[block.part]
        if self.inverse is not None:
            inverse = self.inverse[block.part]
            torch.linalg.vector_norm(p_b, dim=1, dtype=inverse.dtype, out=inverse)
            inverse.clamp_min_(EPS).reciprocal_()
        return self._product(block, p_b, kept)

    def again(self, block: _Block, p: Tensor, kept: Tensor | None) -> Tensor:
        """The same, in the backward pass."""
        if kept is None:
            return self._product(block, p[block.part], kept)
        return self._part(block, kept)

    def _product(self, block: _Block, p_b: Tensor, kept: Tensor | None) -> Tensor:
        L = self.X.new_empty(len(self.X), len(p_b)) if kept is None else self._part(block, kept)
        _product(L, self.X, p_b.t(), self.low)
        return L.mul_(self.scale if self.inverse is None else self.inverse[block.part] * self.scale)

    def _part(self, block: _Block, kept: Tensor) -> Tensor:
        n, start, stop = len(self.X), block.part.start, block.part.stop
        return kept[n * start : n * stop].view(n, stop - start)


class _RowSums:
    """log sum exp over the negatives of every row, block by block."""

    def __init__(self, sums: ClassSums, normalized: bool, plan: Plan, like: Tensor) -> None:
        self.plan, draw = plan, plan.draw
        count = len(like) * plan.original_rows
        if draw is not None and plan.synthetic_rows:
            count += len(draw.i)
        # A running maximum costs a pass over the logits; cosines at usual scales need none.
        self.bounded = normalized and sums.scale <= BOUND
        self.least = torch.finfo(like.dtype).min
        self.sum = like.new_zeros(count)
        self.top = self.sum if self.bounded else like.new_full((count,), self.least / 8)

    def add(self, Z: Tensor, own: Tensor | None) -> None:
        """Add a block, but for the logits at the places `own`; Z is overwritten."""
        if own is not None:
            Z.view(-1).scatter_(0, own, self.least / 4)
        if not self.bounded:
            top = torch.maximum(self.top, Z.amax(dim=1))
            self.sum *= (self.top - top).exp2_()
            self.top = top
            Z -= top[:, None]
        self.sum += Z.exp2_().sum(dim=1)

    def reduce(self) -> None:
        """Sum over processes."""
        if not self.bounded:
            top = self.top.clone()
            dist.all_reduce(top, dist.ReduceOp.MAX, group=self.plan.group)
            self.sum *= (self.top - top).exp2_()
            self.top = top
        dist.all_reduce(self.sum, group=self.plan.group)

    def result(self) -> Tensor:
        logs = self.sum.log()
        return logs if self.bounded else logs.add_(self.top, alpha=LN2)

    def prepare(self, slope: Tensor) -> None:
        """For `slopes`: exp2(z - shift) is a logit's slope; without negatives it is 0."""
        logs = self.sum.log2()
        shift = (logs if self.bounded else logs + self.top) - slope.log2()
        self.shift = shift.nan_to_num_(nan=math.inf, posinf=math.inf, neginf=math.inf)[:, None]

    def slopes(self, Z: Tensor, number: int) -> Tensor:
        return torch.sub(Z, self.shift).exp2_()


class _ColumnSums:
    """The sum over classes of log(1 + sum of exp(logit + offset) over a column's negatives)."""

    def __init__(self, sums: ClassSums, normalized: bool, plan: Plan, like: Tensor) -> None:
        self.plan, self.offset = plan, sums.offset
        self.bounded = normalized and sums.scale + sums.offset <= BOUND
        self.least = torch.finfo(like.dtype).min
        self.sum = like.new_zeros(())
        self.columns: list[Tensor] = []

    def add(self, Z: Tensor, own: Tensor | None) -> None:
        if own is not None:
            Z.view(-1).scatter_(0, own, self.least / 4)
        one = -self.offset * LOG2E
        if self.bounded:
            logs = Z.exp2_().sum(dim=0).add_(2.0**one).log2_()
        else:
            top = Z.amax(dim=0).clamp_min_(one)
            logs = Z.sub_(top).exp2_().sum(dim=0).add_((one - top).exp2_()).log2_().add_(top)
        self.columns.append(logs)
        self.sum += logs.sum().mul_(LN2).add_(self.offset * len(logs))

    def reduce(self) -> None:
        dist.all_reduce(self.sum, group=self.plan.group)

    def result(self) -> Tensor:
        return self.sum.clone()

    def prepare(self, slope: Tensor) -> None:
        self.shift = slope.log2()

    def slopes(self, Z: Tensor, number: int) -> Tensor:
        number = number if self.plan.original_classes else 0
        return torch.sub(Z, self.columns[number] - self.shift).exp2_()


def _own_proxies(p: Tensor, inverse: Tensor, y: Tensor, some: bool, like: Tensor) -> Tensor:
    """Rows y of p as unit vectors; 0 where y is -1, if `some` are."""
    if not some:
        return p.index_select(0, y) * inverse.index_select(0, y)[:, None]
    found, held = torch.zeros_like(like), (y >= 0).nonzero()[:, 0]
    found[held] = (p[y[held]] * inverse[y[held]][:, None]).to(like.dtype)
    return found


def _turned(d_unit: Tensor, unit: Tensor, inverse: Tensor) -> Tensor:
    """The gradient of vectors from that of their directions: only what is at right angles turns."""
    d_unit.addcmul_(unit, _dots(d_unit, unit)[:, None], value=-1)
    return d_unit.mul_(inverse[:, None])


def _dots(A: Tensor, B: Tensor) -> Tensor:
    return (A * B).sum(dim=1)


def _product(out: Tensor, a: Tensor, b: Tensor, low: torch.dtype, add: bool = False) -> None:
    """out = a b, or out += a b."""
    if not out.dtype == a.dtype == b.dtype == low:
        made = a.to(low) @ b.to(low)
        out.add_(made) if add else out.copy_(made)
    elif add:
        torch.addmm(out, a, b, out=out)
    else:
        torch.mm(a, b, out=out)
