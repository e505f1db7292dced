"""Output on the terminal: no text from a file can move the cursor or change the title."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence

import rich.console
from rich.cells import cell_len, set_cell_size
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from proxysynth.formatting import printable

UNLIMITED = 100_000  # columns


class Console(rich.console.Console):
    """A console of rich that escapes control characters; its own colors are not affected.

    What is piped or written to a file is never wrapped or cut to the width of a terminal.
    """

    def __init__(self, stderr: bool = False, quiet: bool = False) -> None:
        super().__init__(stderr=stderr, quiet=quiet)
        if not self.is_terminal:
            self.width = UNLIMITED

    def say(self, text: str) -> None:
        """Print a text as it is: no markup, no colors, lines of any length."""
        self.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def columns(self, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print aligned columns, without empty ones. No line is wrapped or cut: the last column
        is of paths."""
        columns = [column for column in zip(headings, *rows, strict=True) if any(column[1:])]
        widths = [max(cell_len(printable(cell)) for cell in column) for column in columns]
        for row in zip(*columns, strict=True):
            self.say("  ".join(map(set_cell_size, map(printable, row), widths)).rstrip())

    def on_broken_pipe(self) -> None:
        """Leave it to `main`: a closed pipe is not a failure."""
        raise BrokenPipeError

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            if not control and not text.isprintable():
                text = "\n".join(map(printable, text.split("\n")))
            yield Segment(text, style, control)


def output(args: argparse.Namespace) -> Console:
    """Standard output for people; silent with `--json`, which prints its own line."""
    return Console(quiet=args.json)
