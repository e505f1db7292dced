"""What training tells while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Tick = Callable[[int, str], None]
"""tick(pictures, note): so many more are done, and what to show beside the bar."""


class Progress(Protocol):
    """Where training reports to."""

    def say(self, sentence: str) -> None: ...

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]: ...


class Silent:
    """Says nothing."""

    def say(self, sentence: str) -> None:
        pass

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        yield lambda pictures, note: None
