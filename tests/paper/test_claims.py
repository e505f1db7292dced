from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from paper.conftest import TABLES
from proxysynth.paper.artifact import Cell, Line, Table
from proxysynth.paper.artifacts import ARTIFACTS
from proxysynth.paper.claims import CLAIMS, Checked, check
from proxysynth.paper.claims.claim import Claim, Evidence, Verdict
from proxysynth.paper.figures.figure_numbers import figure_tables
from proxysynth.paper.render.claims_page import claims_markdown, claims_section, counted
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store

FAILS_IN_THE_PAPER = ("outperforms all cases", "except for TinyImagenet", "28,760")
FAILS_IN_THE_CODE = ("28,760", "N x N similarity matrix", "between 40 and 256", "100th epoch of")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Table]:
    """All tables and figures of an empty folder that measures nothing: the paper's numbers only."""
    folder = tmp_path_factory.mktemp("none")
    store, made = Store(folder, measures=False), {}
    for name in TABLES:
        table = ARTIFACTS[name].make(SCALES["small"], store)
        assert isinstance(table, Table)
        made[name] = table
    assert not list(folder.iterdir())
    return made | figure_tables(SCALES["small"], lambda name: store)


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
        expected = ("fails" if wrong else "holds") if one.claim.printed else "not printed"
        assert one.paper.status == expected, (one.claim.sentence, one.paper)


def test_without_runs_nothing_is_claimed_of_them(tables: dict[str, Table]) -> None:
    for one in check(CLAIMS, tables):
        if one.claim.trained:
            assert one.ours.status == "not run", one.claim.sentence
            assert "no number for" in one.ours.evidence or "cited" in one.ours.evidence


def test_definitions_and_closed_forms_are_asked_of_the_code(tables: dict[str, Table]) -> None:
    """They need no Run and say the same at the scale of a few steps."""
    for one in check(CLAIMS, tables, meaningful=False):
        if not one.claim.trained:
            wrong = any(words in one.claim.sentence for words in FAILS_IN_THE_CODE)
            assert one.ours.status == ("fails" if wrong else "holds"), one
            assert one.ours.evidence


@pytest.mark.parametrize(
    "words",
    [
        "main diagonal D0", "2nd epoch", "N x N similarity matrix", "5,864", "8,054", "59,551",
        "25,882", "always be constant 1", "under 10", "work well for the classification",
        "smooth decision boundary", "more than 10 instances", "224 x 224", "batch size of 180",
        "m1 = 1.05", "50 experiments", "sigma of 3.0", "-30°", "0.2 x 255", "20% of the image",
        "150%", "tau_i < 0", "uniform distribution, and alpha = 1.5 has", "m3 = 0.0",
        "bias b = 0", "100th epoch",
    ],
)  # fmt: skip
def test_sentences_with_a_number_are_there(words: str) -> None:
    assert any(words in claim.sentence for claim in CLAIMS)


def test_no_sentence_stands_twice() -> None:
    sentences = [claim.sentence for claim in CLAIMS]
    assert len(set(sentences)) == len(sentences)


def test_the_same_rules_read_our_numbers(tables: dict[str, Table]) -> None:
    ours = {name: _mapped(table, _echo) for name, table in tables.items()}
    for one in check(CLAIMS, ours):
        cited = ("outperforms all cases", "state-of-the-art")  # these methods are never run
        if one.claim.printed and not any(words in one.claim.sentence for words in cited):
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
    trained = [one for one in checked if one.claim.trained and one.claim.scaled]
    assert {one.ours.status for one in trained} == {"not run"}
    assert "a few steps only" in _found(checked, "using only synthetic").ours.evidence


