"""Several runs side by side: differences, groups of seeds, settings, and queries."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from string import ascii_uppercase
from typing import Any

from markupsafe import Markup

from proxysynth import formatting
from proxysynth.formatting import and_join, change, metric_name, percent, points
from proxysynth.report.examples import Disagreement, disagreement
from proxysynth.report.figures import SERIES, Curve, curves, inline_svg
from proxysynth.report.pages import render, tone, write_page
from proxysynth.report.run_report import FinishedRun, read_finished
from proxysynth.report.settings import differing
from proxysynth.report.statistics import Interval, difference_interval
from proxysynth.values import digest

DRAWN = ("recall@1", "map@r", "loss")  # over epochs
ROUNDING = 1e-9  # a narrower interval has no width
SMALL = 0.005  # half a percentage point: a difference below is called small


@dataclass(frozen=True, eq=False)
class Group:
    """One run, or several that differ only in their seeds."""

    letter: str  # A, B, ... in the order of the runs
    color: int  # index of its color in the figures
    runs: tuple[FinishedRun, ...]  # at least one; no seed twice

    @property
    def name(self) -> str:
        """The run's name; for several, the common beginning of their names."""
        names = [run.name for run in self.runs]
        if len(names) == 1:
            return names[0]
        prefix = os.path.commonprefix(names)  # noqa: RUF071
        return prefix.rstrip("-_. 0123456789").removesuffix("seed").rstrip("-_. ") or min(names)

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(run.run.seed for run in self.runs)

    def values(self, measure: str) -> list[float]:
        return [run.metrics[measure] for run in self.runs if measure in run.metrics]

    def spread(self, measure: str) -> dict[str, float | None] | None:
        """Mean and sample standard deviation, None for one value, of n values of a metric."""
        values = self.values(measure)
        if not values:
            return None
        deviation = stdev(values) if len(values) > 1 else None
        return {"mean": fmean(values), "deviation": deviation, "n": len(values)}

    def shown(self, measure: str) -> str:
        """95.80 ± 0.21 of several runs, 95.80 of one."""
        values = self.values(measure)
        if len(values) < 2:
            return percent(values[0] if values else None, 2)
        return f"{percent(fmean(values), 2)} ± {percent(stdev(values), 2)}"


