"""A claim: a sentence of the paper and the rule that says whether tables bear it out.

The same rule reads our numbers and the paper's own, so that a sentence which the paper's tables do
not support is seen as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from proxysynth.paper.artifact import Table
from proxysynth.paper.render.shown import interval, verdict

Status = Literal["holds", "fails", "not run", "not printed"]
STATUSES: tuple[Status, ...] = ("holds", "fails", "not run")
"""What can be said of a sentence here; "not printed" is said of the paper's own numbers only."""


@dataclass(frozen=True)
class Verdict:
    """What a rule found, and the numbers it found it by."""

    status: Status
    evidence: str


class Missing(LookupError):
    """A number that a rule needs is not there."""


@dataclass(frozen=True)
class Evidence:
    """Where a rule reads: tables by name, and whose numbers count."""

    tables: Mapping[str, Table]
    whose: Literal["ours", "paper"]

    def value(self, table: str, row: str, column: str) -> float:
        """A number: the mean over the seeds, or what the paper prints."""
        found = self.tables.get(table)
        cell = None if found is None else found.at(row, column)
        if cell is not None and self.whose == "paper" and cell.paper is not None:
            return cell.paper
        if cell is not None and self.whose == "ours" and cell.ours:
            return fmean(cell.ours)
        raise Missing(f"{row} under {self.named(table, column)} in {titled(table)}")

    def rows(self, table: str) -> tuple[str, ...]:
        """The keys of a table's rows."""
        if table not in self.tables:
            raise Missing(titled(table))
        return tuple(row.key for row in self.tables[table].rows)

    def named(self, table: str, column: str) -> str:
        """A column for people, by what was measured: "Softmax, glyphs 2", "Softmax, CARS196"."""
        for head in self.tables[table].columns if table in self.tables else ():
            if head.key == column:
                on = (self.whose == "ours" and head.ours) or head.paper
                apart = head.measure == head.name  # a set that is not a part of the name
                return head.name if apart else ", ".join(filter(None, (head.measure, on)))
        return column

    def supported(self, table: str, pairs: Iterable[tuple[str, str]]) -> str:
        """How many of these differences are more than the seeds' spread; "" for the paper's."""
        cells = [self.tables[table].at(row, column) for row, column in pairs]
        if self.whose == "paper" or not all(cell is not None and interval(cell) for cell in cells):
            return ""
        better = sum(verdict(cell) == "better" for cell in cells if cell)
        worse = sum(verdict(cell) == "worse" for cell in cells if cell)
        return f"; beyond the seeds' spread: {better} better, {worse} worse of {len(cells)}"


Rule = Callable[[Evidence], Verdict]


@dataclass(frozen=True)
class Claim:
    """A sentence, where it stands, when it counts as borne out, and the rule that finds out.

    Args:
        sentence: of the paper, shortened where it is long.
        where: section and table.
        criterion: the rule in words.
        rule: reads numbers; what it cannot find makes the verdict "not run".
        trained: whether it rests on trained models. What rests on definitions, settings and closed
            forms is asked of the code, at any scale.
        scaled: whether a scale may cut its training short; the toy of Figure 2 is always whole.
        printed: whether the paper prints numbers that the rule can be asked of as well.
    """

    sentence: str
    where: str
    criterion: str
    rule: Rule
    trained: bool = True
    scaled: bool = True
    printed: bool = True


def of_code(sentence: str, where: str, criterion: str, rule: Rule) -> Claim:
    """A claim that rests on definitions or closed forms: asked of the code alone."""
    return Claim(sentence, where, criterion, rule, trained=False, printed=False)


@dataclass(frozen=True)
class Checked:
    """A claim with its two verdicts."""

    claim: Claim
    ours: Verdict
    paper: Verdict


def check(
    claims: Iterable[Claim], tables: Mapping[str, Table], meaningful: bool = True
) -> list[Checked]:
    """Every claim against our numbers and against the paper's own.

    Args:
        meaningful: False where ours come of a few steps of training and can bear nothing out.
    """
    checked = []
    for claim in claims:
        ours = _judge(claim, Evidence(tables, "ours"))
        if not meaningful and claim.trained and claim.scaled and ours.status != "not run":
            ours = Verdict("not run", f"a few steps only: {ours.evidence}")
        checked.append(Checked(claim, ours, _judge(claim, Evidence(tables, "paper"))))
    return checked


def _judge(claim: Claim, evidence: Evidence) -> Verdict:
    theirs = evidence.whose == "paper"
    if theirs and not claim.printed:
        return Verdict("not printed", "")
    try:
        return claim.rule(evidence)
    except Missing as missing:
        if theirs:
            return Verdict("not printed", f"the paper prints no number for {missing}")
        return Verdict("not run", f"no number for {missing}")


def titled(table: str) -> str:
    """ "table6" as people write it."""
    for kind in ("table", "figure"):
        table = table.replace(kind, f"{kind.capitalize()} ")
    return table


def held(right: bool, evidence: str) -> Verdict:
    """A verdict from a yes or no."""
    return Verdict("holds" if right else "fails", evidence)


def rounded(value: float, digits: int = 1) -> float:
    """As a table prints it, so that the paper's sums of rounded numbers are not refused."""
    return round(value + 1e-9, digits)


def listed(values: Mapping[str, float], digits: int = 1, sign: bool = False) -> str:
    """ "M1 83.3, M2 83.1"."""
    form = f"{'+' if sign else ''}.{digits}f"
    return ", ".join(f"{name} {value:{form}}" for name, value in values.items())
