"""Nested bars on a terminal: trials, folds of the trial, epochs of the fold."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as RichProgress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from proxysynth.training.progress import Tick

LEVELS = 2  # outer bars, whose notes say the time left: of a few long steps a bar knows too little


class NestedBars:
    """Sentences and bars on standard error, a bar inside a bar. Where that is no terminal,
    sentences only."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._console = Console(file=file or sys.stderr, markup=False, highlight=False)
        self._shown: RichProgress | None = None
        self._depth = 0

    def say(self, sentence: str) -> None:
        self._console.print(sentence, soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        shown = self._shown or self._open()
        label = "  " * self._depth + name
        inner = self._depth >= LEVELS
        bar = shown.add_task(label, total=total, completed=done, note="", inner=inner)
        self._depth += 1
        try:
            yield lambda amount, note: shown.update(bar, advance=amount, note=note)
        finally:
            self._depth -= 1
            shown.remove_task(bar)
            if not self._depth:
                shown.stop()
                self._shown = None

    def _open(self) -> RichProgress:
        self._shown = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            _Left(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            refresh_per_second=5,
            disable=not self._console.is_terminal,
        )
        self._shown.start()
        return self._shown


class _Left(TimeRemainingColumn):
    """The time left of an innermost bar."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["inner"] else Text("")
