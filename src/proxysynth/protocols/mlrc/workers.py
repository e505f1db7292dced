"""Workers that share a study: its storage, the leases on trials, and who works on which slot.

A study has a fixed number of slots, one for each trial it should have. A slot is a trial of Optuna,
and another trial if its worker died or was interrupted. Which trial fills which slot follows only
from the numbers that the storage gives to trials: the first `count` fresh trials make the slots, in
order; of several trials for one slot, the first that has not failed counts. So no lock is needed,
and nothing counts twice.

A worker renews a lease on its trial, an attribute in the storage (Optuna's own heartbeat supports
databases only, and only its own loop). The lease is a counter; other workers compare it with what
they saw earlier by their own clock, since the clocks of two machines may differ.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import re
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxysynth.errors import first_line, import_optional

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study as OptunaStudy
    from optuna.trial import FrozenTrial, Trial

SQLITE_TIMEOUT = 120  # seconds that a worker waits for its turn at an SQLite file

LEASE = "lease"
RENEW_EVERY = 5.0  # seconds
DEAD_AFTER = 60.0  # seconds without a renewal

AGAIN = "again"  # attribute of a trial that runs a slot again: the number of the slot's first trial


def import_optuna() -> Any:
    """Optuna without its log messages, or an error that says how to install it."""
    optuna = import_optional("optuna", "mlrc", "the search")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna


# The storage.


class StorageFailed(RuntimeError):
    """The storage cannot be reached, or no longer."""


def open_storage(location: str) -> BaseStorage:
    """Open a storage, creating its tables if needed: a database URL, or a path to an SQLite file if
    it ends in `.db` or `.sqlite`, else to a journal file."""
    storages, path = import_optuna().storages, Path(location).expanduser().absolute()
    with storage_errors(location, opening=True):
        if "://" not in location:
            if path.suffix not in (".db", ".sqlite", ".sqlite3"):
                if not path.parent.is_dir():
                    raise FileNotFoundError(f"there is no folder {path.parent}")
                return storages.JournalStorage(storages.journal.JournalFileBackend(str(path)))
            location = f"sqlite:///{path}"
        # A connection that a server has closed meanwhile is opened again.
        options: dict[str, Any] = {"pool_pre_ping": True}
        if location.startswith("sqlite"):
            options["connect_args"] = {"timeout": SQLITE_TIMEOUT}
        try:
            return storages.RDBStorage(location, engine_kwargs=options)
        except Exception:  # perhaps another worker is creating the same tables
            time.sleep(random.uniform(0.5, 1.5))
            return storages.RDBStorage(location, engine_kwargs=options)


@contextmanager
def storage_errors(location: str, opening: bool = False) -> Iterator[None]:
    """Turn errors of the storage inside this block into one sentence, without its password. While
    `opening` it, a missing file or package is its error too."""
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    errors: tuple[type[Exception], ...] = (SQLAlchemyError, optuna.exceptions.StorageInternalError)
    if opening:
        errors += (OSError, ImportError)
    try:
        yield
    except errors as error:
        cause: BaseException = error  # the innermost one says most
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = hide_password(first_line(getattr(cause, "orig", None) or cause))[:200]
        place, advice = hide_password(location), "check that it exists and is writable"
        raise StorageFailed(f"the storage {place} cannot be used ({reason}): {advice}") from error


def hide_password(location: str) -> str:
    """A storage's location without user name and password."""
    return re.sub(r"://[^/@]*@", "://...@", location)


# Leases.


@contextmanager
def leased(trial: Trial, seconds: float = RENEW_EVERY) -> Iterator[None]:
    """Renew the lease on a trial as long as this block runs."""
    over = threading.Event()

    def renew() -> None:
        for count in itertools.count():
            # A lost connection, or a trial taken away, shows when the trial's result is stored.
            with contextlib.suppress(Exception):
                trial.set_user_attr(LEASE, {"at": machine(), "pid": os.getpid(), "count": count})
            if over.wait(seconds):
                return

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@dataclass
class Watch:
    """What one worker has seen of the leases of others."""

    patience: float = DEAD_AFTER
    clock: Callable[[], float] = time.monotonic
    seen: dict[int, tuple[Any, float]] = field(default_factory=dict)

    def dead(self, trial: FrozenTrial) -> bool:
        """Whether the worker of this running trial is dead, as far as can be known."""
        lease, now = trial.user_attrs.get(LEASE), self.clock()
        before, since = self.seen.setdefault(trial.number, (lease, now))
        if lease != before:
            self.seen[trial.number] = (lease, now)
            return False
        if lease is not None and lease["at"] == machine() and os.name == "posix":
            try:
                os.kill(lease["pid"], 0)
            except ProcessLookupError:
                return True
            except PermissionError:  # it runs, as another user
                pass
        return now - since > self.patience


