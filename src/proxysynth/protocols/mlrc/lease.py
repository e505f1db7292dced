"""Signs of life: a worker renews its lease on a trial, so that a dead worker's trial is found.

The lease is an attribute of the trial in the study's storage, whatever that is (Optuna's own
heartbeat knows databases only, and no loop but its own). It counts up while the worker lives. Who
watches compares nothing but the count, with a clock of its own: clocks of two machines may differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial, Trial

LEASE = "lease"
RENEWED = 5.0  # seconds between two signs of life
PATIENCE = 60.0  # seconds without one after which a worker is taken for dead


@contextmanager
def leased(trial: Trial, seconds: float = RENEWED) -> Iterator[None]:
    """Renew the lease on the trial as long as this block runs."""
    over = threading.Event()

    def renew() -> None:
        count = 0
        while True:
            # What fails here, a lost connection or a trial taken away, shows when its end is told.
            with contextlib.suppress(Exception):
                trial.set_user_attr(LEASE, {"at": machine(), "pid": os.getpid(), "count": count})
            count += 1
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
    """What one worker has seen of the leases of others.

    Args:
        patience: seconds without a renewal after which a worker is taken for dead.
        clock: seconds, from anywhere.
    """

    patience: float = PATIENCE
    clock: Callable[[], float] = time.monotonic
    seen: dict[int, tuple[Any, float]] = field(default_factory=dict)

    def dead(self, trial: FrozenTrial) -> bool:
        """Whether the worker of this running trial is dead, for all that can be told."""
        lease = trial.user_attrs.get(LEASE)
        now = self.clock()
        before, since = self.seen.setdefault(trial.number, (lease, now))
        if lease != before:
            self.seen[trial.number] = (lease, now)
            return False
        return now - since > self.patience or _ended(lease)


def _ended(lease: Any) -> bool:
    """Whether the lease is of a process of this very machine that is no more."""
    if not isinstance(lease, dict) or lease.get("at") != machine() or os.name != "posix":
        return False
    try:
        os.kill(int(lease["pid"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, KeyError, ValueError):
        return False
    return _is_zombie(int(lease["pid"]))


def _is_zombie(pid: int) -> bool:
    """A killed process keeps its number until its parent has asked how it ended."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


@lru_cache
def machine() -> str:
    """What tells this machine, since it was started, from all others; containers are apart."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]
