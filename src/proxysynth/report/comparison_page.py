"""The page of several runs side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from .comparison import Comparison
from .comparison_curves import comparison_curves
from .disagreement_section import disagreement_sections
from .groups import Group
from .markup import Html, page, tag
from .numbers import count, listed, name, percent, points
from .pages import write_page
from .result_section import tone
from .svg import SERIES
from .verdict import between, no_difference, short, verdicts, with_spread


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the page, whole or not at all."""
    return write_page(Path(path), comparison_page(comparison))


def comparison_page(comparison: Comparison) -> Html:
    """The whole document."""
    names = [group.name for group in comparison.groups]
    title = listed(names) if len(names) <= 3 else count(len(comparison.runs), "run")
    return page(
        f"Comparison of {title}",
        tag(
            "header",
            tag("p", "Proxysynth comparison", class_="over"),
            tag("h1", title),
            tag("p", _summary(comparison), class_="lead"),
            [tag("p", sentence, class_="note bad") for sentence in comparison.remarks],
        ),
        _runs(comparison),
        _groups(comparison),
        _settings(comparison),
        comparison_curves(comparison, _legend(comparison)),
        disagreement_sections(comparison),
    )


def _summary(comparison: Comparison) -> str:
    data = sorted({run.data.title for run in comparison.runs})
    told = f"{count(len(comparison.runs), 'run')} on {listed(data)}"
    several = [group for group in comparison.groups if len(group.runs) > 1]
    return f"{told}, in {count(len(comparison.groups), 'group')} of seeds" if several else told


def _key(comparison: Comparison, group: Group) -> Html:
    place = comparison.groups.index(group) % len(SERIES)
    dot = tag("span", class_="key", style=f"--color: var(--series-{place})")
    return tag("span", dot, group.letter)


def _legend(comparison: Comparison) -> Html:
    rows = [tag("li", _key(comparison, group), f" {group.name}") for group in comparison.groups]
    return tag("ul", rows, class_="legend")


def _table(head: Sequence[object], rows: Sequence[Sequence[object]], texts: int) -> Html:
    """A table whose first `texts` columns are words and the others numbers."""

    def line(kind: str, cells: Sequence[object]) -> Html:
        return tag("tr", [tag(kind, cell, class_="number" if i >= texts else None)
                          for i, cell in enumerate(cells)])  # fmt: skip

    body = tag("tbody", [line("td", row) for row in rows])
    return tag("div", tag("table", tag("thead", line("th", head)), body), class_="scroll")


def _runs(comparison: Comparison) -> Html:
    rows: list[list[object]] = []
    for run in comparison.runs:
        group = comparison.group(comparison.letter_of(run))
        row: list[object] = [_key(comparison, group), run.name, run.run.seed]
        for key in comparison.measures:
            change = comparison.difference(run, key)
            beside = None
            if change is not None:
                beside = [" ", tag("small", points(change, 2), class_=tone(change))]
            row.append([percent(run.metrics.get(key), 2), beside])
        rows.append(row)
    return tag(
        "section",
        tag("h2", "Runs"),
        tag(
            "p", f"Per cent; beside it the difference to {comparison.runs[0].name}.", class_="quiet"
        ),
        _table(["", "run", "seed", *map(name, comparison.measures)], rows, texts=2),
    )


def _groups(comparison: Comparison) -> Html | None:
    if all(len(group.runs) == 1 for group in comparison.groups):
        return None
    rows = [
        [
            _key(comparison, group),
            group.name,
            len(group.runs),
            *(with_spread(group.spread(key)) for key in comparison.measures),
        ]
        for group in comparison.groups
    ]
    against = [
        [_key(comparison, comparison.group(item.letter)), name(item.measure), short(item),
         tag("span", points(item.difference, 2), class_=tone(item.difference)), between(item)]
        for item in comparison.contrasts
    ]  # fmt: skip
    return tag(
        "section",
        tag("h2", "Groups of seeds"),
        tag(
            "p",
            "Runs that differ in nothing but the seed: mean ± sample standard deviation. A "
            "difference is within the spread where it is at most the larger of the two deviations.",
            class_="quiet",
        ),
        _table(["", "group", "seeds", *map(name, comparison.measures)], rows, texts=2),
        [tag("p", sentence, class_="note") for sentence in verdicts(comparison)],
        _table(["", "measure", "", "difference", "95 % interval"], against, texts=3)
        if against
        else None,
    )


def _settings(comparison: Comparison) -> Html:
    if not comparison.settings:
        body = tag("p", no_difference(comparison))
    else:
        head = ["", *(_key(comparison, group) for group in comparison.groups)]
        rows = [
            [path, *(tag("span", value, class_="long") for value in values)]
            for path, values in comparison.settings.items()
        ]
        body = _table(head, rows, texts=len(head))
    return tag("section", tag("h2", "Settings in which they differ"), body)
