"""Comparisons and studies in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from proxysynth.formatting import metric_heading, metric_keys, metric_name, percent, points
from proxysynth.report.comparison import Comparison
from proxysynth.report.study import (
    TITLES,
    StudyResult,
    amount,
    at_bounds,
    method,
    metric_rows,
    trial_rows,
)

COLORS = {"better": "green", "worse": "red", "": "dim"}
TEXTS = {"", "run", "group", "metric", "setting"}  # columns of texts; others are of numbers


def render_comparison(comparison: Comparison, console: Console) -> None:
    """Print tables of runs, of groups of seeds and of settings, then remarks."""
    measures, groups = comparison.measures, comparison.groups
    head = [metric_heading(key) for key in measures]
    rows = []
    for run in comparison.runs:
        cells = []
        for key in measures:
            change = comparison.difference_text(run, key)
            below = f"\n[dim]{change}[/]" if change else ""
            cells.append(percent(run.metrics.get(key), 2) + below)
        letter = comparison.group_of(run).letter
        rows.append((letter, escape(run.name), str(run.run.seed), *cells))
    title = "Runs, in %, with the difference from the first"
    _show(console, title, ("", "run", "seed", *head), rows)
    if comparison.several_seeds:
        rows = []
        for group in groups:
            cells = [group.shown(key).replace(" ± ", "\n± ") for key in measures]
            rows.append((group.letter, escape(group.name), str(len(group.runs)), *cells))
        title = "Runs grouped by setting, mean ± standard deviation"
        _show(console, title, ("", "group", "seeds", *head), rows)
    if comparison.several_seeds and comparison.contrasts:
        title = f"Against {groups[0].letter}, in percentage points"
        rows = []
        for item in comparison.contrasts:
            difference = f"[{COLORS[item.tone]}]{points(item.printed, 2)}[/]"
            texts = (difference, item.interval_text, item.summary)
            rows.append((item.group.letter, metric_name(item.measure), *texts))
        _show(console, title, ("", "metric", "difference", "95% interval", ""), rows)
    if comparison.settings:
        rows = [(path, *map(escape, values)) for path, values in comparison.settings.items()]
        letters = [group.letter for group in groups]
        _show(console, "Different settings", ("setting", *letters), rows, letters)
    else:
        console.print(f"Different settings: {comparison.no_difference}\n", markup=False)
    for found in comparison.disagreements:
        console.print(
            f"Nearest neighbor correct only in {found.first}: {found.only_first:,}; only in "
            f"{found.second}: {found.only_second:,}; in both: {found.both:,}; in neither: "
            f"{found.neither:,}.",
            markup=False,
        )
    for sentence in comparison.remarks:
        console.print(sentence, markup=False)
    if comparison.contrasts and not comparison.several_seeds:
        console.print("One seed cannot establish a difference: train with more seeds.")


def render_metrics(rows: Mapping[str, Mapping[str, float]], title: str, console: Console) -> None:
    """Print a row for each set of metrics, in percent."""
    keys = metric_keys(*rows.values())
    cells = [
        (escape(name), *(percent(metrics.get(key), 2) for key in keys))
        for name, metrics in rows.items()
    ]
    _show(console, title, ("", *map(metric_heading, keys)), cells)


def render_study(result: StudyResult, console: Console) -> None:
    """Print the results on the unseen classes, the trials, and the importance of parameters."""
    interval = ", with 95% t-intervals" if result["repetitions"] > 1 else ""
    title = (
        f"{method(result)}, unseen classes of {result['data']}\n{amount(result)}\nin %{interval}"
    )
    _show(console, title, ("", *TITLES.values()), metric_rows(result))
    head, rows = trial_rows(result)
    title = "Search: MAP@R on the held-out folds, in %"
    _show(console, title, head, rows, best=result["best_trial"])
    if result["importance"]:
        shares = ", ".join(f"{k} {100 * v:.0f}%" for k, v in result["importance"].items())
        console.print(f"Importance of the parameters: {shares}.", markup=False)
    if result["at_bounds"]:
        console.print(at_bounds(result), markup=False)


def _show(
    console: Console,
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    texts: Sequence[str] = (),
    best: int | None = None,
) -> None:
    """Print a table; `texts` are further columns of texts, which are aligned on the left, and
    `best` is the number of a row in bold."""
    table = Table(box=box.SIMPLE, collapse_padding=True)
    least = 2
    for name, *cells in zip(head, *rows, strict=True):
        widest = max(console.measure(cell).maximum for cell in (name, *cells))
        if name in TEXTS or name in texts:
            table.add_column(name, overflow="fold")
            widest = min(widest, 8)
        else:
            table.add_column(name, justify="right", no_wrap=True)
        least += widest + 2
    if least > console.width:  # rich would cut numbers off
        table.width = least
    for number, row in enumerate(rows, 1):
        table.add_row(*row, style="bold" if number == best else None)
    console.print(title, style="bold", markup=False, highlight=False)
    console.print(table, crop=False)
