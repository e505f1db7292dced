"""Output on the terminal: no text from a file can move the cursor or change the title."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment

from proxysynth.formatting import printable


class Console(rich.console.Console):
    """A console of rich that escapes control characters; its own colors are not affected."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            if not control and not text.isprintable():
                text = "\n".join(map(printable, text.split("\n")))
            yield Segment(text, style, control)
