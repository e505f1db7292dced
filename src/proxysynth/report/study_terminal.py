"""A study in the terminal: the unseen classes, then the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from .study_result import KINDS
from .study_words import TITLES, amount, dimensions, method, number, short, state, with_interval


def render_study(result: Mapping[str, Any], console: Console) -> None:
    """The result, the trials, the importance of each parameter."""
    console.print(_result(result))
    console.print(_trials(result))
    if result["importance"]:
        shares = ", ".join(f"{k} {100 * v:.0f} %" for k, v in result["importance"].items())
        console.print(f"What mattered: {shares}.", markup=False)


def _table(title: str) -> Table:
    return Table(title=title, box=box.SIMPLE, title_justify="left", title_style="bold")


def _result(result: Mapping[str, Any]) -> Table:
    interval = ", with 95 % t-intervals" if result["repetitions"] > 1 else ""
    table = _table(
        f"{method(result)}, unseen classes of {result['data']}\n{amount(result)}\n"
        f"per cent{interval}"
    )
    table.add_column("")
    for title in TITLES.values():
        table.add_column(title, justify="right")
    for kind in KINDS:
        cells = (with_interval(result["summary"][kind][name]) for name in TITLES)
        table.add_row(dimensions(result, kind), *cells)
    return table


def _trials(result: Mapping[str, Any]) -> Table:
    table = _table("Search: MAP@R of the folds held out of the seen classes, per cent")
    table.add_column("trial", justify="right")
    table.add_column("MAP@R", justify="right")
    for item in result["space"]:
        table.add_column(short(item["name"]), justify="right")
    table.add_column("")
    for trial in result["search"]:
        best = trial["index"] + 1 == result["best_trial"]
        table.add_row(
            str(trial["index"] + 1),
            f"{100 * trial['value']:.2f}",
            *(number(trial["params"][item["name"]]) for item in result["space"]),
            ", ".join(part for part in ("best" if best else "", state(trial)) if part),
            style="bold" if best else None,
        )
    return table
