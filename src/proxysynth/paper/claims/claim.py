"""A claim: a sentence of the paper, and a rule that says whether numbers support it.

A rule reads numbers and returns *margins*: the claim holds if all of them are positive. The same
rule reads our numbers, seed by seed, and the paper's own.

    supported      the 95% interval of every margin lies above zero
    contradicted   that of some margin lies below zero (with Bonferroni's correction: a claim of 32
                   gains must not fail because one of 32 intervals misses by chance)
    undecided      neither; the evidence says how many seeds would decide
    not testable   the claim needs the paper's data, network or GPU, or the stand-in cannot show it
    not run        numbers are missing
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal, get_args

import numpy as np

from proxysynth.paper.artifact import Cell, Table
from proxysynth.report.statistics import half_width, t_quantile

Status = Literal["supported", "contradicted", "undecided", "not testable", "not run"]
STATUSES: tuple[Status, ...] = get_args(Status)
PaperStatus = Literal["holds", "contradicts itself", "not printed"]
LEVEL = 0.95
MOST_SEEDS = 1000
FULL = 99.0  # percent; a stand-in above it leaves no room for a gain
Keys = Sequence[str]
Tables = Mapping[str, Table]


class Missing(LookupError):
    """A number that a rule needs does not exist; `what` is such as "M2 under R@1 in "."""

    def __init__(self, table: str, what: str = "") -> None:
        super().__init__(f"no number for {what}{titled(table)}")
        self.table = table


class NotTestable(Exception):
    """Our numbers cannot say anything about the claim; the message says why."""


@dataclass(frozen=True)
class Finding:
    """What a rule found: margins by name, all positive if the claim holds, and a description."""

    margins: Mapping[str, float]
    text: str

    @property
    def holds(self) -> bool:
        return min(self.margins.values()) > 0


@dataclass(frozen=True)
class Verdict:
    """A status and the numbers behind it."""

    status: Status | PaperStatus
    evidence: str


@dataclass(frozen=True)
class Gains:
    """Changes against the plain loss."""

    values: dict[str, float]  # by name
    baselines: list[float]  # of the plain loss
    verdicts: Sequence[str] | None  # "better" or "worse" beyond the spread of the seeds, if known

    @property
    def mean(self) -> float:
        return fmean(self.values.values())

    @property
    def text(self) -> str:
        """The mean and all of them, or how many rise where there are many."""
        found, many = list(self.values.values()), len(self.values)
        text = listed(self.values, sign=True)
        if many > 1:
            text = f"average {self.mean:+.2f}; {text}"
        if many > 8:
            text = (
                f"average {self.mean:+.1f}, least {min(found):+.1f}, largest {max(found):+.1f}; "
                f"{sum(gain > 0 for gain in found)} of {many} rise"
            )
        if self.verdicts is not None:
            better, worse = map(self.verdicts.count, ("better", "worse"))
            text += f"; beyond the spread of the seeds: {better} better, {worse} worse of {many}"
        return text


class Evidence:
    """What a rule reads: tables by name, seen as one seed, as the mean, or as the paper's."""

    def __init__(self, tables: Tables, view: Literal["mean", "paper"] | int) -> None:
        self.tables = defaultdict(lambda: Table("", "", (), (), ()), tables)
        self.view = view
        self.seeds: set[int] = set()  # the numbers of seeds behind the values read so far

    def value(self, table: str, row: str, column: str) -> float:
        """The number at these keys."""
        cell = self.tables[table].cell(row, column)
        found = self._seen(cell.ours, cell.paper) if cell else None
        if found is None:
            raise Missing(table, f"{row} under {self.named(table, column)} in ")
        return found

    def gains(
        self, tables: Keys, rows: Keys = (), columns: Keys = (), partial: bool = False
    ) -> Gains:
        """The changes against the plain loss in some tables: in all rows and in the columns that
        the paper has, by default. With `partial`, missing numbers are left out."""
        found: list[tuple[tuple[str, str, str], float, float, Cell]] = []
        for table in tables:
            for row, head, cell in self.tables[table].cells():
                asked = head.key in columns if columns else head.paper
                compared = cell.baseline or cell.paper_baseline is not None
                if not asked or not compared or (rows and row.key not in rows):
                    continue
                ours = self._seen(cell.ours, cell.paper)
                base = self._seen(cell.baseline, cell.paper_baseline)
                name = (titled(table), row.key, self.named(table, head.key))
                if ours is not None and base is not None:
                    found.append((name, ours - base, base, cell))
                elif not partial:
                    raise Missing(table, f"{name[1]} under {name[2]} in ")
        if not found:
            raise Missing(tables[0])
        names, changes, baselines, cells = zip(*found, strict=True)
        # What all of them share is no part of their names.
        varying = [i for i in range(3) if len({name[i] for name in names}) > 1] or [2]
        short = (", ".join(name[i] for i in varying) for name in names)
        known = self.view != "paper" and all(cell.interval for cell in cells)
        verdicts = [cell.verdict for cell in cells] if known else None
        return Gains(dict(zip(short, changes, strict=True)), list(baselines), verdicts)

    def _seen(self, ours: tuple[float, ...], paper: float | None) -> float | None:
        """One seed, the mean, or the paper's; None if missing."""
        if self.view == "paper":
            return paper
        if not ours:
            return None
        self.seeds.add(len(ours))
        return fmean(ours) if self.view == "mean" else ours[self.view]

    def rows(self, table: str) -> tuple[str, ...]:
        """The keys of a table's rows."""
        if not self.tables[table].rows:
            raise Missing(table)
        return tuple(row.key for row in self.tables[table].rows)

    def column(self, table: str, column: str) -> dict[str, float]:
        """The numbers of a column by the keys of the rows."""
        return {row: self.value(table, row, column) for row in self.rows(table)}

    def measured_columns(self, table: str) -> list[str]:
        """The keys of the columns that have numbers."""
        cells, paper = self.tables[table].cells(), self.view == "paper"
        found = [h.key for _, h, c in cells if (c.paper is not None if paper else c.ours)]
        if not found:
            raise Missing(table)
        return list(dict.fromkeys(found))

    def named(self, table: str, column: str) -> str:
        """A column for readers: "Softmax, glyphs 2", or "Softmax, CARS196" for the paper's."""
        head = next((head for head in self.tables[table].columns if head.key == column), None)
        if head is None or head.measure == head.name:  # the dataset is no part of the name
            return head.name if head else column
        on = (self.view != "paper" and head.ours) or head.paper
        return ", ".join(filter(None, (head.measure, on)))

    def need_room(self, baseline: float, gain: float, what: str) -> None:
        """Raise NotTestable where our baseline is too high to show a gain of so many points."""
        if self.view == "mean" and baseline + gain > FULL:
            raise NotTestable(
                f"{what} already reaches {baseline:.1f} without Proxy Synthesis, which leaves no "
                f"room for {gain:+.1f}"
            )


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about results; `claims.toml` explains the fields."""

    sentence: str
    where: str
    criterion: str
    rule: Callable[[Evidence], Finding]
    exact: bool = False
    scaled: bool = True
    printed: bool = True


@dataclass(frozen=True)
class Checked:
    """A claim with the verdicts on our numbers and on the paper's."""

    claim: Claim
    ours: Verdict
    paper: Verdict