@dataclass(frozen=True, eq=False)
class Contrast:
    """How a group's metric differs from the first group's."""

    group: Group
    measure: str
    difference: float  # the group's mean minus the first group's
    printed: float  # the same of both means as they are printed
    interval: Interval | None  # the 95% confidence interval; None if it cannot be estimated
    paired: bool  # whether the interval is of differences per seed, as it is for equal seeds
    seeds: int  # of the group that has fewer

    @property
    def shown(self) -> bool:
        """Whether the runs show a difference: the interval excludes zero."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]

    @property
    def interval_text(self) -> str:
        """+0.61 to +1.80."""
        ends = [points(end, 2) for end in self.interval or ()]
        return " to ".join(ends) or formatting.DASH

    @property
    def tone(self) -> str:
        """The color of the difference: none if no difference was shown."""
        return tone(self.difference) if self.shown else ""

    @property
    def summary(self) -> str:
        """A few words for a table."""
        if not self.shown:
            missing = "one seed" if self.seeds < 2 else "no spread between the seeds"
            return "not significant" + (f": {missing}" if self.interval is None else "")
        return "a small difference" if abs(self.difference) < SMALL else "a difference"

    def to_json(self) -> dict[str, Any]:
        fields = ("measure", "difference", "interval", "paired", "shown")
        return {"letter": self.group.letter, **{name: getattr(self, name) for name in fields}}


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs compared."""

    runs: tuple[FinishedRun, ...]  # in the given order; the first is the baseline
    groups: tuple[Group, ...]  # the same runs, those that differ only in the seed together
    measures: tuple[str, ...]  # the metrics
    contrasts: tuple[Contrast, ...]  # each group against the first, for each metric
    settings: dict[str, tuple[str, ...]]  # path -> its value for each group, where these differ
    disagreements: tuple[Disagreement, ...]  # a run of each other group against one of the first
    remarks: tuple[str, ...]  # what a reader must know

    @property
    def several_seeds(self) -> bool:
        return any(len(group.runs) > 1 for group in self.groups)

    @property
    def no_difference(self) -> str:
        """What to say if no setting differs."""
        if len(self.groups) == 1:
            return "They differ only in the seed."
        return "None: the same run was trained more than once."

    def group_of(self, run: FinishedRun) -> Group:
        return next(group for group in self.groups if run in group.runs)

    def difference(self, run: FinishedRun, measure: str) -> float | None:
        """A run's metric minus the first run's; None if they cannot be compared."""
        first = self.runs[0]
        both = measure in run.metrics and measure in first.metrics
        if run is first or not both or not _same_test(first, run):
            return None
        return run.metrics[measure] - first.metrics[measure]

    def difference_text(self, run: FinishedRun, measure: str) -> str:
        """The difference of both metrics as they are printed; empty if there is none."""
        if self.difference(run, measure) is None:
            return ""
        return points(change(self.runs[0].metrics[measure], run.metrics[measure]), 2)

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain JSON, without its pictures."""
        return {
            "runs": [
                {
                    "run": str(run.path),
                    "group": self.group_of(run).letter,
                    "seed": run.run.seed,
                    "metrics": dict(run.metrics),
                    "difference": {key: self.difference(run, key) for key in self.measures},
                }
                for run in self.runs
            ],
            "groups": [
                {
                    "group": group.letter,
                    "name": group.name,
                    "seeds": list(group.seeds),
                    "measures": {key: group.spread(key) for key in self.measures},
                }
                for group in self.groups
            ],
            "contrasts": [item.to_json() for item in self.contrasts],
            "settings": {path: list(values) for path, values in self.settings.items()},
            "queries": [item.to_json() for item in self.disagreements],
            "remarks": list(self.remarks),
        }


def compare(folders: Sequence[str | os.PathLike[str]]) -> Comparison:
    """Read finished runs and compare them.

    Raises:
        ValueError: for fewer than two folders, a duplicate, or one that is no finished run.
    """
    if len({os.path.realpath(folder) for folder in folders}) < max(2, len(folders)):
        got = ", ".join(os.fspath(folder) for folder in folders) or "none"
        raise ValueError(f"expected two or more different runs to compare, got {got}")
    runs = [read_finished(folder) for folder in folders]
    above = os.path.commonpath([run.path.resolve().parent for run in runs])
    runs = [replace(run, name=str(run.path.resolve().relative_to(above))) for run in runs]
    groups = group_by_seed(runs)
    measures = formatting.metric_keys(*(run.metrics for run in runs))
    contrasts = [contrast(groups[0], group, key) for group in groups[1:] for key in measures]
    settings = differing([{**g.runs[0].used_settings, "seed": list(g.seeds)} for g in groups])
    prints = tuple(group.runs[0].data["fingerprint"] for group in groups)
    if len(set(prints)) > 1:  # a folder may change while its name stays
        settings["data fingerprint"] = prints
    return Comparison(
        runs=tuple(runs),
        groups=groups,
        measures=tuple(measures),
        contrasts=tuple(item for item in contrasts if item is not None),
        settings=settings,
        disagreements=tuple(_disagreements(groups)),
        remarks=tuple(_remarks(groups)),
    )


def group_by_seed(runs: Sequence[FinishedRun]) -> tuple[Group, ...]:
    """Group the runs that differ only in the seed. The same run trained twice makes two groups,
    to show whether the result was the same."""
    found: dict[tuple[str, int], list[FinishedRun]] = {}
    seen: Counter[tuple[str, int]] = Counter()
    for run in runs:
        key, seed = digest((replace(run.run, seed=0), run.data["fingerprint"])), run.run.seed
        found.setdefault((key, seen[key, seed]), []).append(run)
        seen[key, seed] += 1
    groups = []
    for number, members in enumerate(found.values()):
        again, position = divmod(number, len(ascii_uppercase))  # A, ..., Z, A2, B2, ...
        letter = ascii_uppercase[position] + (str(again + 1) if again else "")
        groups.append(Group(letter, number % len(SERIES), tuple(members)))
    return tuple(groups)


def contrast(first: Group, group: Group, measure: str) -> Contrast | None:
    """A group against the first; None if one of them lacks the metric or has other test data."""
    a, b = first.values(measure), group.values(measure)
    if not a or not b or not _same_test(first.runs[0], group.runs[0]):
        return None
    paired = set(first.seeds) == set(group.seeds) and len(a) == len(b) == len(first.seeds) > 1
    if paired:
        b = [b[group.seeds.index(seed)] for seed in first.seeds]
    interval = difference_interval(a, b, paired)
    if interval and interval[1] - interval[0] < ROUNDING:
        interval = None  # few images and seeds may differ by the same number each time
    mean, base = fmean(b), fmean(a)
    ends = mean - base, change(base, mean)
    return Contrast(group, measure, *ends, interval, paired, min(len(a), len(b)))


def _same_test(a: FinishedRun, b: FinishedRun) -> bool:
    return bool(a.data["test_fingerprint"] == b.data["test_fingerprint"])


def _disagreements(groups: Sequence[Group]) -> list[Disagreement]:
    """A run of each group against one of the first, of the same seed if there is one."""
    first, *others = groups
    pairs = [] if others else [(first.runs[0], first.runs[1])]
    for group in others:
        both = product(first.runs, group.runs)
        pairs.append(min(both, key=lambda pair: pair[0].run.seed != pair[1].run.seed))
    return [
        disagreement(a.name, a.embedded(), b.name, b.embedded())
        for a, b in pairs
        if _same_test(a, b)
    ]


def _remarks(groups: Sequence[Group]) -> list[str]:
    first, *others = groups
    remarks = []
    apart = [g.letter for g in others if not _same_test(first.runs[0], g.runs[0])]
    if apart:
        remarks.append(
            f"{and_join(apart)} and {first.letter} were tested on different data, so their numbers "
            "cannot be compared."
        )
    rules = {group.letter: group.runs[0].result.chosen for group in groups}
    if len(set(rules.values())) > 1:
        text = and_join(f"{rule!r} in {letter}" for letter, rule in rules.items())
        remarks.append(
            f"The reported epoch was chosen by different rules, {text}, which alone can make a "
            "difference."
        )
    return remarks


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> Path:
    """Write the page, atomically."""
    first = comparison.runs[0]  # runs compared query by query share its test set
    page = render(
        "comparison.html",
        comparison=comparison,
        titles=sorted({run.title for run in comparison.runs}),
        figures=[figure for key in DRAWN if (figure := _figure(comparison, key)) is not None],
        with_layer=any(run.layer_left_out for run in comparison.runs),
        pictures=first.pictures() if comparison.disagreements else None,
        classes=first.classes,
        captions=formatting.distinct_captions(first.classes),
    )
    return write_page(Path(path), page)


def _figure(comparison: Comparison, key: str) -> Markup | None:
    """A curve for each group: its only run, or the mean of its runs with these behind it."""
    title, unit = ("loss", 1) if key == "loss" else (f"{metric_name(key)}, %", 100)
    lines: list[Curve] = []
    for group in comparison.groups:
        color = SERIES[group.color]
        histories = [
            {line["epoch"]: unit * line[key] for line in run.history if key in line}
            for run in group.runs
        ]
        each = [found for found in histories if found]
        if len(each) > 1:
            lines += [Curve("", list(p), list(p.values()), color, faint=True) for p in each]
        if each:
            epochs = sorted(set.intersection(*map(set, each)))
            means = [fmean(found[epoch] for found in each) for epoch in epochs]
            lines.append(Curve("", epochs, means, color))  # the page has a legend
    if not lines:
        return None
    name = f"curve-{key.replace('@', '-')}"
    return inline_svg(curves(lines, title), name, f"{title} over epochs")
