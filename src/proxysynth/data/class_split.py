"""The rule that splits the classes of one listing into seen and unseen ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from proxysynth.values import nearest

from .listing import Listing, shuffled_names
from .splits import Splits, require_usable


@dataclass(frozen=True)
class ClassSplit:
    """Which classes are trained on and which are kept for the test. No class is in both.

    By default half of the classes, drawn by their names: the order is a hash of name and seed, so
    it is the same on every machine, and a class added later leaves the order of the others.

    Args:
        unseen_fraction: how many of the classes are unseen, rounded to a whole number.
        seed: draws them.
        order: "shuffled" draws; "sorted" takes the last in alphabetical order, as the benchmarks
            of the literature do.
        unseen_classes: these instead of a fraction.
        seen_classes: these are trained on; others that are not unseen either are left out.
    """

    unseen_fraction: float = 0.5
    seed: int = 0
    order: Literal["shuffled", "sorted"] = "shuffled"
    unseen_classes: tuple[str, ...] = ()
    seen_classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.unseen_fraction < 1:
            raise ValueError(
                f"unseen_fraction must lie between 0 and 1, got {self.unseen_fraction}"
            )
        if self.order not in ("shuffled", "sorted"):
            raise ValueError(f"order must be 'shuffled' or 'sorted', got {self.order!r}")
        both = sorted(set(self.unseen_classes) & set(self.seen_classes))
        if both:
            raise ValueError(f"a class is either seen or unseen, got both for {', '.join(both)}")

    def classes(self, names: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The seen and the unseen of these classes, each in alphabetical order."""
        for name in (*self.seen_classes, *self.unseen_classes):
            if name not in names:
                raise ValueError(f"no class {name!r} in the data: {nearest(name, names)}")
        if self.unseen_classes:
            unseen = set(self.unseen_classes)
        elif self.seen_classes:
            unseen = set(names) - set(self.seen_classes)
        else:
            ordered = shuffled_names(names, self.seed)
            if self.order == "sorted":
                ordered = sorted(names, reverse=True)
            unseen = set(ordered[: round(self.unseen_fraction * len(names))])
        seen = set(self.seen_classes) or set(names) - unseen
        return sorted(seen), sorted(unseen)

    def __call__(self, listing: Listing, name: str = "", notes: tuple[str, ...] = ()) -> Splits:
        """The splits of a listing; an error where either side has fewer than two classes."""
        seen, unseen = self.classes(listing.classes)
        if min(len(seen), len(unseen)) < 2:
            raise ValueError(
                f"of the classes found ({len(listing.classes)}), {len(seen)} would be trained on "
                f"and {len(unseen)} tested on, each needs at least 2: add classes, or name the "
                "unseen ones"
            )
        return require_usable(
            Splits(
                train=listing.of_classes(seen),
                query=listing.of_classes(unseen),
                name=name,
                notes=notes,
            )
        )
