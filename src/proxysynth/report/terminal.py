"""Comparisons and studies in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxysynth.formatting import metric_heading, metric_name, percent, points

from .comparison import Comparison, verdicts, with_spread
from .pages import tone
from .study import TITLES, Result, amount, method, metric_rows, trial_rows

COLORS = {"better": "green", "worse": "red", "": "dim"}


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print tables of runs, of groups of seeds and of settings, then the verdicts."""
    console.print(_runs(comparison, console.width))
    if comparison.several_seeds:
        console.print(_groups(comparison, console.width))
        if comparison.contrasts:
            console.print(_contrasts(comparison))
    if comparison.settings:
        console.print(_settings(comparison))
    else:
        console.print(f"Different settings: {comparison.no_difference}\n", markup=False)
    for item in comparison.disagreements:
        console.print(
            f"Nearest neighbor correct only in {item.first}: {item.only_first:,}; only in "
            f"{item.second}: {item.only_second:,}; in both: {item.both:,}; in neither: "
            f"{item.neither:,}.",
            markup=False,
        )
    for sentence in (*verdicts(comparison), *comparison.remarks):
        console.print(sentence, markup=False)


def render_study(result: Result, console: Console) -> None:
    """Print the results on the unseen classes, the trials, and the importance of parameters."""
    interval = ", with 95 % t-intervals" if result["repetitions"] > 1 else ""
    table = _table(
        f"{method(result)}, unseen classes of {result['data']}\n{amount(result)}\nin %{interval}",
        collapse_padding=False,
    )
    for title in ("", *TITLES.values()):
        table.add_column(title, justify="right" if title else "left")
    for row in metric_rows(result):
        table.add_row(*row)
    console.print(table)
    head, rows = trial_rows(result)
    table = _table("Search: MAP@R on the held-out folds, in %", collapse_padding=False)
    for title in head:
        table.add_column(title, justify="right" if title else "left")
    for row in rows:
        table.add_row(*row, style="bold" if row[0] == str(result["best_trial"]) else None)
    console.print(table)
    if result["importance"]:
        shares = ", ".join(f"{k} {100 * v:.0f} %" for k, v in result["importance"].items())
        console.print(f"Importance of the parameters: {shares}.", markup=False)


def _table(title: str, collapse_padding: bool = True) -> Table:
    return Table(
        title=escape(title),
        box=box.SIMPLE,
        collapse_padding=collapse_padding,
        title_justify="left",
        title_style="bold",
    )


def _naming(
    keys: Sequence[str], names: Sequence[str], least: int, width: int
) -> Callable[[str], str]:
    """How to head columns of at least `least` characters: on one line if all fit the width."""
    used = 14 + max(map(len, names)) + sum(2 + max(least, len(metric_name(key))) for key in keys)
    return metric_name if used <= width else metric_heading


def _runs(comparison: Comparison, width: int) -> Table:
    table = _table("Runs, in %, with the difference to the first")
    table.add_column("")
    table.add_column("run", overflow="fold")
    table.add_column("seed", justify="right")
    title = _naming(comparison.measures, [run.name for run in comparison.runs], 8, width)
    for key in comparison.measures:
        table.add_column(title(key), justify="right", overflow="fold")
    for run in comparison.runs:
        cells = []
        for key in comparison.measures:
            cell = percent(run.metrics.get(key), 2)
            change = comparison.difference(run, key)
            if change is not None:
                cell += f"\n[{COLORS[tone(change)]}]{points(change, 2)}[/]"
            cells.append(cell)
        table.add_row(comparison.letter_of(run), escape(run.name), str(run.run.seed), *cells)
    return table


def _groups(comparison: Comparison, width: int) -> Table:
    table = _table("Groups of seeds, mean ± standard deviation")
    table.add_column("")
    table.add_column("group", overflow="fold")
    table.add_column("seeds", justify="right")
    title = _naming(comparison.measures, [group.name for group in comparison.groups], 15, width)
    for key in comparison.measures:
        table.add_column(title(key), justify="right", overflow="fold")
    for group in comparison.groups:
        cells = [with_spread(group.spread(key)) for key in comparison.measures]
        if title is metric_heading:  # if the names take two lines, so do the numbers
            cells = [cell.replace(" ± ", "\n± ") for cell in cells]
        table.add_row(group.letter, escape(group.name), str(len(group.runs)), *cells)
    return table


def _contrasts(comparison: Comparison) -> Table:
    table = _table(f"Against {comparison.groups[0].letter}, in percentage points")
    for title in ("", "metric"):
        table.add_column(title)
    for title in ("difference", "95 % interval"):
        table.add_column(title, justify="right")
    table.add_column("")
    for item in comparison.contrasts:
        change = f"[{COLORS[tone(item.difference)]}]{points(item.difference, 2)}[/]"
        metric = metric_name(item.measure)
        table.add_row(item.letter, metric, change, item.interval_text, item.summary)
    return table


def _settings(comparison: Comparison) -> Table:
    table = _table("Different settings")
    table.add_column("setting")
    for group in comparison.groups:
        table.add_column(group.letter, overflow="fold")
    for path, values in comparison.settings.items():
        table.add_row(path, *(escape(value) for value in values))
    return table
