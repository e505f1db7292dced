"""SIGINT, SIGTERM and SIGHUP end a training alike: between two steps, with a last checkpoint."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end; `status` is the exit status that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


_in_step = False
_pending: int | None = None


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise `Interrupted` for these signals, unless they are ignored, as under nohup."""
    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {}
    try:
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, _handle)
    except ValueError:  # not the main thread, which alone gets signals
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold a signal back until the end of the block: half a step could not be resumed."""
    global _in_step, _pending
    _in_step, _pending = True, None
    try:
        yield
    finally:
        _in_step = False
    if _pending is not None:
        raise Interrupted(_pending)


def _handle(number: int, frame: FrameType | None) -> None:
    global _pending
    if not _in_step:
        raise Interrupted(number)
    _pending = number