@pytest.mark.parametrize(
    ("gains", "status"),
    [
        ((0.7, 2.8), "holds"),
        ((0.7, 2.7), "fails"),  # the maximum is not reached
        ((0.6, 2.8), "fails"),  # nor the minimum
    ],
)
def test_a_range_is_tested_at_both_ends(
    tables: dict[str, Table], gains: tuple[float, float], status: str
) -> None:
    """All gains in between are 1.1; the least and the largest are set."""
    least, most = gains
    rows = list(tables["table6"].rows)
    made = []
    for number, row in enumerate(rows):
        gain = 1.1 if number > 3 else (least, most)[number // 2]
        value = 80.0 + (gain if "PS + " in row.labels[0] else 0.0)
        made.append(Line(row.labels, tuple(replace(c, ours=(value,)) for c in row.cells)))
    ours = tables | {"table6": replace(tables["table6"], rows=tuple(made))}
    assert _found(check(CLAIMS, ours), "+2.8%").ours.status == status


def _figures(tables: dict[str, Table], **values: dict[str, dict[str, float]]) -> dict[str, Table]:
    """The tables behind figures with these numbers: figure -> row -> column -> value."""
    made = dict(tables)
    for name, rows in values.items():
        lines = []
        for row in tables[name].rows:
            told = rows.get(row.key, {})
            cells = [
                replace(cell, ours=(told[head.key],)) if head.key in told else cell
                for head, cell in zip(tables[name].columns, row.cells, strict=True)
            ]
            lines.append(Line(row.labels, tuple(cells)))
        made[name] = replace(tables[name], rows=tuple(lines))
    return made


def test_the_diagonals_of_figure_4_can_hold_and_fail(tables: dict[str, Table]) -> None:
    def statuses(**means: float) -> list[str]:
        rows = {name: {"mean": value} for name, value in means.items()}
        checked = check(CLAIMS, _figures(tables, figure4=rows))
        return [_found(checked, words).ours.status for words in ("main diagonal D0", "still high")]

    assert statuses(D0=0.9, D1=0.8, D2=0.7, D3=0.7, D4=0.8) == ["holds", "holds"]
    assert statuses(D0=0.9, D1=0.8, D2=0.7, D3=0.7, D4=0.95) == ["fails", "holds"]
    assert statuses(D0=0.9, D1=0.8, D2=0.85, D3=0.7, D4=0.8) == ["holds", "fails"]


def test_figures_2_c_and_d_can_hold_and_fail(tables: dict[str, Table]) -> None:
    words = ("smooth decision boundary", "more than 10 instances", "2nd epoch")

    def statuses(sure: float, least: float, last: float) -> list[str]:
        epochs = [row.key for row in tables["figureD"].rows]
        found = _figures(
            tables,
            figure2={
                "Norm-softmax": {"inputs": 0.9, "embeddings": 0.9, "unseen": 0.9},
                "PS + Norm-softmax": {"inputs": 0.8, "embeddings": sure, "unseen": 0.8},
            },
            figureC={part: {"classes": 100.0, "least": least, "most": 12.0}
                     for part in ("seen", "unseen")},
            figureD={epoch: {"map@r": value}
                     for epoch, value in zip(epochs, (10.0, 20.0, 30.0, last), strict=True)},
        )  # fmt: skip
        checked = check(CLAIMS, found)
        return [_found(checked, one).ours.status for one in words]

    assert statuses(0.8, 11.0, 40.0) == ["holds", "holds", "holds"]
    assert statuses(0.95, 10.0, 29.0) == ["fails", "fails", "fails"]


def test_what_the_paper_does_not_print_is_not_called_not_run(tables: dict[str, Table]) -> None:
    (one,) = check([Claim("s", "w", "c", lambda e: Verdict("holds", f"{e.value('t', 'r', 'k')}"))],
                   {})  # fmt: skip
    assert one.ours == Verdict("not run", "no number for r under k in t")
    assert one.paper == Verdict("not printed", "the paper prints no number for r under k in t")
    assert all(one.paper.status != "not run" for one in check(CLAIMS, tables))


def test_a_missing_number_is_named_for_people(tables: dict[str, Table]) -> None:
    found = _found(check(CLAIMS, tables), "average -2.15%")
    assert found.ours.evidence == "no number for Virtual Softmax under Softmax, glyphs 2 in Table 5"
    assert Evidence(tables, "paper").named("table6", "cub200") == "CUB200"
    assert Evidence(tables, "ours").named("table6", "cub200") == "glyphs 1"
    assert Evidence(tables, "ours").named("table1", "R@1") == "R@1"


def test_claims_as_a_page(tables: dict[str, Table]) -> None:
    checked = check(CLAIMS, tables)
    text = claims_markdown(checked)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == len(CLAIMS) + 4  # two parts, each with a head
    assert all(line.count("|") - line.count("\\|") == 5 for line in lines)
    section = claims_section(checked)
    assert section is not None
    assert section.count("<tr>") == len(CLAIMS) + 2
    assert counted(checked) in text
    assert counted(checked) in section
    assert claims_section([]) is None