def check(
    claims: Iterable[Claim], tables: Tables, smoke: bool = False, made: Keys | None = None
) -> list[Checked]:
    """Test every claim on our numbers, which can support nothing with `smoke`, and the paper's.
    Of the tables, those named in `made` were made here, all by default."""
    checked = []
    for claim in claims:
        ours, paper = _judge(claim, tables, made), Verdict("not printed", "")
        if smoke and claim.scaled and ours.status != "not run":
            ours = Verdict("not testable", f"a few training steps only: {ours.evidence}")
        if claim.printed:
            try:
                found = claim.rule(Evidence(tables, "paper"))
                status: PaperStatus = "holds" if found.holds else "contradicts itself"
                paper = Verdict(status, found.text)
            except Missing as missing:
                paper = Verdict("not printed", f"the paper prints {missing}")
        checked.append(Checked(claim, ours, paper))
    return checked


def _judge(claim: Claim, tables: Tables, made: Keys | None) -> Verdict:
    try:
        mean = Evidence(tables, "mean")
        found = claim.rule(mean)
        if claim.exact:
            return Verdict("supported" if found.holds else "contradicted", found.text)
        seeds = [claim.rule(Evidence(tables, seed)).margins for seed in range(min(mean.seeds))]
    except Missing as missing:
        if made is not None and missing.table not in made:
            return Verdict("not run", f"{titled(missing.table)} was not made")
        return Verdict("not run", str(missing))
    except NotTestable as error:
        return Verdict("not testable", str(error))
    if len(seeds) < 2:
        return Verdict("undecided", f"{found.text}; one seed has no spread, at least 2 are needed")
    status, reason = decide({name: [seed[name] for seed in seeds] for name in found.margins})
    return Verdict(status, "; ".join(filter(None, (found.text, reason))))


def decide(margins: Mapping[str, list[float]]) -> tuple[Status, str]:
    """The status of a claim from the margins of each seed, and the margin that decides it."""
    corrected = 1 - (1 - LEVEL) / len(margins)
    means = {name: fmean(values) for name, values in margins.items()}
    low = {name: means[name] - half_width(values, LEVEL) for name, values in margins.items()}
    if min(low.values()) > 0:
        return "supported", ""
    note = f" over {min(map(len, margins.values()))} seeds"
    high = {name: means[name] + half_width(values, corrected) for name, values in margins.items()}
    worst = min(high, key=high.__getitem__)
    if high[worst] < 0:
        return "contradicted", f"{worst}: off by {-means[worst]:.2g}{note}"
    below = [values for name, values in margins.items() if means[name] < 0]
    if below:  # one margin is enough to contradict
        weakest, level = min(means, key=means.__getitem__), corrected
        needed = min(_seeds_needed(values, corrected) for values in below)
        note += f", corrected for {len(margins)} margins" if len(margins) > 1 else ""
    else:  # all of them have to be shown
        weakest, level = min(low, key=low.__getitem__), LEVEL
        needed = max(_seeds_needed(values, LEVEL) for values in margins.values())
    mean, half = means[weakest], half_width(margins[weakest], level)
    about = f"about {needed} seeds" if needed <= MOST_SEEDS else f"more than {MOST_SEEDS} seeds"
    return "undecided", (
        f"{weakest}: margin {mean:+.2g}, interval {mean - half:+.2g} to {mean + half:+.2g}{note}; "
        f"{about} would decide"
    )


def _seeds_needed(values: list[float], level: float) -> int:
    """The smallest number of seeds whose interval would exclude zero at this mean and spread."""
    counts = np.arange(2, MOST_SEEDS + 1)
    half = t_quantile(counts - 1, level) * stdev(values) / np.sqrt(counts)
    enough = counts[half < abs(fmean(values))]
    return int(enough[0]) if len(enough) else MOST_SEEDS + 1


def titled(table: str) -> str:
    """ "table6" as "Table 6"."""
    return table.replace("table", "Table ").replace("figure", "Figure ")


def listed(values: Mapping[str, float], digits: int = 1, sign: bool = False) -> str:
    """ "M1 83.3, M2 83.1"."""
    form = f"{'+' if sign else ''}.{digits}f"
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())
