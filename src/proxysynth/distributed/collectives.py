"""Sums over processes, with gradients.

Every process computes one and the same loss. What is before a sum belongs to a process alone, what
is behind it is the same on all: the gradient that comes back there is complete, and is passed on as
it is. The other way round, what is the same on all processes and enters the part of each has its
gradient there in parts, which are added up.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from proxysynth.distributed.process_group import Ranks

Group = dist.ProcessGroup | None


def reduce_sum(part: Tensor, group: Group) -> Tensor:
    """The sum of every process's part, on all of them."""
    made: Tensor = _Total.apply(part, group)
    return made


def copy_to_shards(whole: Tensor, group: Group) -> Tensor:
    """What is the same on all processes, on its way into the part of each."""
    made: Tensor = _ToParts.apply(whole, group)
    return made


def reduce_logsumexp(part: Tensor, group: Group) -> Tensor:
    """log of the sum over processes of exp(part); -inf where every part is."""
    made: Tensor = _LogSumExp.apply(part, group)
    return made


def sum_int(value: int, device: torch.device, group: Group) -> int:
    """The sum of a whole number over processes."""
    held = torch.tensor(value, device=device)
    dist.all_reduce(held, group=group)
    return int(held)


def gather(own: Tensor, n: int, ranks: Ranks) -> Tensor:
    """The rows of all ranks, n together, through which gradients flow back to their owners."""
    if ranks.world == 1:
        return own
    return cast(Tensor, _Gather.apply(own, n, ranks))


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group) -> Tensor:
        made = part.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(made, group=group)
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _ToParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, whole: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        made = grads[0].clone(memory_format=torch.contiguous_format)
        dist.all_reduce(made, group=ctx.group)
        return made, None


class _LogSumExp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Group) -> Tensor:
        top = part.clamp_min(torch.finfo(part.dtype).min)
        dist.all_reduce(top, dist.ReduceOp.MAX, group=group)
        made = (part - top).exp_()
        dist.all_reduce(made, group=group)
        made = made.log_().add_(top)
        # Where no process has a term there is no gradient either, instead of inf - inf.
        ctx.save_for_backward(part, made.clamp_min(torch.finfo(part.dtype).min))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        part, made = ctx.saved_tensors
        return (part - made).exp_().mul_(grads[0]), None


class _Gather(torch.autograd.Function):
    """Forward: everyone's rows below each other. Backward: their sum over the ranks, own rows."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n: int, ranks: Ranks) -> Tensor:
        ctx.n, ctx.ranks = n, ranks
        return ranks.rows(own, n)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.sum(gradient)[ctx.ranks.part(ctx.n)], None, None
