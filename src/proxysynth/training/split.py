"""How a run's pictures are split, as a value."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

# What is done to the splits after they were opened, whatever the data.
OF_THE_RUN = (
    "validation_fraction",
    "validation_seed",
    "train_pictures",
    "test_pictures",
    "fold",
    "folds",
)


@dataclass(frozen=True)
class Split:
    """Which classes are seen and which are not. What is left at None is the data set's to say.

    Args:
        unseen_fraction, seed, order, unseen_classes, seen_classes: the rule for a folder's or a
            table's classes, see `data.ClassSplit`; `seed` also chooses glyphs.
        train, test, query, gallery, validation: sub-folders of a folder instead of a rule.
        root: where the paths of a table start.
        incomplete: take what is there of a benchmark that is not all there.
        train_classes, test_classes, faces_per_class, query_faces, test_faces: which glyphs, see
            `data.glyphs`.
        train_pictures, test_pictures: at most so many, spread evenly over the classes.
        fold, folds: one of so many parts of the seen classes is the test, the others are trained
            on, and the unseen classes are left alone; None for no such thing.
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
    query_faces: int | None = None
    test_faces: int | None = None
    incomplete: bool | None = None
    train_pictures: int | None = None
    test_pictures: int | None = None
    fold: int | None = None
    folds: int = 4
    validation_fraction: float = 0.2
    validation_seed: int = 0

    def __post_init__(self) -> None:
        for name in ("unseen_fraction", "validation_fraction"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ValueError(f"Split: {name} must lie between 0 and 1, got {value!r}")
        if self.folds < 2 or (self.fold is not None and not 0 <= self.fold < self.folds):
            raise ValueError(
                f"Split: fold must be 0 to folds - 1 of at least 2 folds, got fold={self.fold!r} "
                f"of folds={self.folds!r}"
            )
        for name in ("train_pictures", "test_pictures"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"Split: {name} must be at least 1, got {value!r}")

    def options(self) -> dict[str, Any]:
        """What was said, as the keyword arguments of `data.open_data`."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in OF_THE_RUN:
            del said[name]
        return {name: value for name, value in said.items() if value not in (None, ())}
