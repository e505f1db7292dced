"""SIGINT, SIGTERM and SIGHUP end a training between two steps, with a last checkpoint.

With several processes, the ranks agree after each step whether one of them got a signal, so that
all end after the same step.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from proxysynth.distributed.process_group import ALONE, Ranks


class Interrupted(KeyboardInterrupt):
    """A signal asked the process to end; `status` is the exit status that says so."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.status = 128 + number


_held_back = False
_pending = 0


@contextmanager
def handle_signals() -> Iterator[None]:
    """Raise `Interrupted` for these signals, unless they are ignored, as under nohup."""
    global _pending
    _pending = 0
    numbers = [n for n in signal.Signals if n.name in ("SIGINT", "SIGTERM", "SIGHUP")]
    before = {}
    with suppress(ValueError):  # not the main thread, which alone gets signals
        for number in numbers:
            if signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, _handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted(ranks: Ranks = ALONE) -> Iterator[None]:
    """Hold signals back until the end of the block; then all ranks raise what any has received.

    Half a step could not be resumed, and a rank that leaves alone would leave the others waiting.
    """
    global _held_back, _pending
    outer, _held_back = _held_back, True
    try:
        yield
        number = _pending if ranks.world == 1 else ranks.max(_pending)
    finally:
        _held_back = outer
    if number:
        _pending = 0
        raise Interrupted(number)


def _handle(number: int, frame: FrameType | None) -> None:
    global _pending
    if not _held_back:
        raise Interrupted(number)
    _pending = number
