"""What the processes of the sharding tests compute, and what it is compared with."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import proxysynth as ps
from batches import EVERY_LOSS, batch
from proxysynth.losses.functional import class_sums_of

WORLDS = (1, 2, 3, 4)
LOSSES = {name: loss for name, loss in EVERY_LOSS.items() if class_sums_of(loss) is not None}
SETTINGS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "synthesis": {},
    "few, of their own share": {"mu": 0.4, "per_pair": True},
    "many, merged, of fixed share": {"mu": 1.7, "lam": 0.3, "duplicates": "merge"},
    "M2": {"embeddings": "synthetic", "proxies": "synthetic"},
    "M3": {"embeddings": "original", "proxies": "both"},
    "M4": {"embeddings": "synthetic", "proxies": "both"},
}


@dataclass(frozen=True)
class Case:
    world: int
    name: str
    setting: str
    classes: int = 11
    dtype: torch.dtype = torch.float64
    negatives: float = 1.0
    block: int | None = 2

    @property
    def loss(self) -> Any:
        fields = SETTINGS[self.setting]
        plain = LOSSES[self.name]
        return plain if fields is None else ps.ProxySynthesis(plain, **fields)

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return batch(LOSSES[self.name], n=9, c=self.classes, d=5, dtype=self.dtype)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


# Pairwise: every loss with every setting, each at one of the numbers of processes. Besides: classes
# that divide evenly, one class a process, float32, one block, sampled classes. A scale of 100 makes
# a rounding error of float32 a hundred times larger: such losses are for float64.
CASES = [
    Case(WORLDS[(number + number // 7) % 4], name, setting)
    for number, (name, setting) in enumerate(itertools.product(LOSSES, SETTINGS))
]
for world in WORLDS:
    CASES += [Case(world, name, "synthesis", 12, torch.float32, block=None)
              for name in ("norm_softmax", "softmax", "proxy_anchor")]  # fmt: skip
    CASES += [Case(world, name, setting, 4, block=None)
              for name, setting in (("softmax", "plain"), ("arcface", "synthesis"),
                                    ("proxy_anchor", "synthesis"))]  # fmt: skip
    CASES += [Case(world, name, setting, 61, negatives=0.3)
              for name, setting in (("norm_softmax", "synthesis"), ("softmax", "M4"),
                                    ("proxy_anchor", "plain"))]  # fmt: skip
# The third of four processes holds no class of the batch, and with M2 nothing that takes part.
CASES += [Case(4, name, "M2", 16) for name in ("softmax", "arcface", "proxy_anchor_steep")]
