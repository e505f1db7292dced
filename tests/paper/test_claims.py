from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paper.conftest import TABLES
from proxysynth.paper.artifact import Cell, Line, Table
from proxysynth.paper.artifacts import ARTIFACTS
from proxysynth.paper.claims import CLAIMS, Checked, check
from proxysynth.paper.claims.claim import claims_markdown
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store

FAILS_IN_THE_PAPER = ("outperforms all cases", "except for TinyImagenet", "28,760")
IN_A_FIGURE = ("section D.2",)  # the paper's Figure A prints no numbers


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """All tables of an empty folder: the paper's numbers only. Table A measures, so its own go."""
    store, made = Store(tmp_path_factory.mktemp("none")), {}
    for name in TABLES:
        scale = SCALES["smoke" if name == "tableA" else "small"]
        table = ARTIFACTS[name].make(scale, store)
        assert isinstance(table, Table)
        made[name] = _mapped(table, lambda cell: replace(cell, ours=(), baseline=()))
    return made


def _mapped(table: Table, change: Any) -> Table:
    rows = [Line(row.labels, tuple(change(cell) for cell in row.cells)) for row in table.rows]
    return replace(table, rows=tuple(rows))


def _echo(cell: Cell) -> Cell:
    """As if we had measured what the paper prints, twice."""
    base = cell.paper_baseline
    return replace(
        cell,
        ours=() if cell.paper is None else (cell.paper,) * 2,
        baseline=() if base is None else (base,) * 2,
    )


def _found(checked: list[Checked], words: str) -> Checked:
    (one,) = [one for one in checked if words in one.claim.sentence]
    return one


def test_each_claim_is_tested_on_the_papers_own_tables(tables: dict[str, Table]) -> None:
    for one in check(CLAIMS, tables):
        wrong = any(words in one.claim.sentence for words in FAILS_IN_THE_PAPER)
        expected = "not run" if one.claim.where.startswith(IN_A_FIGURE) else (
            "fails" if wrong else "holds"
        )  # fmt: skip
        assert one.paper.status == expected, (one.claim.sentence, one.paper)


def test_without_runs_nothing_is_claimed(tables: dict[str, Table]) -> None:
    statuses = {one.claim.sentence: one.ours.status for one in check(CLAIMS, tables)}
    counted = {s for s, status in statuses.items() if status != "not run"}
    assert all("28,760" in sentence for sentence in counted)  # arithmetic needs no Run


def test_the_same_rules_read_our_numbers(tables: dict[str, Table]) -> None:
    ours = {name: _mapped(table, _echo) for name, table in tables.items()}
    for one in check(CLAIMS, ours):
        if "outperforms all cases" not in one.claim.sentence:  # cited methods are never run
            assert one.ours.status == one.paper.status, one.claim.sentence


def test_our_numbers_can_contradict_the_paper(tables: dict[str, Table]) -> None:
    """With every gain turned round, what speaks of gains fails."""

    def turned(cell: Cell) -> Cell:
        if cell.paper is None or cell.paper_baseline is None:
            return _echo(cell)
        return replace(_echo(cell), ours=(2 * cell.paper_baseline - cell.paper,) * 2)

    checked = check(CLAIMS, {name: _mapped(table, turned) for name, table in tables.items()})
    for words in ("almost twice as well", "average improvement is +1.1%", "every metric and bench",
                  "average margin +0.5%", "best performance among all cases",
                  "significantly improved performance", "average -2.15%"):  # fmt: skip
        assert _found(checked, words).ours.status == "fails", words


def test_the_evidence_says_how_much_the_seeds_support(tables: dict[str, Table]) -> None:
    def sure(cell: Cell) -> Cell:
        base = cell.paper_baseline
        if cell.paper is None or base is None:
            return _echo(cell)
        return replace(cell, ours=(cell.paper, cell.paper + 0.1), baseline=(base, base + 0.11))

    checked = check(CLAIMS, {name: _mapped(table, sure) for name, table in tables.items()})
    found = _found(checked, "average improvement is +1.1%")
    assert "beyond the seeds' spread: 16 better, 0 worse of 16" in found.ours.evidence


def test_a_few_steps_bear_nothing_out(tables: dict[str, Table]) -> None:
    ours = {name: _mapped(table, _echo) for name, table in tables.items()}
    checked = check(CLAIMS, ours, meaningful=False)
    assert {one.ours.status for one in checked} == {"not run"}
    assert "a few steps only" in checked[0].ours.evidence


def test_claims_as_a_page(tables: dict[str, Table]) -> None:
    text = claims_markdown(check(CLAIMS, tables))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == len(CLAIMS) + 2
    assert all(line.count("|") - line.count("\\|") == 5 for line in lines)
