"""A table as Markdown."""

from __future__ import annotations

from proxysynth.paper.artifact import Column, Picture, Table
from proxysynth.paper.render.shown import DASH, Shown, show

MARKS = {"better": " ▲", "worse": " ▼", "": ""}


def heads(column: Column) -> list[str]:
    """The headings of a measured column: what ran, then the paper's in its own."""
    made = [column.ours_head, *([column.paper_head] if column.paper else [])]
    return [f"{column.measure}, {head}" if column.measure else head for head in made]


def table_markdown(table: Table, name: str = "") -> str:
    """Title, caption, table, notes, and the pictures below it, which lie in NAME.png."""
    head = [*table.stubs, *(text for column in table.columns for text in heads(column))]
    lines = [_line(head), _line(["---"] * len(head))]
    for row in table.rows:
        words = list(row.labels)
        for column, cell in zip(table.columns, row.cells, strict=True):
            shown = show(cell)
            words.append(ours_text(shown))
            words += [paper_text(shown)] if column.paper else []
        lines.append(_line(words))
    notes = [f"- {note}" for note in table.notes]
    marks = "▲ better and ▼ worse, where the seeds' spread supports it; – was not run."
    sheet = ["", f"![{table.sheet.words}]({name}.png)"] if table.sheet and name else []
    return "\n".join(
        [f"# {table.title}", "", table.caption, "", *lines, "", marks, "", *notes, *sheet, ""]
    )


def picture_markdown(picture: Picture, name: str) -> str:
    """Title, the figure's file, caption, notes."""
    notes = [f"- {note}" for note in picture.notes]
    return "\n".join(
        [f"# {picture.title}", "", f"![{picture.title}]({name}.svg)", "", picture.caption, "",
         *notes, ""]
    )  # fmt: skip


def ours_text(shown: Shown) -> str:
    """84.7 ± 0.3 (+1.4 ▲)"""
    if shown.ours == DASH or not shown.change:
        return shown.ours + MARKS[shown.verdict]
    return f"{shown.ours} ({shown.change}{MARKS[shown.verdict]})"


def paper_text(shown: Shown) -> str:
    """84.7 (+1.4)"""
    return f"{shown.paper} ({shown.paper_change})" if shown.paper_change else shown.paper


def _line(words: list[str]) -> str:
    return "| " + " | ".join(word.replace("|", "\\|") for word in words) + " |"
