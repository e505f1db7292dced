"""A table as CSV: a line per cell, with every seed's number and where it was measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from proxysynth.paper.artifact import Table
from proxysynth.paper.render.shown import difference, interval, verdict

FIELDS = (
    "table", "row", "column", "ran_on", "mean", "deviation", "seeds", "values", "change",
    "change_low", "change_high", "verdict", "chosen", "paper", "paper_spread", "paper_on",
)  # fmt: skip


def table_csv(table: Table, about: Mapping[str, str]) -> str:
    """The table, with the same facts about the measurement in every line."""
    lines = []
    for row in table.rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            change, limits = difference(cell), interval(cell)
            lines.append(
                {
                    "table": table.title,
                    "row": " | ".join(row.labels),
                    "column": column.name,
                    "ran_on": column.ours if cell.ours else "",
                    "mean": _number(fmean(cell.ours)) if cell.ours else "",
                    "deviation": _number(stdev(cell.ours)) if len(cell.ours) > 1 else "",
                    "seeds": len(cell.ours) or "",
                    "values": " ".join(_number(value) for value in cell.ours),
                    "change": "" if change is None else _number(change),
                    "change_low": "" if limits is None else _number(limits[0]),
                    "change_high": "" if limits is None else _number(limits[1]),
                    "verdict": verdict(cell),
                    "chosen": "yes" if cell.chosen else "",
                    "paper": "" if cell.paper is None else f"{cell.paper:g}",
                    "paper_spread": "" if cell.paper_spread is None else f"{cell.paper_spread:g}",
                    "paper_on": column.paper,
                    **about,
                }
            )
    return rows_csv(lines, (*FIELDS, *about))


def rows_csv(rows: Sequence[Mapping[str, Any]], fields: Sequence[str] = ()) -> str:
    """Any rows, such as the numbers behind a figure."""
    names = list(fields) or list(dict.fromkeys(name for row in rows for name in row))
    file = io.StringIO()
    writer = csv.DictWriter(file, names, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _number(value: float) -> str:
    return f"{value:.6g}"
