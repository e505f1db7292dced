"""Thresholds: how similar must two images be to count as the same class?

Over all pairs of images, a threshold t accepts those with a cosine similarity s >= t.

    TAR(t)        accepted pairs of one class / all pairs of one class           (true accepts)
    FAR(t)        accepted pairs of two classes / all pairs of two classes       (false accepts)
    precision(t)  accepted pairs of one class / all accepted pairs
    F1(t)         the harmonic mean of precision and TAR
    EER           the rate at the t where FAR(t) = 1 - TAR(t)

The pairs are counted in cells of width 2^-15, so memory does not grow with their number, and the
counts at multiples of 2^-15 are exact. All thresholds here are such multiples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.knn import Array, Sets, as_sets, normalize_rows_

CELLS_PER_UNIT = 2**15
CELLS = 2 * CELLS_PER_UNIT + 1  # from -1 to 1; the last cell is for similarities of 1
BLOCK = 2**21  # similarities held at once

TARGETS = ("far=0.1", "far=0.01", "far=0.001", "f1", "eer")
"""What a threshold can be fitted to: a false accept rate, the best F1, or equal error rates."""

DEFAULT_TARGET, UNKNOWN_TARGET = "far=0.01", "far=0.05"
"""For pairs of images; for an image and the nearest proxy."""

CURVE = tuple(10 ** (-exponent / 8) for exponent in range(32, -1, -1))  # FARs of a ROC curve


@dataclass(frozen=True, eq=False)
class PairCounts:
    """Histograms of similarities, (CELLS,) each, of pairs of the same and of different classes.

    Cell i counts the similarities from i / 2^15 - 1 to just below those of cell i + 1.
    """

    same: NDArray[np.int64]
    different: NDArray[np.int64]

    @property
    def of_both_kinds(self) -> bool:
        return bool(self.same.any() and self.different.any())

    def rates(self, threshold: float) -> dict[str, float]:
        """TAR, FAR, precision and F1 at a threshold; the rate of no pairs is 0."""
        cell = min(CELLS, max(0, math.ceil((threshold + 1) * CELLS_PER_UNIT)))
        accepted, wrong = int(self.same[cell:].sum()), int(self.different[cell:].sum())
        same, different = int(self.same.sum()), int(self.different.sum())
        return {
            "tar": accepted / max(1, same),
            "far": wrong / max(1, different),
            "precision": accepted / max(1, accepted + wrong),
            "f1": 2 * accepted / max(1, accepted + wrong + same),
        }

    def fit(self, target: str) -> float | None:
        """The threshold for a target; None if there are too few pairs to tell.

        For a false accept rate it is the lowest threshold that keeps to it, which accepts the most
        pairs of one class; for F1 the middle of the best ones.
        """
        far = parse_target(target)
        if not self.of_both_kinds:
            return None
        same, different = (np.cumsum(each[::-1])[::-1] for each in (self.same, self.different))
        if far is not None:
            if different[0] * far < 1:  # not one pair: the rate cannot be seen
                return None
            kept = np.flatnonzero(different <= far * different[0])
            cell = int(kept[0]) if len(kept) else CELLS - 1
        elif target == "f1":
            f1 = 2 * same / (same + different + same[0])
            best = np.flatnonzero(f1 == f1.max())
            best = best[: int(np.argmax(np.diff(best, append=CELLS + 1) > 1)) + 1]  # in one piece
            cell = int(best[0] + best[-1] + 1) // 2
        else:
            cell = int(np.argmin(np.abs(1.0 - same / same[0] - different / different[0])))
        return cell / CELLS_PER_UNIT - 1

    @property
    def eer(self) -> float:
        """The equal error rate: the mean of both errors where they differ least."""
        threshold = self.fit("eer")
        rates = self.rates(-1.0 if threshold is None else threshold)
        return (1.0 - rates["tar"] + rates["far"]) / 2

    @property
    def auc(self) -> float:
        """How often a pair of one class is more similar than one of two; a tie counts as half."""
        below = np.cumsum(self.different) - self.different
        won = (self.same * (below + self.different / 2)).sum()
        return float(won / max(1, self.same.sum()) / max(1, self.different.sum()))

    def curve(self) -> list[list[float]]:
        """The ROC curve: [FAR, TAR] at the thresholds fitted to the rates of CURVE."""
        fitted = [self.fit(f"far={rate!r}") for rate in CURVE]
        rates = [self.rates(threshold) for threshold in fitted if threshold is not None]
        return [[rate["far"], rate["tar"]] for rate in rates]


def parse_target(target: str) -> float | None:
    """The rate of "far=RATE"; None for "f1" and "eer"."""
    if target in ("f1", "eer"):
        return None
    with suppress(ValueError):
        name, rate = str(target).split("=")
        if name == "far" and 0 < float(rate) <= 1:
            return float(rate)
    raise ValueError(f"target must be f1, eer or far=RATE, such as far=0.01, got {target!r}")


def count_pairs(sets: Sets) -> PairCounts:
    """Count all pairs of two embeddings, or of a query and a gallery item."""
    y, gy, own = sets.y, sets.gallery_y, sets.own
    x = normalize_rows_(sets.x.clone())
    g = x if own else normalize_rows_(sets.gallery.clone())
    every, same = np.zeros(CELLS, np.int64), np.zeros(CELLS, np.int64)
    height = max(1, BLOCK // max(1, len(g)))
    for low in range(0, len(x), height):
        rows = slice(low, min(low + height, len(x)))
        left = rows.start if own else 0  # of own pairs, those above the diagonal
        cells = (x[rows] @ g[left:].T).add_(1).mul_(CELLS_PER_UNIT).floor_().clamp_(0, CELLS - 1)
        if own:
            square = cells[:, : len(cells)]
            square.masked_fill_(torch.ones_like(square, dtype=torch.bool).tril_(), CELLS)
        alike = y[rows, None] == gy[left:]
        for counts, chosen in ((every, cells), (same, cells[alike])):
            numbers = chosen.reshape(-1).to("cpu", torch.int64).numpy()
            counts += np.bincount(numbers, minlength=CELLS + 1)[:CELLS]  # without those marked
    return PairCounts(same, every - same)


# ---- A model's thresholds

FITTED_ON = {
    "held_out": "classes held out of the seen ones; the rates are those on the test classes",
    "test": "the test classes; rates for new classes are estimated by fitting thresholds on one "
    "half of the test classes and applying them to the other half, so with few classes they are "
    "rough",
    "unchecked": "the test classes, which are too few to check the rates on others",
}
"""Which images the thresholds were fitted on, and which the rates describe."""


@dataclass(frozen=True)
class Calibration:
    """The thresholds of a model, and how well they decide on its test classes."""

    thresholds: dict[str, float]  # by target, of TARGETS; without those that could not be fitted
    rates: dict[str, dict[str, float]]  # by target: `tar`, `far`, `precision` and `f1`
    fitted_on: str  # a key of FITTED_ON
    eer: float  # of all pairs of the test classes, as are the three that follow
    auc: float
    curve: list[list[float]]  # points [FAR, TAR]
    same: int  # pairs
    different: int
    unknown: dict[str, float] = field(default_factory=dict)
    """By false accept rate, the similarity to the nearest proxy below which an image is of no seen
    class: that share of images of unseen classes is taken for a seen one."""

    def __post_init__(self) -> None:
        numbers = [self.eer, self.auc, self.same, self.different, *chain(*self.curve)]
        for table in (self.thresholds, self.unknown, *self.rates.values()):
            numbers += table.values()
        finite = all(type(one) in (int, float) and math.isfinite(one) for one in numbers)
        rated = set(self.thresholds) <= set(self.rates)
        if not finite or not rated or self.fitted_on not in FITTED_ON:
            raise ValueError("a calibration must hold finite numbers and rates of every threshold")

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Calibration:
        """Raises ValueError unless the values are those of a calibration."""
        try:
            return Calibration(**values)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"these are not the values of a calibration: {error}") from error

    def threshold(self, target: str = DEFAULT_TARGET) -> float:
        """The similarity from which two images count as the same class."""
        return _look_up(target, self.thresholds)

    def about(self, target: str = DEFAULT_TARGET) -> str:
        """ "fitted to 1% false accepts; 4.8% estimated on new classes"."""
        far, wrong = parse_target(target), " false accepts"
        text = f"fitted to {target}" if far is None else f"fitted to {100 * far:g}%{wrong}"
        if self.fitted_on == "unchecked":
            return text
        where = "estimated on new" if self.fitted_on == "test" else "on the test"
        measured = f"{100 * self.rates[target]['far']:.1f}%{wrong if far is None else ''}"
        return f"{text}; {measured} {where} classes"

    def unknown_below(self, target: str = UNKNOWN_TARGET) -> float:
        """The similarity to the nearest proxy below which an image is of no seen class."""
        return _look_up(target, self.unknown)

    @property
    def explanation(self) -> str:
        """Which images the thresholds and rates come from, as a sentence."""
        return f"The thresholds were fitted on {FITTED_ON[self.fitted_on]}."


def _look_up(target: str, thresholds: Mapping[str, float]) -> float:
    if target not in thresholds:
        fitted = ", ".join(thresholds) or "none, for lack of test images"
        raise ValueError(
            f"threshold must be a similarity or a fitted target ({fitted}), got {target!r}"
        )
    return thresholds[target]


def calibrate(
    embeddings: Array,
    labels: Array,
    *,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    held_out: tuple[Array, Array] | None = None,
) -> Calibration | None:
    """Fit thresholds and check them on a model's test images; None without pairs of both kinds.

    Args:
        embeddings, labels: of the test images, whose classes the model has not seen.
        gallery, gallery_labels: if pairs are of a query and a gallery item.
        held_out: embeddings and labels of other classes that were not trained on: thresholds are
            fitted on these and checked on all test images. Without them, the test classes are
            split in two: the rates are the means of fitting on one half and checking on the other,
            and the thresholds are fitted on all.
    """
    sets = as_sets(embeddings, labels, gallery, gallery_labels)
    every = count_pairs(sets)
    if not every.of_both_kinds:
        return None
    if held_out is not None:
        fit, fitted_on = count_pairs(as_sets(*held_out)), "held_out"
        checks = [(fit, every)]
    else:
        fit, checks = every, _halves(sets)
        fitted_on = "test" if checks else "unchecked"
    thresholds, rates = {}, {}
    for target in TARGETS:
        threshold = fit.fit(target)
        if threshold is None:
            continue
        thresholds[target] = threshold
        tried = [(other.fit(target), check) for other, check in checks]
        found = [check.rates(t) for t, check in tried if t is not None] or [every.rates(threshold)]
        rates[target] = {key: sum(one[key] for one in found) / len(found) for key in found[0]}
    return Calibration(
        thresholds,
        rates,
        fitted_on,
        eer=every.eer,
        auc=every.auc,
        curve=every.curve(),
        same=int(every.same.sum()),
        different=int(every.different.sum()),
    )


def _halves(sets: Sets) -> list[tuple[PairCounts, PairCounts]]:
    """The pairs within each half of the classes, and the same halves in the other order; empty
    unless both have pairs of both kinds."""
    x, y, g, gy, own = sets
    classes = torch.unique(torch.cat([y, gy]))
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(0))
    order = order.to(y.device)

    def count(part: Tensor) -> PairCounts:
        mine, theirs = (torch.isin(each, classes[part]) for each in (y, gy))
        return count_pairs(Sets(x[mine], y[mine], g[theirs], gy[theirs], own))

    a, b = count(order[::2]), count(order[1::2])
    return [(a, b), (b, a)] if a.of_both_kinds and b.of_both_kinds else []


def unknown_thresholds(
    similarities: Array, rates: Iterable[float] = (0.1, 0.05, 0.01)
) -> dict[str, float]:
    """For each rate the threshold that accepts at most this share of unknown images.

    Args:
        similarities: (n,) of images of no known class to the nearest proxy, say.
    """
    s = np.sort(np.asarray(similarities, dtype=np.float64))[::-1]
    made = {}
    for rate in rates:
        accepted = int(rate * len(s))
        if accepted >= 1:  # with fewer images the rate cannot be seen
            # Between the last that is accepted and the first that is not.
            made[f"far={rate:g}"] = float(np.nextafter(s[accepted], 2.0))
    return made
