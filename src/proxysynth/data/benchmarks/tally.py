"""How much of a benchmark a copy has: found and published, for each part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..listing import Listing
from .catalogue import Benchmark


@dataclass(frozen=True)
class Tally:
    """Pictures and classes of each part, as pairs: found, published."""

    pictures: dict[str, tuple[int, int]]
    classes: dict[str, tuple[int, int]]

    @property
    def complete(self) -> bool:
        return all(found == published for found, published in self._pairs())

    @property
    def too_many(self) -> bool:
        """Whether there is more than was published: then it is another set."""
        return any(found > published for found, published in self._pairs())

    def __str__(self) -> str:
        counted = []
        for part, (found, published) in self.pictures.items():
            of, classes = self.classes[part]
            few = f" of {of:,} instead of {classes:,} classes" if of != classes else ""
            counted.append(f"{found:,} of {published:,} {part} pictures{few}")
        return ", ".join(counted)

    def _pairs(self) -> list[tuple[int, int]]:
        return [*self.pictures.values(), *self.classes.values()]


def tally(entry: Benchmark, parts: Mapping[str, Listing]) -> Tally:
    """What these listings have of the benchmark; a class without a picture does not count."""
    return Tally(
        {part: (len(parts[part]), n) for part, n in entry.pictures.items()},
        {part: (len(np.unique(parts[part].labels)), n) for part, n in entry.classes.items()},
    )
