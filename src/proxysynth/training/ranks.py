"""Ranks: the processes that train one run together, and how they exchange numbers and words.

A rank is a process with a number from 0 on; the first one writes the files and speaks. With one
process alone every exchange gives back what it got, so that nothing else has to ask how many there
are. What travels are tensors and JSON: nothing is unpickled.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Ranks:
    """Which process of how many this one is.

    Args:
        rank: its number, from 0 on.
        world: how many there are.
        store: the group's board of notes, by which the ranks agree who speaks when one fails.
    """

    rank: int = 0
    world: int = 1
    store: dist.Store | None = field(default=None, compare=False, repr=False)

    @property
    def first(self) -> bool:
        """Whether this is the rank that writes files and speaks."""
        return self.rank == 0

    def counts(self, n: int) -> list[int]:
        """How many of n rows each rank has: equally many, one more for the first n % world."""
        return [n // self.world + (rank < n % self.world) for rank in range(self.world)]

    def parts(self, n: int) -> list[slice]:
        """Which of n rows are each rank's: ranges in order."""
        ends = list(accumulate(self.counts(n)))
        return [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]

    def part(self, n: int) -> slice:
        """Which of n rows are this rank's."""
        return self.parts(n)[self.rank]

    def rows(self, own: Tensor, n: int) -> Tensor:
        """The n rows of all ranks one below the other, from each rank's `part`. No gradient."""
        return self.stack(own, self.counts(n))

    def stack(self, own: Tensor, counts: Sequence[int]) -> Tensor:
        """Every rank's rows one below the other; `counts` says how many each has. No gradient."""
        if self.world == 1:
            return own
        # Collectives want equal shapes: smaller parts get rows more, which are cut off again.
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the ranks."""
        if self.world == 1:
            return values
        made = values.contiguous().clone()
        dist.all_reduce(made)
        return made

    def mean_(self, values: Tensor) -> None:
        """Replace values by their mean over the ranks, so that all have the same bits."""
        if self.world > 1:
            dist.all_reduce(values)
            values /= self.world

    def all(self, flag: bool) -> bool:
        """Whether it is so on every rank."""
        return all(self.ask(flag)) if self.world > 1 else flag

    def tell(self, value: Any) -> Any:
        """What the first rank says, on every rank: anything that JSON can hold."""
        if self.world == 1:
            return value
        text = json.dumps(value).encode() if self.first else b""
        size = torch.tensor([len(text)])
        dist.broadcast(size, 0)
        data = _bytes(text) if self.first else torch.empty(int(size), dtype=torch.uint8)
        dist.broadcast(data, 0)
        return json.loads(data.numpy().tobytes())

    def ask(self, value: Any) -> list[Any]:
        """What every rank says, in their order, on every rank."""
        if self.world == 1:
            return [value]
        text = _bytes(json.dumps(value).encode())
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(text)]))
        padded = torch.zeros(max(map(int, sizes)), dtype=torch.uint8)
        padded[: len(text)] = text
        told = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(told, padded)
        return [
            json.loads(part[: int(size)].numpy().tobytes())
            for part, size in zip(told, sizes, strict=True)
        ]

    def tell_tensors(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The first rank's tensors, on the CPU of every rank; what the others bring is unused."""
        if self.world == 1:
            return dict(tensors)
        shapes = [(name, list(t.shape), str(t.dtype)) for name, t in tensors.items()]
        made = {}
        for name, shape, kind in self.tell(shapes):
            if self.first:
                made[name] = tensors[name].cpu().contiguous()
            else:
                made[name] = torch.empty(shape, dtype=getattr(torch, kind.removeprefix("torch.")))
            dist.broadcast(made[name], 0)
        return made

    def wait(self) -> None:
        """Until every rank is here."""
        self.ask(None)


ALONE = Ranks()
"""One process."""


def _bytes(text: bytes) -> Tensor:
    return torch.frombuffer(bytearray(text), dtype=torch.uint8) if text else torch.empty(
        0, dtype=torch.uint8
    )  # fmt: skip
