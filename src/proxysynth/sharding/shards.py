"""Shards: which classes a process holds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
