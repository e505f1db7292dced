"""Metrics as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import Console
from rich.table import Table

from proxysynth.formatting import metric_heading, metric_name

COUNTS = ("queries", "queries_without_positive")


def show_measures(rows: Mapping[str, Mapping[str, float]], title: str, console: Console) -> None:
    """A row for each set of metrics, in per cent."""
    # Precision@1 is Recall@1 under another name: said once.
    first = next(iter(rows.values()))
    hidden = (*COUNTS, "precision@1") if "recall@1" in first else COUNTS
    keys = [key for key in first if key not in hidden]
    table = Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")
    # On one line where there is room for it, with three more columns of space for each name.
    width = sum(3 + len(text) for text in (max(rows, key=len), *map(metric_name, keys)))
    called = metric_name if 1 + width <= console.width else metric_heading
    table.add_column("")
    for key in keys:
        table.add_column(called(key), justify="right", overflow="fold")
    for name, metrics in rows.items():
        table.add_row(name, *(_percent(metrics.get(key)) for key in keys))
    console.print(table)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"
