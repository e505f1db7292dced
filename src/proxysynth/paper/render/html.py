"""Tables and figures as sections of the page."""

from __future__ import annotations

import base64
import io
import re

from proxysynth.paper.artifact import Picture, Table
from proxysynth.paper.render.shown import DASH, Shown, show
from proxysynth.report.markup import Html, escape, join, tag


def table_section(name: str, table: Table) -> Html:
    """A table with its notes; `name` is its anchor."""
    return tag(
        "section",
        tag("h2", table.title),
        tag("p", table.caption),
        tag("div", _table(table), class_="scroll"),
        _notes(table.notes),
        id=name,
    )


def picture_section(name: str, picture: Picture) -> Html:
    """A figure, drawn into the page, with its notes."""
    return tag(
        "section",
        tag("h2", picture.title),
        tag("figure", _drawing(picture), tag("figcaption", picture.caption)),
        _notes(picture.notes),
        id=name,
    )


def _table(table: Table) -> Html:
    spans = [tag("th", "", colspan=len(table.stubs))]
    subs = [tag("th", stub) for stub in table.stubs]
    for column in table.columns:
        width = 2 if column.paper else 1
        spans.append(tag("th", column.name, colspan=width, class_="group"))
        subs.append(tag("th", column.ours or "not run", class_="number ours"))
        if column.paper:
            subs.append(tag("th", f"{column.paper}, paper", class_="number paper"))
    body = []
    for row in table.rows:
        cells = [tag("th", label, scope="row") for label in row.labels]
        for column, cell in zip(table.columns, row.cells, strict=True):
            shown = show(cell)
            cells.append(_ours(shown, cell.chosen))
            if column.paper:
                cells.append(_paper(shown))
        body.append(tag("tr", cells))
    return tag(
        "table",
        tag("thead", tag("tr", spans), tag("tr", subs)),
        tag("tbody", body),
        class_="paper",
    )


def _ours(shown: Shown, chosen: bool) -> Html:
    if shown.ours == DASH:
        return tag("td", DASH, class_="number ours", title="not run")
    change = tag("small", " ", shown.change, class_=shown.verdict or None) if shown.change else None
    value = tag("b", shown.ours) if chosen else shown.ours
    colour = shown.verdict if shown.verdict and not shown.change else ""  # of a gain
    return tag("td", value, change, class_=f"number ours {colour}".strip())


def _paper(shown: Shown) -> Html:
    change = tag("small", " ", shown.paper_change) if shown.paper_change else None
    return tag("td", shown.paper, change, class_="number paper")


def _notes(notes: tuple[str, ...]) -> Html:
    return tag("ul", [tag("li", _code(note)) for note in notes], class_="notes") if notes else join(
        None
    )  # fmt: skip


def _code(text: str) -> Html:
    """Text with what stands between backticks as code."""
    parts = re.split(r"`([^`]*)`", text)
    return join([tag("code", p) if i % 2 else escape(p) for i, p in enumerate(parts)])


def _drawing(picture: Picture) -> Html:
    """The figure as a picture inside the page. As an image its own ids and styles stay its own."""
    file = io.BytesIO()
    picture.figure.savefig(file, format="png", dpi=160, bbox_inches="tight", facecolor="white")
    data = base64.b64encode(file.getvalue()).decode()
    return tag("img", src=f"data:image/png;base64,{data}", alt=picture.caption, class_="drawing")
