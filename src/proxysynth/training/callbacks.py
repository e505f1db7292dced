"""What training reports while it runs: messages, progress bars, TensorBoard."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TextIO, runtime_checkable

from rich import progress
from rich.console import Console
from rich.text import Text

from proxysynth.errors import import_optional
from proxysynth.formatting import printable

Tick = Callable[[int, str], None]
"""tick(images, note): advances the bar by this many images; the note is shown next to it."""


LOG_SECONDS = 30.0
"""How long a log may be silent."""


@runtime_checkable
class Progress(Protocol):
    """What training reports to."""

    def say(self, sentence: str) -> None: ...

    def task(self, name: str, total: int, done: int = 0) -> AbstractContextManager[Tick]: ...


class Silent:
    """Reports nothing."""

    def say(self, sentence: str) -> None:
        pass

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        yield lambda images, note: None


class Bars:
    """Messages and nested bars on standard error; if that is not a terminal, a line instead of
    bars when nothing was said for `LOG_SECONDS`."""

    def __init__(self, file: TextIO | None = None) -> None:
        # No markup: a message may hold a path with brackets.
        self._console = Console(file=file or sys.stderr, markup=False, highlight=False)
        self._said = time.monotonic()
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            _Rate(),
            progress.TimeRemainingColumn(compact=True),
            progress.TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            refresh_per_second=5,
            disable=not self._console.is_terminal,
        )

    def say(self, sentence: str) -> None:
        self._said = time.monotonic()
        for line in sentence.split("\n"):
            self._console.print(printable(line), soft_wrap=True)

    @contextmanager
    def task(self, name: str, total: int, done: int = 0) -> Iterator[Tick]:
        bars, label = self._bars, "  " * len(self._bars.tasks) + name
        bar = bars.add_task(label, total=total, completed=done, note="")
        bars.start()

        def tick(images: int, note: str) -> None:
            nonlocal done
            bars.update(bar, advance=images, note=note)
            done += images
            if bars.disable and time.monotonic() - self._said >= LOG_SECONDS:
                self.say(f"{name} {done:,}/{total:,}  {note}".rstrip())

        try:
            yield tick
        finally:
            if len(bars.tasks) == 1:
                bars.stop()
            bars.remove_task(bar)


class _Rate(progress.ProgressColumn):
    """Recent images per second."""

    def render(self, task: progress.Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:.0f}/s" if speed and speed >= 1 else "")


def open_tensorboard(folder: Path, wanted: bool, step: int) -> Callable[[Mapping[str, Any]], None]:
    """A function that writes each line of the metrics, or does nothing if not wanted. Events after
    `step`, where the run resumes, are hidden."""
    if not wanted:
        return lambda line: None
    board = import_optional("torch.utils.tensorboard", "tensorboard", "a TensorBoard log")
    writer = board.SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(line: Mapping[str, Any]) -> None:
        for part, values in {"test": line, "validation": line.get("validation", {})}.items():
            for name, value in values.items():
                if name not in ("step", "validation", "queries", "queries_without_positive"):
                    tag = "train/loss" if name == "loss" else f"{part}/{name}"
                    writer.add_scalar(tag, value, line["step"])
        writer.flush()

    return write
