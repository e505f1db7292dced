"""What is known of a run's data without opening it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from proxysynth.training.record import Result
from proxysynth.training.run_folder import Recorded


@dataclass(frozen=True)
class DataFacts:
    """Names, hashes and numbers of the data.

    Attributes:
        name: what the user asked for.
        fingerprint, test_fingerprint: of all of it, and of what is tested alone.
        train_classes, train_pictures, test_classes, query_pictures, gallery_pictures: how many;
            None for a gallery where the queries are their own.
        shared_classes: how many of the test classes were trained on too.
        remarks: sentences that a reader of the numbers must know.
    """

    name: str
    fingerprint: str
    test_fingerprint: str
    train_classes: int
    train_pictures: int
    test_classes: int
    query_pictures: int
    gallery_pictures: int | None
    shared_classes: int
    remarks: tuple[str, ...]

    @property
    def title(self) -> str:
        """The name without the way to it."""
        return os.path.basename(self.name.rstrip("/\\")) or self.name

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def data_facts(recorded: Recorded, result: Result, classes: Sequence[str]) -> DataFacts:
    """The facts as a run wrote them down; `classes` are those of the test."""
    told = result.data
    gallery = told.get("gallery")
    return DataFacts(
        name=told["name"],
        fingerprint=told["fingerprint"],
        test_fingerprint=told["test_fingerprint"],
        train_classes=told["train"]["classes"],
        train_pictures=told["train"]["pictures"],
        test_classes=told["query"]["classes"],
        query_pictures=told["query"]["pictures"],
        gallery_pictures=None if gallery is None else gallery["pictures"],
        shared_classes=len(set(recorded.classes) & set(classes)),
        remarks=result.notes,
    )
