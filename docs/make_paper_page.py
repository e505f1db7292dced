"""Renders results/paper_small again from its CSV files: tables, claims and the page.

The numbers are those of the CSV files, the notes and figures those that the program wrote beside
them, so that wording and verdicts can change without the models that were trained.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from proxysynth.files import write_bytes
from proxysynth.paper.artifact import Cell, PaperFigure, Row, Table
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.book import CLAIMS_FILE, PAGE, claims_markdown, evidence, render_page
from proxysynth.paper.claims.claim import check
from proxysynth.paper.claims.rules import CLAIMS
from proxysynth.paper.render import table_latex, table_markdown
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store

FOLDER = Path(__file__).parents[1] / "results" / "paper_small"
SCALE = SCALES["small"]
ABOUT = ("scale", "seeds", "date", "commit", "proxysynth", "torch", "python", "machine")


def rows(name: str) -> list[dict[str, str]]:
    with open(FOLDER / f"{name}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def notes(name: str) -> tuple[str, ...]:
    lines = (FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()
    return tuple(line.removeprefix("- ") for line in lines if line.startswith("- "))


def filled(name: str, empty: Table) -> Table:
    """A table with the numbers of its CSV file, and the notes that were written with them.

    A column that the file does not have stays as it is.
    """
    lines = {(line["row"], line["column"]): line for line in rows(name)}
    if not any(line["values"] for line in lines.values()):
        return empty
    cells: list[list[Cell]] = []
    ran: list[str | None] = [None] * len(empty.columns)
    for row in empty.rows:
        left = {
            column: line for (of, column), line in lines.items() if of == " | ".join(row.labels)
        }
        cells.append(list(row.cells))
        for j, (column, cell) in enumerate(zip(empty.columns, row.cells, strict=True)):
            line = left.pop(column.name, None)
            if line is None:
                continue
            ours, base = (tuple(map(float, line[k].split())) for k in ("values", "baseline"))
            chosen = line["chosen"] == "yes"
            cells[-1][j] = replace(cell, ours=ours, baseline=base, chosen=chosen)
            ran[j] = ran[j] or line["ran_on"]
        assert not left, (name, row.labels, list(left))
    return replace(
        empty,
        columns=tuple(
            column if on is None else replace(column, ours=on)
            for column, on in zip(empty.columns, ran, strict=True)
        ),
        rows=tuple(Row(r.labels, tuple(c)) for r, c in zip(empty.rows, cells, strict=True)),
        notes=notes(name) if name.startswith("table") else (),
    )


def main() -> None:
    nothing = Store(FOLDER, read_only=True)
    made: dict[str, Table | PaperFigure] = {}
    for name, artifact in load_artifacts().items():
        empty = artifact(SCALE, nothing)
        if isinstance(empty, PaperFigure):
            caption = (FOLDER / f"{name}.md").read_text(encoding="utf-8").splitlines()[4]
            numbers = empty.numbers and filled(f"{name}_numbers", empty.numbers)
            made[name] = replace(empty, caption=caption, notes=notes(name), numbers=numbers)
            continue
        made[name] = table = filled(name, empty)
        if name == "table3":
            made[name] = table = replace(table, images=(FOLDER / "table3.png").read_bytes())
        write_bytes(FOLDER / f"{name}.md", table_markdown(table, name).encode())
        write_bytes(FOLDER / f"{name}.tex", table_latex(table).encode())
    tables = evidence(made)
    checked = check(CLAIMS, tables)
    about = {key: rows("table1")[0][key] for key in ABOUT}
    page = render_page(made, tables, checked, [], SCALE, nothing, about)
    write_bytes(FOLDER / PAGE, page.encode())
    write_bytes(FOLDER / CLAIMS_FILE, claims_markdown(checked, SCALE).encode())


if __name__ == "__main__":
    main()
