"""A loss whose proxies are divided over processes.

The embeddings and labels of the whole batch are on every process, the proxies of c / world classes.
What travels: the batch's own proxies (n, d), one number for each row of logits to find the largest,
one to add the exponentials up (for Proxy-anchor a single one instead of both), and on the way back
the embeddings' gradient (n, d). The synthetic classes are made of the batch's own proxies, so every
process makes the same ones. Each visits its own classes in blocks.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from proxysynth.interfaces import Loss
from proxysynth.losses.checks import check_batch, check_labels
from proxysynth.regularizers.blocked import (
    Taking,
    assembled,
    checked_block,
    product_type,
    visited,
)
from proxysynth.regularizers.fused_families import Family, Rows, family_of
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.sharding.collectives import (
    Group,
    logsumexp_of,
    sum_of_numbers,
    to_parts,
    total_of,
)
from proxysynth.sharding.negatives import check_fraction, draw_seed, sampled_classes
from proxysynth.sharding.shards import Shards


def sharded_loss(
    loss: Loss,
    x: Tensor,
    y: Tensor,
    p_shard: Tensor,
    shards: Shards,
    group: Group = None,
    generator: torch.Generator | None = None,
    negatives: float = 1.0,
    block: int | None = None,
) -> Tensor:
    """The loss of all proxies together, the same number on every process.

    After `backward` on every process, x.grad is the whole gradient, the same on every process (a
    caller who gathered x takes the rows it gave, with no further sum), and p_shard.grad is the
    gradient of this process's rows (with no further sum either).

    Args:
        loss: Softmax, Norm-softmax, SphereFace, CosFace, ArcFace or Proxy-anchor, or
            ProxySynthesis over one of them.
        x, y: embeddings (n, d) and labels of the whole batch, the same on every process.
        p_shard: `p[shards.rows]` of the proxies p.
        group: of the processes; None is torch's default one. Not used where there is one process.
        generator: in the same state on every process; None is torch's own, which then must be.
        negatives: the fraction of the classes that take part in this step, besides those of the
            batch: what is computed is the loss over these classes alone, as if there were no
            others. That is not an unbiased estimate of the loss over all: fewer strangers, smaller
            sums. The gradient of a class that does not take part is zero.
        block: classes visited at a time; None chooses by what is free.
    """
    family = check_shardable(loss)
    check_fraction(negatives)
    y = _checked(x, y, p_shard, shards)
    taking = Taking()
    if isinstance(loss, ProxySynthesis):
        taking = Taking(loss.draw(y, generator), loss.embeddings, loss.proxies)
    held = place = shards.local(y)
    chosen, classes = None, shards.classes
    if negatives < 1:
        picked = sampled_classes(shards.mine, y, negatives, draw_seed(generator))
        place = torch.where(held >= 0, torch.searchsorted(picked, y), -1)
        chosen, classes = picked - shards.mine.start, len(picked)
        if shards.world > 1:
            classes = sum_of_numbers(classes, x.device, group)
    size, low = checked_block(block, taking, x), product_type(x)
    plan = taking.tour(place, held, None, size, low)
    if chosen is not None and taking.visits:
        plan = replace(plan, chosen=chosen)

    def visit(x: Tensor) -> tuple[Tensor, Tensor, int]:
        if shards.world == 1:
            sums, q = visited(family, x, p_shard, plan)
            return sums, q, classes
        sums, q = visited(family, to_parts(x, group), p_shard, plan)
        together = logsumexp_of if isinstance(family, Rows) else total_of
        return together(sums, group), total_of(q, group), classes

    with torch.autocast(x.device.type, enabled=False):
        return assembled(family, x, y, taking, visit, size, low)


def blocked_loss(
    loss: Loss,
    x: Tensor,
    y: Tensor,
    p: Tensor,
    generator: torch.Generator | None = None,
    negatives: float = 1.0,
    block: int | None = None,
) -> Tensor:
    """`loss(x, y, p)` in memory that does not grow with the number of classes, in one process."""
    shards = Shards(len(p))
    return sharded_loss(loss, x, y, p, shards, None, generator, negatives, block)


def check_shardable(loss: object) -> Family:
    """How the loss is computed in parts; an error if it cannot be."""
    inner = loss.loss if isinstance(loss, ProxySynthesis) else loss
    family = family_of(inner)
    if family is None:
        raise ValueError(
            f"{type(inner).__name__} cannot be computed on shards of the proxies: choose softmax, "
            "norm_softmax, sphereface, cosface, arcface or proxy_anchor, or shard_proxies=false"
        )
    return family


def _checked(x: Tensor, y: Tensor, p_shard: Tensor, shards: Shards) -> Tensor:
    if p_shard.dim() == 2 and len(p_shard) != len(shards.mine):
        raise ValueError(
            f"process {shards.rank} of {shards.world} holds {len(shards.mine)} of {shards.classes} "
            f"classes, but its part of the proxies has {len(p_shard)} rows: give p[shards.rows]"
        )
    check_labels(y, len(x), shards.classes)
    check_batch(x, torch.zeros_like(y), p_shard)
    return y.long()
