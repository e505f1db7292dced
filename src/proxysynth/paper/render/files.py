"""What a table or figure leaves on disk."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from proxysynth.files import write_bytes
from proxysynth.paper.artifact import Picture, Table
from proxysynth.paper.render.csv_text import rows_csv, table_csv
from proxysynth.paper.render.latex import table_latex
from proxysynth.paper.render.markdown import picture_markdown, table_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
_UNDATED = {
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "png": {"Software": None},
}  # the same figure is the same file every time


def write_table(folder: Path, name: str, table: Table, about: Mapping[str, str]) -> list[Path]:
    """NAME.md, NAME.csv and NAME.tex, and NAME.png where pictures stand below it."""
    texts = {
        "md": table_markdown(table, name),
        "csv": table_csv(table, about),
        "tex": table_latex(table),
    }
    made = [_write(folder / f"{name}.{ending}", text) for ending, text in texts.items()]
    if table.sheet is not None:
        write_bytes(folder / f"{name}.png", table.sheet.png)
        made.append(folder / f"{name}.png")
    return made


def write_picture(folder: Path, name: str, picture: Picture) -> list[Path]:
    """NAME.svg, NAME.pdf, NAME.png, NAME.md, and NAME.csv where it has numbers."""
    made = write_figure(folder, name, picture.figure)
    made.append(_write(folder / f"{name}.md", picture_markdown(picture, name)))
    if picture.data:
        made.append(_write(folder / f"{name}.csv", rows_csv(picture.data)))
    return made


def write_figure(
    folder: Path, name: str, figure: Figure, formats: Sequence[str] = FORMATS
) -> list[Path]:
    """NAME in each format; the same bytes every time, so that other bytes are another figure."""
    from matplotlib import rc_context

    made = []
    for kind in formats:
        file = io.BytesIO()
        with rc_context({"svg.hashsalt": name}):
            figure.savefig(file, format=kind, dpi=200, bbox_inches="tight", metadata=_UNDATED[kind])
        made.append(folder / f"{name}.{kind}")
        write_bytes(made[-1], file.getvalue())
    return made


def _write(path: Path, text: str) -> Path:
    write_bytes(path, text.encode())
    return path
