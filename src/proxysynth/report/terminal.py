"""A comparison in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress as RichProgress,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from proxysynth.training.progress import Tick

from .comparison import Comparison
from .numbers import count, heading, name, percent, points
from .result_section import tone
from .verdict import between, no_difference, short, verdicts, with_spread

COLORS = {"better": "green", "worse": "red", None: "dim"}


def render_terminal(comparison: Comparison, console: Console) -> None:
    """Tables of metrics, of groups of seeds, of settings; then what only one of them knows."""
    console.print(_runs(comparison, console.width))
    if any(len(group.runs) > 1 for group in comparison.groups):
        console.print(_groups(comparison, console.width))
        if comparison.contrasts:
            console.print(_contrasts(comparison))
    if comparison.settings:
        console.print(_settings(comparison))
    else:
        console.print(f"Settings: {no_difference(comparison)}\n", markup=False)
    for item in comparison.disagreements:
        console.print(
            f"Nearest neighbour right in {item.first} only: {item.only_first:,}; in {item.second} "
            f"only: {item.only_second:,}; in both: {item.both:,}; in neither: {item.neither:,}.",
            markup=False,
        )
    for sentence in (*verdicts(comparison), *comparison.remarks):
        console.print(sentence, markup=False)


def _table(title: str) -> Table:
    return Table(
        title=title,
        box=box.SIMPLE,
        collapse_padding=True,
        title_justify="left",
        title_style="bold",
    )


def _called(
    keys: Sequence[str], names: Sequence[str], least: int, width: int
) -> Callable[[str], str]:
    """How measures are called over columns of at least so many characters: on one line where it
    fits, beside the letter, the names and the seeds."""
    taken = 14 + max(map(len, names)) + sum(2 + max(least, len(name(key))) for key in keys)
    return name if taken <= width else heading


def _runs(comparison: Comparison, width: int) -> Table:
    table = _table("Runs, per cent, with the difference to the first")
    table.add_column("")
    table.add_column("run", overflow="fold")
    table.add_column("seed", justify="right")
    called = _called(comparison.measures, [run.name for run in comparison.runs], 8, width)
    for key in comparison.measures:
        table.add_column(called(key), justify="right", overflow="fold")
    for run in comparison.runs:
        cells = []
        for key in comparison.measures:
            cell = percent(run.metrics.get(key), 2)
            change = comparison.difference(run, key)
            if change is not None:
                cell += f"\n[{COLORS[tone(change)]}]{points(change, 2)}[/]"
            cells.append(cell)
        table.add_row(comparison.letter_of(run), escape(run.name), str(run.run.seed), *cells)
    return table


def _groups(comparison: Comparison, width: int) -> Table:
    table = _table("Groups of seeds, mean ± standard deviation")
    table.add_column("")
    table.add_column("group", overflow="fold")
    table.add_column("seeds", justify="right")
    called = _called(comparison.measures, [group.name for group in comparison.groups], 15, width)
    for key in comparison.measures:
        table.add_column(called(key), justify="right", overflow="fold")
    for group in comparison.groups:
        cells = [with_spread(group.spread(key)) for key in comparison.measures]
        if called is heading:  # where the names take two lines, so do the numbers
            cells = [cell.replace(" ± ", "\n± ") for cell in cells]
        table.add_row(group.letter, escape(group.name), str(len(group.runs)), *cells)
    return table


def _contrasts(comparison: Comparison) -> Table:
    table = _table(f"Against {comparison.groups[0].letter}, in points")
    for title in ("", "measure"):
        table.add_column(title)
    for title in ("difference", "95 % interval"):
        table.add_column(title, justify="right")
    table.add_column("")
    for item in comparison.contrasts:
        shown = f"[{COLORS[tone(item.difference)]}]{points(item.difference, 2)}[/]"
        table.add_row(item.letter, name(item.measure), shown, between(item), short(item))
    return table


def _settings(comparison: Comparison) -> Table:
    table = _table(f"{count(len(comparison.settings), 'setting')} in which they differ")
    table.add_column("setting")
    for group in comparison.groups:
        table.add_column(group.letter, overflow="fold")
    for path, values in comparison.settings.items():
        table.add_row(path, *(escape(value) for value in values))
    return table


OUTER_LEVELS = 2  # bars of few long steps: their notes estimate the time left, rich could not


class NestedBars:
    """Messages and nested progress bars on standard error; messages only if it is no terminal."""

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
        inner = self._depth >= OUTER_LEVELS
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
            _TimeLeft(compact=True),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            transient=True,
            refresh_per_second=5,
            disable=not self._console.is_terminal,
        )
        self._shown.start()
        return self._shown


class _TimeLeft(TimeRemainingColumn):
    """The time left, for innermost bars only."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.fields["inner"] else Text("")
