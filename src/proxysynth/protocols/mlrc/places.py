"""Who works on what: the places of a study, shared by any number of workers.

A study has so many places, one for each trial that it shall have. A place is a trial of Optuna, and
that trial again if its worker died or was interrupted. Who takes a place is decided by the numbers
that the storage gives to trials, and by nothing else: the first `count` fresh trials make the
places, in order; of several trials for one place the first that has not failed counts. So there is
nothing to lock, and nothing counts twice, whoever comes when.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

from .lease import LEASE, Watch

AGAIN = "again"  # the number of the fresh trial whose place this one takes
SURPLUS = "surplus"


@dataclass(frozen=True)
class Place:
    """One place, from 0 on, and its trials, oldest first."""

    index: int
    trials: tuple[FrozenTrial, ...]

    @property
    def number(self) -> int:
        """Of its fresh trial."""
        return self.trials[0].number

    @property
    def current(self) -> FrozenTrial | None:
        """The trial that counts: the first that has not failed."""
        return next((trial for trial in self.trials if trial.state.name != "FAIL"), None)

    @property
    def done(self) -> bool:
        current = self.current
        return current is not None and current.state.name in ("COMPLETE", "PRUNED")

    @property
    def times_lost(self) -> int:
        """How often its worker died or was stopped."""
        return sum(t.state.name == "FAIL" and SURPLUS not in t.user_attrs for t in self.trials)


def places(trials: Sequence[FrozenTrial], count: int) -> list[Place]:
    """The places that are taken so far, at most `count`."""
    trials = sorted(trials, key=lambda trial: trial.number)
    fresh = [trial for trial in trials if AGAIN not in trial.user_attrs][:count]
    return [
        Place(
            index,
            (first, *(t for t in trials if t.user_attrs.get(AGAIN) == first.number)),
        )
        for index, first in enumerate(fresh)
    ]


def index_of(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> int:
    """The place of a trial among these: how many fresh trials came before its own."""
    own = trial.user_attrs.get(AGAIN, trial.number)
    return sum(AGAIN not in other.user_attrs and other.number < own for other in trials)


@dataclass(frozen=True)
class Claimed:
    """A place that this worker now works on."""

    index: int
    trial: Trial


@dataclass(frozen=True)
class Queue:
    """The places of one Optuna study."""

    study: OptunaStudy
    count: int
    watch: Watch

    def places(self) -> list[Place]:
        return places(self.study.get_trials(deepcopy=False), self.count)

    def all_done(self) -> bool:
        taken = self.places()
        return len(taken) == self.count and all(place.done for place in taken)

    def claim(self) -> Claimed | None:
        """A place to work on; None where each is done or in the hands of a living worker."""
        self._find_the_dead()
        taken = self.places()
        waiting = any(p.current is not None and p.current.state.name == "WAITING" for p in taken)
        if not waiting and len(taken) == self.count:
            return None
        trial = self.study.ask()
        for place in self.places():
            if place.current is not None and place.current.number == trial.number:
                return Claimed(place.index, trial)
        trial.set_user_attr(SURPLUS, True)  # another worker was faster
        self._fail(trial.number)
        return None

    def give_back(self, claimed: Claimed) -> None:
        """Let go of a place that this worker cannot finish."""
        self._fail(claimed.trial.number)
        self._enqueue_lost()

    def _find_the_dead(self) -> None:
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING" and self.watch.dead(trial):
                self._fail(trial.number)
        self._enqueue_lost()

    def _enqueue_lost(self) -> None:
        """A place whose trials all failed is taken again, with the same parameters and what is
        known of their folds."""
        for place in self.places():
            if place.current is None:
                known: dict[str, Any] = {}
                params: dict[str, float] = {}
                for trial in place.trials:
                    known |= trial.user_attrs
                    params |= trial.params
                known = {k: v for k, v in known.items() if k not in (LEASE, SURPLUS, AGAIN)}
                self.study.enqueue_trial(params, user_attrs={**known, AGAIN: place.number})

    def _fail(self, number: int) -> None:
        import optuna

        # Another worker may have found it dead as well.
        with contextlib.suppress(ValueError, RuntimeError, optuna.exceptions.OptunaError):
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)
