"""Tables and figures as sections of the page."""

from __future__ import annotations

import base64
import io
import re

from proxysynth.paper.artifact import Picture, Sheet, Table
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
        _sheet(table.sheet),
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
    groups = [tag("th", name, colspan=width, class_="group") for name, width in table.groups]
    above = (
        tag("tr", tag("th", "", colspan=len(table.stubs)), groups, class_="groups")
        if groups
        else None
    )
    subs = [tag("th", stub) for stub in table.stubs]
    for column in table.columns:
        subs.append(tag("th", column.ours_head, class_="number ours"))
        if column.paper:
            subs.append(tag("th", column.paper_head, class_="number paper"))
    # The label that stays in sight where a wide table is scrolled.
    held = table.stubs.index("method") if "method" in table.stubs else 0
    body = []
    for row in table.rows:
        cells = [
            tag("th", label, scope="row", class_="held" if number == held else None)
            for number, label in enumerate(row.labels)
        ]
        for column, cell in zip(table.columns, row.cells, strict=True):
            shown = show(cell)
            cells.append(_ours(shown, cell.chosen))
            if column.paper:
                cells.append(_paper(shown))
        body.append(tag("tr", cells))
    return tag(
        "table",
        tag("thead", above, tag("tr", subs)),
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


def _sheet(sheet: Sheet | None) -> Html | None:
    if sheet is None:
        return None
    return tag("figure", _image(sheet.png, sheet.words), tag("figcaption", sheet.words))


def _notes(notes: tuple[str, ...]) -> Html:
    return tag("ul", [tag("li", code(note)) for note in notes], class_="notes") if notes else join(
        None
    )  # fmt: skip


def code(text: str) -> Html:
    """Text with what stands between backticks as code."""
    parts = re.split(r"`([^`]*)`", text)
    return join([tag("code", p) if i % 2 else escape(p) for i, p in enumerate(parts)])


def _drawing(picture: Picture) -> Html:
    """The figure as a picture inside the page. As an image its own ids and styles stay its own."""
    file = io.BytesIO()
    picture.figure.savefig(file, format="png", dpi=160, bbox_inches="tight", facecolor="white")
    return _image(file.getvalue(), picture.caption)


def _image(png: bytes, words: str) -> Html:
    data = base64.b64encode(png).decode()
    return tag("img", src=f"data:image/png;base64,{data}", alt=words, class_="drawing")
