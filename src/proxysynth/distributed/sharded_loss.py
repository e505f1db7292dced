"""A loss whose proxies are divided over processes.

The embeddings and labels of the whole batch are on every process, the proxies of c / world classes.
What travels: the batch's own proxies (n, d), one number for each row of logits to find the largest,
one to add the exponentials up (for Proxy-anchor a single one instead of both), and on the way back
the embeddings' gradient (n, d). The synthetic classes are made of the batch's own proxies, so every
process makes the same ones. Each visits its own classes in blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from proxysynth.distributed.collectives import (
    Group,
    copy_to_shards,
    reduce_logsumexp,
    reduce_sum,
    sum_int,
)
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

PIECE = 2**16
"""Classes hashed at a time: what this takes besides its answer does not grow with them."""


@dataclass(frozen=True)
class Shards:
    """The classes in ranges of equal size, one for each process; the first ones may have one more.

    Args:
        classes: c, of all processes together.
        world: how many processes there are.
        rank: which of them this is, from 0 on.
    """

    classes: int
    world: int = 1
    rank: int = 0

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise ValueError(
                f"Shards: rank must lie in 0..{self.world - 1} of {self.world} processes, "
                f"got {self.rank}"
            )
        if self.classes < self.world:
            raise ValueError(
                f"{self.classes} classes cannot be divided over {self.world} processes: "
                f"start at most {self.classes}, or do not shard the proxies"
            )

    def range_of(self, rank: int) -> range:
        """The classes that a process holds."""
        each, more = divmod(self.classes, self.world)
        start = rank * each + min(rank, more)
        return range(start, start + each + (rank < more))

    @property
    def mine(self) -> range:
        """The classes that this process holds."""
        return self.range_of(self.rank)

    @property
    def rows(self) -> slice:
        """`p[shards.rows]` is this process's part of all proxies."""
        return slice(self.mine.start, self.mine.stop)

    def local(self, y: Tensor) -> Tensor:
        """Labels as rows of this process's part; -1 where another process holds the class."""
        start, stop = self.mine.start, self.mine.stop
        return torch.where((y >= start) & (y < stop), y - start, -1)


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
            classes = sum_int(classes, x.device, group)
    size, low = checked_block(block, taking, x), product_type(x)
    plan = taking.tour(place, held, None, size, low)
    if chosen is not None and taking.visits:
        plan = replace(plan, chosen=chosen)

    def visit(x: Tensor) -> tuple[Tensor, Tensor, int]:
        if shards.world == 1:
            sums, q = visited(family, x, p_shard, plan)
            return sums, q, classes
        sums, q = visited(family, copy_to_shards(x, group), p_shard, plan)
        together = reduce_logsumexp if isinstance(family, Rows) else reduce_sum
        return together(sums, group), reduce_sum(q, group), classes

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


# Which classes take part in a step when not all do: a class is in if a hash of the step's seed
# and the class falls below the fraction, so no process needs to know the others' classes.


def sampled_classes(classes: range, present: Tensor, fraction: float, seed: int) -> Tensor:
    """Those of these classes that take part, in order: all that are `present` (labels of the
    batch), and of the others each with probability `fraction`."""
    kept = []
    for start in range(classes.start, classes.stop, PIECE):
        piece = np.arange(start, min(start + PIECE, classes.stop), dtype=np.uint64)
        kept.append(piece[_uniform(piece, seed) < fraction].astype(np.int64))
    labels = present.detach().unique().cpu().numpy()
    labels = labels[(labels >= classes.start) & (labels < classes.stop)]
    found = np.union1d(np.concatenate(kept), labels)
    return torch.from_numpy(found).to(present.device)


def draw_seed(generator: torch.Generator | None) -> int:
    """The seed of a step's choice, from the generator that the step's other draws come from."""
    device = generator.device if generator is not None else "cpu"
    return int(torch.randint(2**63 - 1, (), generator=generator, device=device))


def check_fraction(negatives: float) -> None:
    if isinstance(negatives, bool) or not 0 < negatives <= 1:
        raise ValueError(
            "negatives must be a fraction of the classes above 0 and up to 1 (all of them), "
            f"got {negatives!r}"
        )


def _uniform(classes: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each class: the splitmix64 generator's output at that place."""
    z = np.uint64(seed) + (classes + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
