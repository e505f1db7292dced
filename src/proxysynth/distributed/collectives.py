"""Gathering rows from all processes, with gradients.

Every process computes the same loss of the whole batch, so each receives the gradient of all rows;
the backward pass sums it over the processes and returns a process its own rows.

Why not torch.distributed.nn.functional.all_gather: it needs equal shapes, while the last batch of
an epoch may leave a process with fewer rows or none, and with gloo its backward pass takes one
scatter for each process instead of one all_reduce.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from proxysynth.distributed.process_group import Ranks


def gather(own: Tensor, n: int, ranks: Ranks) -> Tensor:
    """The n rows of all ranks, of which each has its `part`; gradients flow back to them."""
    if ranks.world == 1:
        return own
    return cast(Tensor, _Gather.apply(own, ranks.counts(n), ranks))


def gather_with_gradient(own: Tensor) -> Tensor:
    """The rows of all processes of torch's default group, for your own training loop.

    Every process may have another number of rows. Give embeddings and labels to it and compute the
    same loss of the whole batch on every process, with the same random state: the gradients that
    arrive at the network are world times too large, which DistributedDataParallel's mean corrects.
    Without a process group, or with one process, it returns its argument.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return own
    ranks = Ranks(dist.get_rank(), dist.get_world_size())
    counts = ranks.all_gather(len(own))
    if not own.requires_grad:
        return ranks.gather_uneven(own, counts)
    return cast(Tensor, _Gather.apply(own, counts, ranks))


class _Gather(torch.autograd.Function):
    """Forward: the rows of all ranks. Backward: own rows of the gradient's sum over the ranks."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int], ranks: Ranks) -> Tensor:
        start = sum(counts[: ranks.rank])
        ctx.rows, ctx.ranks = slice(start, start + len(own)), ranks
        return ranks.gather_uneven(own, counts)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.sum(grads[0])[ctx.rows], None, None
