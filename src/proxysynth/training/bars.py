"""Progress on a terminal: sentences, and a bar with rate, time left and loss."""

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
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from proxysynth.formatting import printable
from proxysynth.training.progress import Tick


class Bars:
    """Sentences and bars on standard error. Where that is no terminal, sentences only."""

    def __init__(self, file: TextIO | None = None) -> None:
        # No markup: a sentence may hold a path with brackets.
        self._console = Console(file=file or sys.stderr, markup=False, highlight=False)

    def say(self, sentence: str) -> None:
        lines = [printable(line) for line in sentence.split("\n")]
        self._console.print("\n".join(lines), soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _Rate(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}"),
        )
        with RichProgress(
            *columns,
            console=self._console,
            transient=True,
            refresh_per_second=5,
            disable=not self._console.is_terminal,
        ) as bars:
            bar = bars.add_task(name, total=total, completed=done, note="")
            yield lambda pictures, note: bars.update(bar, advance=pictures, note=note)


class _Rate(ProgressColumn):
    """Pictures per second of late."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f}/s" if speed else "")