@cache
def machine() -> str:
    """Identifies this machine since its last boot; containers count as machines of their own."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


# Slots.


@dataclass(frozen=True)
class Slot:
    """One slot, counted from 0, and its trials, oldest first."""

    index: int
    trials: tuple[FrozenTrial, ...]

    @property
    def current(self) -> FrozenTrial:
        """The trial that counts: the first that has not failed, else the last."""
        return next((t for t in self.trials if t.state.name != "FAIL"), self.trials[-1])

    @property
    def done(self) -> bool:
        return self.current.state.name in ("COMPLETE", "PRUNED")

    @property
    def folds(self) -> list[dict[str, Any]]:
        """The results of the folds of its current trial that are trained, in order."""
        attributes = self.current.user_attrs
        names = [name for name in attributes if name.startswith("fold")]
        return [attributes[f"fold{number}"] for number in range(len(names))]

    @property
    def times_lost(self) -> int:
        """How often a worker that had begun it died or was stopped."""
        return sum(t.state.name == "FAIL" and LEASE in t.user_attrs for t in self.trials)


def slots_of(trials: Sequence[FrozenTrial], count: int) -> list[Slot]:
    """The slots that have a trial so far, at most `count`."""
    trials = sorted(trials, key=lambda trial: trial.number)
    fresh = [trial for trial in trials if AGAIN not in trial.user_attrs][:count]
    return [
        Slot(index, (first, *(t for t in trials if t.user_attrs.get(AGAIN) == first.number)))
        for index, first in enumerate(fresh)
    ]


def slot_index(trial: FrozenTrial, trials: Sequence[FrozenTrial]) -> int:
    """The slot of a trial among these: how many fresh trials came before its own."""
    own = trial.user_attrs.get(AGAIN, trial.number)
    return sum(AGAIN not in other.user_attrs and other.number < own for other in trials)


@dataclass(frozen=True)
class Claimed:
    """A slot that this worker works on now."""

    index: int
    trial: Trial


@dataclass(frozen=True)
class Queue:
    """The slots of one Optuna study."""

    study: OptunaStudy
    count: int
    watch: Watch = field(default_factory=Watch)

    def slots(self) -> list[Slot]:
        return slots_of(self.study.get_trials(deepcopy=False), self.count)

    def claim(self) -> Claimed | None:
        """A slot to work on; None if each is done or held by a living worker."""
        for trial in self.study.get_trials(deepcopy=False):
            if trial.state.name == "RUNNING" and self.watch.dead(trial):
                self.give_back(trial.number)
        slots = self.slots()
        states = [slot.current.state.name for slot in slots]
        if "FAIL" in states:
            asked = self._ask_again(slots[states.index("FAIL")])
        elif len(slots) < self.count or "WAITING" in states:
            asked = self.study.ask()
        else:
            return None
        for slot in self.slots():
            if slot.current.number == asked.number:
                return Claimed(slot.index, asked)
        self.give_back(asked.number)  # another worker was faster
        return None

    def work_on(self, claimed: Claimed, do: Callable[[], float]) -> FrozenTrial | None:
        """Do the work of a slot under a lease and store its value; returns the finished trial, None
        if another worker considered this one dead and has the slot now."""
        import optuna

        value: float | None
        try:
            with leased(claimed.trial):
                try:
                    value, state = do(), optuna.trial.TrialState.COMPLETE
                except optuna.TrialPruned:
                    value, state = None, optuna.trial.TrialState.PRUNED
            done = self.study.tell(claimed.trial, value, state=state, skip_if_finished=True)
        except optuna.exceptions.UpdateFinishedTrialError:
            return None
        except BaseException:
            self.give_back(claimed.trial.number)
            raise
        return done if done.state == state else None

    def give_back(self, number: int) -> None:
        """Release the slot of a trial that will not be finished: the next claim takes it up."""
        import optuna

        with contextlib.suppress(Exception):  # another worker may have found it dead as well
            self.study.tell(number, state=optuna.trial.TrialState.FAIL)

    def _ask_again(self, slot: Slot) -> Trial:
        """A new trial for a slot whose trials all failed, with their parameters and known folds.

        It begins as running: with SQLite, two workers may both get one trial of Optuna's queue.
        """
        import optuna

        made: dict[str, Any] = {"params": {}, "distributions": {}, "user_attrs": {}}
        for trial in slot.trials:
            for part, known in made.items():
                known |= getattr(trial, part)
        made["user_attrs"][AGAIN] = slot.trials[0].number
        made["user_attrs"].pop(LEASE, None)
        template = optuna.trial.create_trial(state=optuna.trial.TrialState.RUNNING, **made)
        storage, study_id = self.study._storage, self.study._study_id
        return optuna.Trial(self.study, storage.create_new_trial(study_id, template))
