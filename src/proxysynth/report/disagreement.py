"""Queries that one run gets right and another wrong."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .examples import CHUNK, Embedded, Example, look_up

SHOWN = 4  # queries of each kind


@dataclass(frozen=True)
class Disagreement:
    """Two runs over the same queries; right means that the nearest neighbour is.

    Attributes:
        first, second: the names of the runs.
        both, neither, only_first, only_second: how many queries.
        first_right: examples that only the first gets right, as each run answers them.
        second_right: the same the other way round.
    """

    first: str
    second: str
    both: int
    neither: int
    only_first: int
    only_second: int
    first_right: tuple[tuple[Example, Example], ...]
    second_right: tuple[tuple[Example, Example], ...]

    @property
    def queries(self) -> int:
        """How many there are in all."""
        return self.both + self.neither + self.only_first + self.only_second

    def to_json(self) -> dict[str, Any]:
        """The counts, and the indices of the queries that are shown."""
        shown = {"first_right": self.first_right, "second_right": self.second_right}
        counts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in shown}
        return counts | {
            name: [example.query for example, _ in pairs] for name, pairs in shown.items()
        }


def disagreement(
    first: str, a: Embedded, second: str, b: Embedded, shown: int = SHOWN, seed: int = 0
) -> Disagreement:
    """Compare what two runs answer. The seed draws which queries are shown.

    Args:
        first, a, second, b: names and embeddings of the same pictures in the same order.
    """
    if not np.array_equal(a.labels, b.labels):
        raise ValueError(
            f"{first} and {second} were tested on other pictures, so no query can be compared"
        )
    queries = a.answerable()
    of_a, of_b = _right(a, queries), _right(b, queries)
    draw = np.random.default_rng(seed)

    def pick(which: np.ndarray) -> tuple[tuple[Example, Example], ...]:
        chosen = draw.permutation(queries[which])[:shown].tolist()
        return tuple(zip(look_up(a, chosen), look_up(b, chosen), strict=True))

    return Disagreement(
        first,
        second,
        both=int((of_a & of_b).sum()),
        neither=int((~of_a & ~of_b).sum()),
        only_first=int((of_a & ~of_b).sum()),
        only_second=int((~of_a & of_b).sum()),
        first_right=pick(of_a & ~of_b),
        second_right=pick(~of_a & of_b),
    )


def _right(data: Embedded, queries: np.ndarray) -> np.ndarray:
    """Whether the nearest neighbour is right, (len(queries),)."""
    found = [
        example.right
        for at in range(0, len(queries), CHUNK)
        for example in look_up(data, queries[at : at + CHUNK].tolist(), k=1)
    ]
    return np.array(found, dtype=bool)
