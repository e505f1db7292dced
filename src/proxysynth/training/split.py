"""How a run's pictures are split, as a value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True)
class Split:
    """Which classes are seen and which are not. What is left at None is the data set's to say.

    Args:
        unseen_fraction, seed, order, unseen_classes, seen_classes: the rule for a folder's or a
            table's classes, see `data.ClassSplit`; `seed` also chooses glyphs.
        train, test, query, gallery, validation: sub-folders of a folder instead of a rule.
        root: where the paths of a table start.
        train_classes, test_classes, faces_per_class: how many glyphs.
        validation_fraction, validation_seed: the seen classes held out of training when the best
            epoch is chosen on them; unused otherwise.
    """

    unseen_fraction: float | None = None
    seed: int | None = None
    order: Literal["shuffled", "sorted"] | None = None
    unseen_classes: tuple[str, ...] = ()
    seen_classes: tuple[str, ...] = ()
    train: str | None = None
    test: str | None = None
    query: str | None = None
    gallery: str | None = None
    validation: str | None = None
    root: str | None = None
    train_classes: int | None = None
    test_classes: int | None = None
    faces_per_class: int | None = None
    validation_fraction: float = 0.2
    validation_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("unseen_fraction", "validation_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"Split: {name} must lie between 0 and 1, got {value!r}")

    def options(self) -> dict[str, Any]:
        """What was said, as the keyword arguments of `data.open_data`."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        del said["validation_fraction"], said["validation_seed"]
        return {name: value for name, value in said.items() if value not in (None, ())}
