"""Rows gathered from all processes, through which gradients flow back."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from proxysynth.distributed.process_group import Ranks


def gather(own: Tensor, n: int, ranks: Ranks) -> Tensor:
    """The rows of all ranks, n together, through which gradients flow back to their owners."""
    if ranks.world == 1:
        return own
    return cast(Tensor, _Gather.apply(own, n, ranks))


class _Gather(torch.autograd.Function):
    """Forward: everyone's rows below each other. Backward: their sum over the ranks, own rows."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, n: int, ranks: Ranks) -> Tensor:
        ctx.n, ctx.ranks = n, ranks
        return ranks.gather_rows(own, n)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.sum(gradient)[ctx.ranks.part(ctx.n)], None, None
