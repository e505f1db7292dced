"""A loss whose proxies are divided over processes: each holds a range of the classes.

Every process has the embeddings and labels of the whole batch, and the proxies of c / world
classes. Exchanged are the logits (n, n) and proxies (n, d) of the batch's own classes, the sums of
each row (for Proxy-anchor a single number), and the gradient of the embeddings (n, d). Synthetic
classes are made of the batch's own proxies, so every process makes the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from proxysynth.distributed.process_group import Ranks
from proxysynth.formatting import count
from proxysynth.interfaces import Loss
from proxysynth.losses.functional import check_batch, check_labels, class_sums_of
from proxysynth.regularizers.class_sums import LossFromSums
from proxysynth.regularizers.pairs import draw_seed
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis


@dataclass(frozen=True)
class Shards:
    """The classes in ranges of equal size, one per process; the first ones may have one more."""

    classes: int  # c, of all processes together
    world: int = 1  # how many processes there are
    rank: int = 0  # which of them this is

    def __post_init__(self) -> None:
        if self.world < 1 or not 0 <= self.rank < self.world:
            raise ValueError(f"Shards: rank must lie in 0..{self.world - 1}, got {self.rank}")
        if self.classes < self.world:
            few = f"{count(self.classes, 'class', 'classes')} cannot be divided over {self.world}"
            raise ValueError(f"{few} processes: start fewer, or do not shard the proxies")

    @property
    def rows(self) -> slice:
        """`p[shards.rows]` is this process's part of all proxies."""
        return Ranks(self.rank, self.world).part(self.classes)

    @property
    def mine(self) -> range:
        """The classes that this process holds."""
        return range(self.classes)[self.rows]

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
    group: dist.ProcessGroup | None = None,
    generator: torch.Generator | None = None,
    negatives: float = 1.0,
    block: int | None = None,
) -> Tensor:
    """The loss of all proxies together, the same number on every process.

    After `backward` on every process, x.grad is the whole gradient, the same on every process, and
    p_shard.grad that of this process's rows: neither is to be summed over the processes.

    Args:
        loss: Softmax, Norm-softmax, SphereFace, CosFace, ArcFace or Proxy-anchor, or
            ProxySynthesis over one of them.
        x, y: embeddings (n, d) and labels of the whole batch, the same on every process.
        p_shard: `p[shards.rows]` of the proxies p.
        group: of the processes; None is torch's default one. Not used where there is one process.
        generator: in the same state on every process; None is torch's own, which then must be.
        negatives: the fraction of the classes that take part in this step, besides those of the
            batch. The loss is computed over these alone, and underestimates that over all classes.
        block: classes per block; None chooses.
    """
    check_shardable(loss)
    check_fraction(negatives)
    group = (group or dist.group.WORLD) if shards.world > 1 else None
    if p_shard.dim() == 2 and len(p_shard) != len(shards.mine):
        holder = f"process {shards.rank} of {shards.world} holds {len(shards.mine)} classes"
        raise ValueError(f"{holder}, but p_shard has {len(p_shard)} rows: give p[shards.rows]")
    check_labels(y, len(x), shards.classes)
    check_batch(x, torch.zeros_like(y), p_shard)
    y = y.long()
    draw = loss.draw(y, generator) if isinstance(loss, ProxySynthesis) else None
    place, classes = shards.local(y), shards.classes
    if negatives < 1:
        picked = sampled_classes(shards.mine, y, negatives, draw_seed(generator))
        place = torch.where(place >= 0, torch.searchsorted(picked, y), -1)
        p_shard, classes = p_shard.index_select(0, picked - shards.mine.start), len(picked)
        if group is not None:
            total = torch.tensor(classes, device=x.device)
            dist.all_reduce(total, group=group)
            classes = int(total)
    # Keeping the logits would save one of four products, at the cost of their memory.
    return LossFromSums(loss, place, draw, y, classes, group, block, keep=False)(x, p_shard)


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
    return sharded_loss(loss, x, y, p, Shards(len(p)), None, generator, negatives, block)


def check_shardable(loss: object) -> None:
    inner = loss.loss if isinstance(loss, ProxySynthesis) else loss
    if class_sums_of(inner) is None:
        raise ValueError(
            f"{type(inner).__name__} cannot be computed on shards of the proxies: choose softmax, "
            "norm_softmax, sphereface, cosface, arcface or proxy_anchor, or shard_proxies=false"
        )


def sampled_classes(classes: range, present: Tensor, fraction: float, seed: int) -> Tensor:
    """The classes that take part, in order: all that are `present` (labels of the batch), and each
    of the others if a hash of the step's seed and the class, a number in [0, 1), is below
    `fraction`. The choice does not depend on the number of processes."""
    # The output of the splitmix64 generator at the place of each class.
    place = np.arange(classes.start + 1, classes.stop + 1, dtype=np.uint64)
    z = np.uint64(seed) + place * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    uniform = ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    takes_part = uniform < fraction
    own = present[(present >= classes.start) & (present < classes.stop)].cpu().numpy()
    takes_part[own - classes.start] = True
    return torch.from_numpy(np.flatnonzero(takes_part) + classes.start).to(present.device)


def check_fraction(negatives: float) -> None:
    if isinstance(negatives, bool) or not 0 < negatives <= 1:
        raise ValueError(f"negatives must be a fraction above 0 and up to 1, got {negatives!r}")
