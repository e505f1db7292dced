"""Proxies of which each rank holds some rows: how they begin, and their loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from proxysynth.distributed import Shards, check_shardable, sharded_loss
from proxysynth.distributed.process_group import Ranks
from proxysynth.interfaces import Loss, ProxyLoss
from proxysynth.models.proxy_head import ProxyHead
from proxysynth.training.run import Run

AT_ONCE = 1 << 14  # rows drawn at a time


@dataclass(frozen=True)
class ShardedLoss:
    """A loss of all proxies, called on every rank with the rows that it holds.

    Args:
        loss: one that `sharding` can compute in parts.
        shards: which rows are whose.
        negatives: the fraction of the classes that take part in a step.
    """

    loss: Loss
    shards: Shards
    negatives: float = 1.0

    def __call__(
        self, x: Tensor, y: Tensor, p: Tensor, generator: torch.Generator | None = None
    ) -> Tensor:
        return sharded_loss(
            self.loss, x, y, p, self.shards, None, generator, negatives=self.negatives
        )


def make_shards(run: Run, classes: int, ranks: Ranks, mixed: torch.dtype | None) -> Shards | None:
    """Which proxies each rank holds; None where every rank holds all.

    Args:
        mixed: the type of products, see `precision`.
    """
    if not run.shard_proxies:
        return None
    check_shardable(run.loss)
    if mixed == torch.float16 and ranks.world > 1:
        # Scaled gradients overflow on one rank and not on another, which then would part ways.
        raise ValueError(
            "sharded proxies are not trained in float16, the type this device multiplies in: "
            "set precision=float32"
        )
    return Shards(classes, ranks.world, ranks.rank)


def first_proxies(
    run: Run, classes: int, dim: int, shards: Shards | None, generator: torch.Generator
) -> nn.Parameter:
    """The proxies at the start, or a shard's rows of them: the same numbers, however divided."""
    loss = cast(ProxyLoss, run.loss)
    if shards is None:
        return ProxyHead(loss, classes, dim, generator=generator).proxies
    mine = shards.mine
    own = torch.empty(len(mine), dim)
    for start in range(0, mine.stop, AT_ONCE):
        stop = min(start + AT_ONCE, mine.stop)
        # The rows of other ranks are drawn too, and forgotten: the next ones depend on it.
        drawn = ProxyHead(loss, stop - start, dim, generator=generator).proxies.detach()
        low = max(start, mine.start)
        if low < stop:
            own[low - mine.start : stop - mine.start] = drawn[low - start :]
    return nn.Parameter(own)


def whole_norm(
    parameters: list[nn.Parameter], proxies: nn.Parameter, sharded: bool, ranks: Ranks
) -> Tensor:
    """The length of the gradient of everything, proxies that other ranks hold among it."""
    held = [p.grad for p in parameters if p.grad is not None and not (sharded and p is proxies)]
    norm = nn.utils.get_total_norm(held)
    if sharded and proxies.grad is not None:
        norm = (norm**2 + ranks.sum(proxies.grad.norm() ** 2)).sqrt()
    return norm
