"""Which classes take part in a step when not all do: a fraction of them, by a hash of each.

A class is in if a number made of the step's seed and the class alone falls below the fraction: no
process needs to know of the others' classes, and the choice does not depend on how many there are.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

PIECE = 2**16
"""Classes hashed at a time: what this takes besides its answer does not grow with them."""


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
