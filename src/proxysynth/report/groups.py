"""Runs that differ in nothing but the seed, as one group with a mean and a spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from proxysynth.values import digest

from .finished_run import FinishedRun
from .student import Interval, paired_interval, unpaired_interval

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation of n values; one value has no deviation."""

    mean: float
    deviation: float | None
    n: int


@dataclass(frozen=True, eq=False)
class Group:
    """One run, or several that differ only in their seeds.

    Attributes:
        letter: A, B, ... in the order the runs were given.
        runs: at least one; no seed twice.
    """

    letter: str
    runs: tuple[FinishedRun, ...]

    @property
    def name(self) -> str:
        """The run's name; of several, what their names begin with."""
        names = [run.name for run in self.runs]
        if len(names) == 1:
            return names[0]
        first, last = min(names), max(names)
        same = next((i for i, c in enumerate(first) if last[i : i + 1] != c), len(first))
        return first[:same].rstrip("-_. 0123456789").removesuffix("seed").rstrip("-_. ") or first

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.run.seed for run in self.runs)

    def values(self, measure: str) -> list[float]:
        """What each run that has it measured."""
        return [run.metrics[measure] for run in self.runs if measure in run.metrics]

    def spread(self, measure: str) -> Spread | None:
        """Mean and deviation of a measure; None where no run has it."""
        values = self.values(measure)
        if not values:
            return None
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Contrast:
    """How a group's measure differs from the first group's.

    Attributes:
        letter, measure: of what.
        difference: its mean less the first's.
        within_spread: whether it is at most the larger of the two standard deviations; None where
            neither group has several seeds.
        interval: what the difference lies in with 95 per cent confidence; None where a group has
            fewer than two seeds.
        paired: whether the interval compares seed by seed, as it does for equal seeds.
    """

    letter: str
    measure: str
    difference: float
    within_spread: bool | None
    interval: Interval | None
    paired: bool


def group_by_seed(runs: Sequence[FinishedRun]) -> tuple[Group, ...]:
    """The runs in groups. The same settings with the same seed again begin another group: someone
    who trains the same thing twice wants to see whether it came out the same."""
    shelves: list[tuple[str, list[FinishedRun]]] = []
    for run in runs:
        key = digest((replace(run.run, seed=0), run.data.fingerprint))
        for other, members in shelves:
            if other == key and run.run.seed not in [member.run.seed for member in members]:
                members.append(run)
                break
        else:
            shelves.append((key, [run]))
    return tuple(Group(letter(i), tuple(members)) for i, (_, members) in enumerate(shelves))


def contrast(first: Group, other: Group, measure: str) -> Contrast | None:
    """The other group against the first; None where one of them has no such measure."""
    a, b = first.spread(measure), other.spread(measure)
    if a is None or b is None:
        return None
    difference = b.mean - a.mean
    deviations = [s.deviation for s in (a, b) if s.deviation is not None]
    within = abs(difference) <= max(deviations) if deviations else None
    paired = set(first.seeds) == set(other.seeds)
    interval = None
    if a.n > 1 and b.n > 1:
        if paired and a.n == b.n == len(first.seeds):
            order = sorted(other.runs, key=lambda run: first.seeds.index(run.run.seed))
            interval = paired_interval(
                first.values(measure), [run.metrics[measure] for run in order]
            )
        else:
            paired = False
            interval = unpaired_interval(first.values(measure), other.values(measure))
    return Contrast(
        other.letter, measure, difference, within, interval, paired and interval is not None
    )


def letter(number: int) -> str:
    """A, ..., Z, then A2, B2, ..."""
    again, place = divmod(number, len(LETTERS))
    return LETTERS[place] + (str(again + 1) if again else "")
