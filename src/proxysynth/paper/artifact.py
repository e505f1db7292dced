"""Tables and figures of the paper as values, and what it takes to make one.

A table is data: labels and numbers, ours beside the paper's. `render.py` turns it into Markdown,
CSV, LaTeX and HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from proxysynth.report.statistics import Interval, difference_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from proxysynth.paper.scale import Scale
    from proxysynth.paper.store import Store
    from proxysynth.training.run import Run


@dataclass(frozen=True)
class Cell:
    """One number of ours beside the paper's."""

    ours: tuple[float, ...] = ()  # a value per seed, in the unit that is printed; empty if not run
    paper: float | None = None
    paper_spread: float | None = None  # the paper's +-
    baseline: tuple[float, ...] = ()  # values that `ours` is compared with
    paper_baseline: float | None = None
    paired: bool = True  # `ours` and `baseline` share their seeds one by one
    text: str = ""  # shown instead of numbers
    digits: int = 1
    chosen: bool = False  # by a search on validation classes
    better: int = 1  # -1 where smaller is better, 0 where neither
    gain: bool = False  # itself a difference: compared with zero and shown with its sign
    of_mean: bool = False  # show the 95% interval of the mean, not the standard deviation
    last: tuple[float, ...] = ()  # at the last epoch, where `ours` are of the best one

    @property
    def reference(self) -> tuple[float, ...]:
        """The values that `ours` is compared with."""
        return (0.0,) * len(self.ours) if self.gain else self.baseline

    @property
    def difference(self) -> float | None:
        """The mean of ours minus that of the reference."""
        return fmean(self.ours) - fmean(self.reference) if self.ours and self.reference else None

    @cached_property
    def interval(self) -> Interval | None:
        """The 95% interval of the difference; None with fewer than two seeds."""
        return difference_interval(self.reference, self.ours, self.paired)

    @property
    def verdict(self) -> Literal["better", "worse", ""]:
        """ "better" or "worse" where the interval excludes zero."""
        if self.interval is None or not self.better or self.interval[0] <= 0 <= self.interval[1]:
            return ""
        return "better" if (self.interval[0] > 0) == (self.better > 0) else "worse"


@dataclass(frozen=True)
class Column:
    name: str
    ours: str = ""  # what it ran on; empty if only the paper has numbers, as for cited methods
    paper: str = ""  # the paper's dataset; empty if only we have numbers
    key: str = ""  # the name that claims use

    @property
    def measure(self) -> str:
        """The name without the paper's dataset, which has a heading of its own: "P@1"."""
        return ", ".join(part for part in self.name.split(", ") if part != self.paper)

    @property
    def headings(self) -> list[str]:
        """The heading of our numbers and, where the paper has some, of the paper's."""
        if not self.paper:
            return [self.ours or "not run"]
        return [self.ours or f"{self.paper}: not run", f"{self.paper} (paper)"]


@dataclass(frozen=True)
class Row:
    """Labels, one per label column, and cells, one per measured column."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def key(self) -> str:  # the name that claims use
        return " ".join(self.labels)


@dataclass(frozen=True)
class Table:
    """A table of the paper with our numbers."""

    title: str
    caption: str
    stubs: tuple[str, ...]  # headings of the label columns
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()  # what ran, how settings were chosen, the paper's contradictions
    images: bytes = field(default=b"", repr=False)  # a PNG shown below the table
    images_caption: str = ""

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Shared headings and how many columns each spans; empty where no column has one."""
        groups = groupby(self.columns, lambda column: column.measure)
        found = [(measure, sum(len(c.headings) for c in columns)) for measure, columns in groups]
        return found if any(measure for measure, _ in found) else []

    def cells(self) -> Iterator[tuple[Row, Column, Cell]]:
        """Every cell with its row and column."""
        for row in self.rows:
            for column, cell in zip(self.columns, row.cells, strict=True):
                yield row, column, cell

    def cell(self, row: str, column: str) -> Cell | None:
        """The cell at these keys; None if there is none. One label may name the row, too."""
        for line, head, cell in self.cells():
            if (row == line.key or row in line.labels) and column in (head.key, head.name):
                return cell
        return None


Grid = tuple[tuple[Column, ...], tuple[Row, ...]]
"""The columns and rows of a table."""


def grid(
    columns: Mapping[Column, Sequence[Any]],
    rows: Mapping[Any, Sequence[Any]],
    cell: Callable[..., Cell],
) -> Grid:
    """The columns and rows of a table: the cells are `cell(*of_row, *of_column)`, with what `rows`
    has for the labels of the row and `columns` for the column."""
    made = [
        Row(labels, tuple(cell(*of_row, *of_column) for of_column in columns.values()))
        for labels, of_row in rows.items()
    ]
    return tuple(columns), tuple(made)


@dataclass(frozen=True, eq=False)
class PaperFigure:
    """A figure of the paper, drawn again; saved as SVG, PDF and PNG, its numbers as CSV."""

    title: str
    caption: str
    draw: Callable[[], Figure]
    data: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    numbers: Table | None = None  # those that claims read, saved as a CSV of their own

    @cached_property
    def figure(self) -> Figure:
        """The drawing, which takes seconds: made when it is first needed."""
        return self.draw()


@dataclass(frozen=True)
class Choice:
    """A search over losses, a Run of each, decided on validation classes and never on the test
    classes."""

    what: str  # such as "Input Mixup with Softmax on glyphs 2"
    runs: tuple[Run, ...]
    by: str = "map@r"  # the metric of `Result.validation` that decides


Artifact = Callable[["Scale", "Store"], "Table | PaperFigure"]
"""Makes a table or a figure from the results that the store has; what is missing is shown as a
dash. What an artifact asks the store for is what has to be trained for it."""
