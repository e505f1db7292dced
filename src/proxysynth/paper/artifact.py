"""A table or a figure of the paper: what it is called, which Runs it needs, how it is made of them.

A table is a value: words and numbers, ours beside the paper's. How it looks as Markdown, CSV, LaTeX
or HTML is the business of `render/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from proxysynth.paper.choice import Choice
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.training.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Cell:
    """One number of ours beside the paper's.

    Args:
        ours: what was measured, one number per seed, in the unit that is printed; empty where it
            was not run, which shows as a dash.
        paper: what the paper prints, None where it prints nothing.
        paper_spread: its +-, where it has one.
        baseline: what `ours` is compared with, seed by seed; empty for no comparison.
        paper_baseline: what `paper` is compared with.
        paired: whether the seeds of `ours` and `baseline` belong together one by one.
        text: words instead of numbers.
        digits: after the decimal point.
        chosen: the cell that a search on validation classes chose.
        better: +1 where larger is better, -1 where smaller is, 0 where neither.
        gain: the number is a difference itself: it is compared with none and shows its sign.
        of_mean: the +- is the 95 % interval of the mean instead of the standard deviation.
    """

    ours: tuple[float, ...] = ()
    paper: float | None = None
    paper_spread: float | None = None
    baseline: tuple[float, ...] = ()
    paper_baseline: float | None = None
    paired: bool = True
    text: str = ""
    digits: int = 1
    chosen: bool = False
    better: int = 1
    gain: bool = False
    of_mean: bool = False

    @property
    def against(self) -> tuple[float, ...]:
        """What `ours` is compared with."""
        return (0.0,) * len(self.ours) if self.gain else self.baseline


@dataclass(frozen=True)
class Column:
    """A measured column: `name` is what is measured, `ours` what it ran on, `paper` the paper's.

    A column with an empty `paper` stands alone, ours only; one with an empty `ours` is the paper's
    only, as for methods that it cites.
    """

    name: str
    ours: str = ""
    paper: str = ""
    key: str = ""

    @property
    def measure(self) -> str:
        """The name without the paper's set, which stands in a heading of its own: "P@1"."""
        return ", ".join(part for part in self.name.split(", ") if part != self.paper)

    @property
    def ours_head(self) -> str:
        """What ran."""
        return self.ours or (f"{self.paper}: not run" if self.paper else "not run")

    @property
    def paper_head(self) -> str:
        """What the paper's numbers are of; "" where it has none."""
        return f"{self.paper} (paper)" if self.paper else ""


@dataclass(frozen=True)
class Line:
    """A row: its labels, one per stub column, and its cells, one per measured column."""

    labels: tuple[str, ...]
    cells: tuple[Cell, ...]

    @property
    def key(self) -> str:
        """What a claim calls the row."""
        return " ".join(self.labels)


@dataclass(frozen=True)
class Sheet:
    """Pictures below a table, to look at: a PNG and what it shows."""

    png: bytes = field(repr=False)
    words: str


@dataclass(frozen=True)
class Table:
    """A table of the paper, made again.

    Args:
        title: "Table 1".
        caption: what it shows.
        stubs: headings of the label columns.
        columns: headings of the measured columns.
        rows: the lines.
        notes: sentences below: what ran, how something was chosen, where the paper contradicts
            itself.
        sheet: pictures below it, None for none.
    """

    title: str
    caption: str
    stubs: tuple[str, ...]
    columns: tuple[Column, ...]
    rows: tuple[Line, ...]
    notes: tuple[str, ...] = ()
    sheet: Sheet | None = None

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.labels) != len(self.stubs) or len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.title}: a row needs {len(self.stubs)} labels and {len(self.columns)} "
                    f"cells, got {len(row.labels)} and {len(row.cells)} in {row.key!r}"
                )

    @property
    def groups(self) -> list[tuple[str, int]]:
        """What is measured, with how many headings stand below it; empty where no name says it."""
        made: list[tuple[str, int]] = []
        for column in self.columns:
            width = 2 if column.paper else 1
            if made and made[-1][0] == column.measure:
                width += made.pop()[1]
            made.append((column.measure, width))
        return made if any(measure for measure, _ in made) else []

    def at(self, row: str, column: str) -> Cell | None:
        """The cell in the row of that key and the column of that key; None if there is none."""
        for line in self.rows:
            if line.key == row:
                for head, cell in zip(self.columns, line.cells, strict=True):
                    if column in (head.key, head.name):
                        return cell
        return None


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure of the paper, made again.

    Args:
        title: "Figure 2".
        caption: what it shows.
        figure: matplotlib's; saved as SVG, PDF and PNG.
        data: the plotted numbers, saved as CSV; may be empty for a drawing.
        notes: sentences below it.
    """

    title: str
    caption: str
    figure: Figure
    data: list[dict[str, Any]] = field(default_factory=list)
    notes: tuple[str, ...] = ()


Pick = Callable[[Choice], Any]
"""What a search found: the value of the option that its validation Runs like best."""


def _nothing_later(scale: Scale, pick: Pick) -> Sequence[Run]:
    return ()


@dataclass(frozen=True)
class Artifact:
    """How to make a table or a figure.

    Args:
        name: "table6", "figureA".
        title: what it shows, in a few words, for `--list`.
        runs: the Runs it needs, the same ones on every call; those of its searches among them. A
            benchmark that the scale has no data for gives no Run.
        make: the table or figure from what the store holds. It trains nothing: what is missing
            becomes a dash.
        later: the Runs whose settings a search decides; asked once the `runs` are done.
    """

    name: str
    title: str
    runs: Callable[[Scale], Sequence[Run]]
    make: Callable[[Scale, Store], Table | Picture]
    later: Callable[[Scale, Pick], Sequence[Run]] = _nothing_later
