"""Renders results/paper_small again from its CSV files: tables, claims and the page.

The numbers are those of the CSV files, the notes and figures those that the program wrote beside
them, so that wording and verdicts can change without the models that were trained.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proxysynth.files import write_bytes
from proxysynth.formatting import and_join
from proxysynth.paper.artifact import Cell, ContactSheet, Row, Table
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.book import CLAIMS_FILE, PAGE, Entry, claims_markdown, render_page
from proxysynth.paper.claims import CLAIMS, check
from proxysynth.paper.claims.claim import titled
from proxysynth.paper.render import (
    data_uri,
    section,
    table_latex,
    table_markdown,
    templates,
)
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store

FOLDER = Path(__file__).parents[1] / "results" / "paper_small"
SCALE = SCALES["small"]
EARLIER = r"(?<!distorted )glyphs \d|glyph faces"  # what they call their data
ABOUT = ("scale", "seeds", "date", "commit", "proxysynth", "torch", "python", "machine")


def rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def notes(name: str) -> tuple[str, ...]:
    lines = (FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))


def baseline_of(name: str, i: int, j: int, table: Table) -> tuple[int, int] | None:
    """The row and column that a cell is compared with."""
    label = table.rows[i].labels[0]
    if name == "table3":
        return (i, 0) if j == 1 else None
    if name == "tableB":
        return (i, j - 1) if j % 2 else None
    if name in ("table1", "table5", "tableD"):
        return (0, j) if i else None
    method = next((text for text in table.rows[i].labels if text.startswith("PS + ")), "")
    return (i - 1, j) if method or label.startswith("PS + ") else None


def filled(name: str, empty: Table) -> Table:
    """A table with the numbers of its CSV file, and the notes that were written with them."""
    if not any(line["values"] for line in rows(name)):
        return empty
    values = iter(rows(name))
    cells: list[list[Cell]] = []
    ran = [""] * len(empty.columns)
    for row in empty.rows:
        cells.append([])
        for j, cell in enumerate(row.cells):
            line = next(values)
            assert line["row"] == " | ".join(row.labels), (name, line["row"], row.labels)
            ours = tuple(map(float, line["values"].split()))
            cells[-1].append(replace(cell, ours=ours, chosen=line["chosen"] == "yes"))
            ran[j] = ran[j] or line["ran_on"]
    plain = [tuple(map(float, r["values"].split())) for r in rows("table1")[:2]]
    for i, row_cells in enumerate(cells):
        for j, cell in enumerate(row_cells):
            place = baseline_of(name, i, j, empty)
            base = cells[place[0]][place[1]].ours if place else ()
            row_cells[j] = replace(cell, baseline=plain[j] if name == "table2" else base)
    return replace(
        empty,
        columns=tuple(replace(c, ours=on) for c, on in zip(empty.columns, ran, strict=True)),
        rows=tuple(Row(r.labels, tuple(c)) for r, c in zip(empty.rows, cells, strict=True)),
        notes=notes(name) if name.startswith("table") else (),
    )


def figure_section(name: str) -> str:
    """A figure as it was drawn, from its files."""
    lines = (FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()
    title = lines[0].removeprefix("# ")
    figure: dict[str, Any] = {"title": title, "caption": lines[4], "notes": notes(name)}
    image = data_uri((FOLDER / f"{name}.png").read_bytes())
    return templates().get_template("section.html").render(
        name=name, table=None, figure=figure, image=image
    )  # fmt: skip


def remark(names: list[str]) -> str:
    """Which artifacts are older than the stand-ins of this version."""
    older = [
        titled(name)
        for name in names
        if re.search(EARLIER, (FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    ]
    return (
        f"{and_join(older)} show earlier stand-ins: undistorted glyphs, where the plain losses "
        "reach a Recall@1 of 95 to 99. Their notes say so."
        if older
        else ""
    )


def main() -> None:
    nothing = Store(FOLDER / "none", read_only=True)
    tables, entries = {}, []
    for name, artifact in load_artifacts().items():
        if name.startswith("figure"):
            entries.append(Entry(name, f"Figure {name[6:]}", Markup(figure_section(name))))
            if artifact.numbers is not None:
                empty = artifact.numbers(SCALE, nothing)
                tables[name] = filled(f"{name}_numbers", empty)
            continue
        empty = artifact.make(SCALE, nothing)
        assert isinstance(empty, Table)
        tables[name] = table = filled(name, empty)
        if name == "table3":
            png = (FOLDER / "table3.png").read_bytes()
            table = replace(table, sheet=ContactSheet(png, "Test images in each deformation."))
        write_bytes(FOLDER / f"{name}.md", table_markdown(table, name).encode())
        write_bytes(FOLDER / f"{name}.tex", table_latex(table).encode())
        entries.append(Entry(name, table.title, Markup(section(name, table))))
    checked = check(CLAIMS, tables)
    about = {key: rows("table1")[0][key] for key in ABOUT}
    entries.sort(key=lambda one: list(TITLES).index(one.name))
    older = remark([one.name for one in entries])
    page = render_page(entries, tables, checked, [], SCALE, nothing, about, older)
    write_bytes(FOLDER / PAGE, page.encode())
    write_bytes(FOLDER / CLAIMS_FILE, claims_markdown(checked).encode())


if __name__ == "__main__":
    main()
