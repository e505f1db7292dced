"""A choice among settings, made on validation classes and never on the test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from proxysynth.training.record import Result
from proxysynth.training.run import Run


@dataclass(frozen=True)
class Option:
    """One setting: its value, its name for people, and the Runs that try it, one per seed."""

    value: Any
    label: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Choice:
    """Settings to choose from.

    Args:
        what: "alpha of Input Mixup on glyphs 2", for the notes.
        options: in the order in which a tie is decided.
        by: the metric of `Result.validation` whose mean over the Runs decides.
    """

    what: str
    options: tuple[Option, ...]
    by: str = "map@r"

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(run for option in self.options for run in option.runs)


def pick(choice: Choice, result: Callable[[Run], Result | None]) -> Option | None:
    """The option with the best mean on validation classes; None while a Run is missing."""
    best, best_score = None, float("-inf")
    for option in choice.options:
        results = [result(run) for run in option.runs]
        if not results or any(found is None for found in results):
            return None
        score = fmean(found.validation[choice.by] for found in results if found is not None)
        if score > best_score:
            best, best_score = option, score
    return best
