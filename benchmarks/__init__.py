"""Side-by-side measurements; every module's `run(quick)` returns the rows of its tables."""

from __future__ import annotations

import argparse
import csv
import importlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from proxysynth.files import write_bytes
from proxysynth.provenance import provenance

ROOT = Path(__file__).parents[1]
"""The checkout, where benchmarks start processes as `python -m benchmarks.NAME`."""

BENCHES = {
    "step": "time of one step: plain, peers, reference, fused",
    "memory": "memory of one step over the number of classes",
    "neighbours": "evaluation against faiss and pytorch-metric-learning",
    "loader": "images per second of the loader against plain Pillow",
    "training": "images per second of training against a plain loop",
    "scale": "a training step from a thousand classes to a million, on one to four processes",
    "serve": "requests per second of the search service, eight clients",
    "growth": "exact search up to a million items, and LanceDB",
}

Row = dict[str, Any]


def measure(name: str, quick: bool = False) -> list[Row]:
    """Run one benchmark and return its rows. The machine should be otherwise idle.

    A quick run only checks that the code works, so its numbers are not compared with the targets.
    """
    rows = importlib.import_module(f"benchmarks.{name}").run(quick=quick)
    left_out = ("target", "reached") if quick else ()
    return [
        {"bench": name, **{key: value for key, value in row.items() if key not in left_out}}
        for row in rows
    ]


def show(rows: list[Row], console: Console) -> None:
    """Print the rows, a table for each group."""
    for title, group in _groups(rows).items():
        columns = _columns(group)
        table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
        for key in columns:
            numeric = any(isinstance(row.get(key), (int, float)) for row in group)
            table.add_column(key.replace("_", " "), justify="right" if numeric else "left")
        for row in group:
            style = "bold" if row.get("reached") is not None else None
            table.add_row(*(_cell(key, row.get(key)) for key in columns), style=style)
        # At full width even in a narrower terminal: numbers that are cut off are useless.
        wide = max(console.width, Console(width=10_000).measure(table).maximum)
        Console(file=console.file, width=wide).print(table, crop=False)


def save(rows: list[Row], folder: Path) -> list[Path]:
    """Write one `bench_NAME_TABLE.csv` for each table, atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    facts, made = provenance(), []
    for title, group in _groups(rows).items():
        path = folder / f"bench_{title.lower().replace(' ', '_').replace(':', '')}.csv"
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, [*_columns(group), *facts], extrasaction="ignore")
        writer.writeheader()
        for row in group:
            writer.writerow({key: _plain(value) for key, value in (row | facts).items()})
        write_bytes(path, text.getvalue().encode())
        made.append(path)
    return made


def save_rows_of_indexes(run: Callable[[Path], list[Row]]) -> None:
    """Run a benchmark of indexes as a program: `FILE ... --save DIR`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--save", type=Path, required=True)
    args = parser.parse_args()
    print(*save([row for file in args.files for row in run(file)], args.save), sep="\n")


def _groups(rows: list[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        table = row.get("table", row["bench"])
        title = table if table == row["bench"] else f"{row['bench']}: {table}"
        groups.setdefault(title, []).append(row)
    return groups


def _columns(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(key for row in rows for key in row if key not in ("bench", "table")))


def _cell(key: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _plain(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else value
