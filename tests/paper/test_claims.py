"""Verdicts on the paper's claims about results."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from proxysynth.paper.artifact import Cell, Row, Table
from proxysynth.paper.artifacts import load_artifacts
from proxysynth.paper.book import claims_markdown, conclusion, evidence, findings
from proxysynth.paper.claims.claim import (
    STATUSES,
    Checked,
    Claim,
    Evidence,
    Finding,
    Verdict,
    check,
    decide,
)
from proxysynth.paper.claims.rules import CLAIMS, DIFFERENCES, contradictions
from proxysynth.paper.scale import SCALES
from proxysynth.paper.store import Store

FAILS_IN_THE_PAPER = ("outperforms all cases", "except for TinyImagenet")
NEEDS_THE_PAPERS_SETUP = ("outperforms all cases", "state-of-the-art", "computation times")
Tables = dict[str, Table]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """All tables of an empty, read-only folder: the paper's numbers only."""
    folder = tmp_path_factory.mktemp("none")
    small, store = SCALES["small"], Store(folder, read_only=True)
    made = {name: artifact(small, store) for name, artifact in load_artifacts().items()}
    assert not list(folder.iterdir())
    return evidence(made)


def _mapped(table: Table, change: Any) -> Table:
    rows = [Row(row.labels, tuple(change(cell) for cell in row.cells)) for row in table.rows]
    return replace(table, rows=tuple(rows))


def _echo(cell: Cell) -> Cell:
    """As if we had measured what the paper prints, twice."""
    base = cell.paper_baseline
    return replace(
        cell,
        ours=() if cell.paper is None else (cell.paper,) * 2,
        baseline=() if base is None else (base,) * 2,
    )


def _all(tables: Tables, change: Any) -> Tables:
    return {name: _mapped(table, change) for name, table in tables.items()}


def _found(checked: list[Checked], words: str) -> Checked:
    (one,) = [one for one in checked if words in one.claim.sentence + one.claim.criterion]
    return one


# How margins decide


@pytest.mark.parametrize(
    ("margins", "status"),
    [
        ({"a": [1.0, 1.1, 0.9]}, "supported"),
        ({"a": [1.0, 1.1, 0.9], "b": [2.0, 2.1, 1.8]}, "supported"),
        ({"a": [1.0, 1.1, 0.9], "b": [0.5, -0.4, 0.2]}, "undecided"),
        ({"a": [1.0, 1.1, 0.9], "b": [-0.5, -0.52, -0.48]}, "contradicted"),
        ({"a": [0.0, 0.0, 0.0]}, "undecided"),
        # One of forty at the uncorrected limit is chance, not a contradiction.
        ({"a": [-0.5, -0.1, -0.3]} | {str(i): [1.0, 1.1, 0.9] for i in range(39)}, "undecided"),
    ],
)
def test_margins_over_seeds_decide_the_status(margins: dict[str, list[float]], status: str) -> None:
    assert decide(margins)[0] == status


def test_evidence_estimates_the_seeds_needed() -> None:
    values = [1.0, -0.6, 0.8]  # mean 0.4, deviation 0.87: t s / sqrt(n) < 0.4 from n = 21 on
    assert "about 21 seeds would decide" in decide({"a": values})[1]
    assert "more than 1000 seeds" in decide({"a": [1.0, -1.0]})[1]
    # With a mean below zero, the seeds that would contradict count.
    assert "about 21 seeds" in decide({"a": [-v for v in values]})[1]


def test_undecided_claim_names_the_undecided_margin() -> None:
    reason = decide({"sure": [0.2, 0.21, 0.19], "open": [1.0, -0.6, 0.8]})[1]
    assert reason.startswith("open: margin +0.4")


def test_one_seed_is_undecided_unless_the_number_is_exact() -> None:
    table = Table("T", "", ("r",), (), ())
    cell = Cell((5.0,))

    def rule(e: Evidence) -> Finding:
        e.seeds.add(len(cell.ours))
        return Finding({"a": cell.ours[0]}, "5")

    claim = Claim("s", "w", "c", rule, printed=False)
    (one,) = check([claim], {"t": table})
    assert one.ours.status == "undecided"
    assert "at least 2" in one.ours.evidence
    (one,) = check([replace(claim, exact=True)], {"t": table})
    assert one.ours.status == "supported"


# The paper's own numbers


def test_each_claim_is_checked_on_the_paper_tables(tables: Tables) -> None:
    for one in check(CLAIMS, tables):
        wrong = any(words in one.claim.sentence for words in FAILS_IN_THE_PAPER)
        expected = (
            ("contradicts itself" if wrong else "holds") if one.claim.printed else "not printed"
        )
        assert one.paper.status == expected, (one.claim.sentence, one.paper)


def test_contradictions_in_the_paper_are_listed(tables: Tables) -> None:
    listed = " ".join(contradictions(check(CLAIMS, tables)))
    for words in (*FAILS_IN_THE_PAPER, "28,760", "N x N", "in Tables 6 and J"):
        assert words in listed
    assert len(DIFFERENCES) >= 8


def test_claims_without_runs_are_not_run(tables: Tables) -> None:
    for one in check(CLAIMS, tables):
        if any(words in one.claim.sentence for words in NEEDS_THE_PAPERS_SETUP[:2]):
            assert one.ours.status == "not testable"
        elif "plug-and-play" not in one.claim.sentence:  # about code, not about Runs
            assert one.ours.status == "not run", one.claim.sentence
            assert "no number for" in one.ours.evidence


def test_claims_are_unique() -> None:
    sentences = [(claim.sentence, claim.criterion) for claim in CLAIMS]
    assert len(set(sentences)) == len(sentences)


# Our numbers


def test_our_numbers_are_checked_by_the_same_rules(tables: Tables) -> None:
    expected = {"holds": "supported", "contradicts itself": "contradicted"}
    for one in check(CLAIMS, _all(tables, _echo)):
        if one.claim.printed and not any(
            words in one.claim.sentence for words in NEEDS_THE_PAPERS_SETUP
        ):
            assert one.ours.status == expected[str(one.paper.status)], one


def test_our_numbers_can_contradict_the_paper(tables: Tables) -> None:
    """With every gain reversed, claims about gains are contradicted."""

    def reversed_gain(cell: Cell) -> Cell:
        if cell.paper is None or cell.paper_baseline is None:
            return _echo(cell)
        return replace(_echo(cell), ours=(2 * cell.paper_baseline - cell.paper,) * 2)

    checked = check(CLAIMS, _all(tables, reversed_gain))
    for words in ("almost twice as well", "average improvement is +1.1%", "every metric and bench",
                  "average margin +0.5%", "best performance among all cases",
                  "significantly improved performance", "average -2.15%"):  # fmt: skip
        assert _found(checked, words).ours.status == "contradicted", words


def test_saturated_stand_in_cannot_show_gains(tables: Tables) -> None:
    def ceiling(cell: Cell) -> Cell:
        ours = (98.5, 98.6) if cell.paper is not None else ()
        return replace(cell, ours=ours, baseline=(98.4, 98.5) if cell.paper_baseline else ())

    checked = check(CLAIMS, _all(tables, ceiling))
    for words in ("+2.8%", "+1.9%", "almost twice as well"):
        found = _found(checked, words).ours
        assert found.status == "not testable"
        assert "leaves no room" in found.evidence


def test_evidence_counts_better_and_worse_cells(tables: Tables) -> None:
    def steady(cell: Cell) -> Cell:
        base = cell.paper_baseline
        if cell.paper is None or base is None:
            return _echo(cell)
        return replace(cell, ours=(cell.paper, cell.paper + 0.1), baseline=(base, base + 0.11))

    found = _found(check(CLAIMS, _all(tables, steady)), "average improvement is +1.1%")
    assert "16 better, 0 worse of 16" in found.ours.evidence


def test_smoke_scale_supports_no_claim(tables: Tables) -> None:
    checked = check(CLAIMS, _all(tables, _echo), smoke=True)
    scaled = [one for one in checked if one.claim.scaled]
    assert {one.ours.status for one in scaled} == {"not testable", "not run"}
    assert "a few training steps" in _found(checked, "using only synthetic").ours.evidence


@pytest.mark.parametrize(
    ("gains", "status"),
    [
        ((0.7, 2.8), "supported"),
        ((0.7, 2.7), "contradicted"),  # the maximum is not reached
        ((0.6, 2.8), "contradicted"),  # nor the minimum
    ],
)
def test_range_claim_is_checked_at_both_ends(
    tables: Tables, gains: tuple[float, float], status: str
) -> None:
    """All other gains are 1.1."""
    rows = []
    for number, row in enumerate(tables["table6"].rows):
        gain = 1.1 if number > 3 else gains[number // 2]
        mixed = "PS + " in row.labels[0]
        ours, plain = (80.0 + gain if mixed else 80.0,) * 2, (80.0,) * 2 if mixed else ()
        rows.append(
            Row(row.labels, tuple(replace(c, ours=ours, baseline=plain) for c in row.cells))
        )
    ours = tables | {"table6": replace(tables["table6"], rows=tuple(rows))}
    assert _found(check(CLAIMS, ours), "+2.8%").ours.status == status


def _figures(tables: Tables, **values: dict[str, dict[str, float]]) -> Tables:
    """The tables behind figures with these numbers: figure -> row -> column -> value."""
    made = dict(tables)
    for name, rows in values.items():
        lines = []
        for row in tables[name].rows:
            found = rows.get(row.key, {})
            cells = [
                replace(cell, ours=(found[head.key],) * 2) if head.key in found else cell
                for head, cell in zip(tables[name].columns, row.cells, strict=True)
            ]
            lines.append(Row(row.labels, tuple(cells)))
        made[name] = replace(tables[name], rows=tuple(lines))
    return made


def test_claims_about_figure_4_diagonals(tables: Tables) -> None:
    def statuses(**means: float) -> list[str]:
        rows = {name: {"mean": value, "softmax": value} for name, value in means.items()}
        checked = check(CLAIMS, _figures(tables, figure4=rows))
        found = [
            [_found(checked, f"mean {what} {words}").ours.status
             for words in ("on D1 and on D4", "on D1 is above")]
            for what in ("cosine", "softmax confidence")
        ]  # fmt: skip
        assert found[0] == found[1]
        return found[0]

    assert statuses(D0=0.9, D1=0.8, D2=0.7, D3=0.7, D4=0.8) == ["supported", "supported"]
    assert statuses(D0=0.9, D1=0.8, D2=0.7, D3=0.7, D4=0.95) == ["contradicted", "supported"]
    assert statuses(D0=0.9, D1=0.8, D2=0.85, D3=0.7, D4=0.8) == ["supported", "contradicted"]


def test_claims_about_figures_2_c_and_d(tables: Tables) -> None:
    words = (
        "has a smooth decision boundary",
        "transitions linearly",
        "2nd epoch",
        "more than 10 instances",
    )

    def statuses(confidence: float, least: float, last: float) -> list[str]:
        epochs = [row.key for row in tables["figureD"].rows]
        found = _figures(
            tables,
            figure2={
                "Norm-softmax": {"inputs": 0.9, "embeddings": 0.9, "unseen": 0.9,
                                 "input_bend": 0.2, "embedding_bend": 0.2},
                "PS + Norm-softmax": {"inputs": 0.8, "embeddings": confidence, "unseen": 0.8,
                                      "input_bend": 0.1, "embedding_bend": confidence - 0.7},
            },
            figureC={part: {"classes": 100.0, "least": least, "most": 12.0}
                     for part in ("seen", "unseen")},
            figureD={epoch: {"map@r": value}
                     for epoch, value in zip(epochs, (10.0, 20.0, 30.0, last), strict=True)},
        )  # fmt: skip
        checked = check(CLAIMS, found)
        return [_found(checked, one).ours.status for one in words]

    assert statuses(0.8, 11.0, 40.0) == ["supported"] * 4
    assert statuses(0.95, 10.0, 29.0) == [*["contradicted"] * 3, "not testable"]


def test_claims_about_embeddings_between_clusters(tables: Tables) -> None:
    def statuses(unseen: float, synthetic: float) -> list[str]:
        rows = {"seen": 0.3, "unseen": unseen, "synthetic": synthetic}
        values = {name: {"between": value} for name, value in rows.items()}
        found = _figures(tables, figure3=values, figureB=values, figureC=values)
        checked = check(CLAIMS, found)
        return [
            _found(checked, words).ours.status
            for words in ("located in-between the clusters", "mimicking unseen classes")
        ]

    assert statuses(0.8, 0.7) == ["supported", "supported"]
    assert statuses(0.2, 0.1) == ["contradicted", "contradicted"]


def test_claims_about_any_loss_plug_and_play_and_cost(tables: Tables) -> None:
    checked = check(CLAIMS, _all(tables, _echo))
    assert _found(checked, "applicable to any proxy-based").ours.status == "supported"
    assert _found(check(CLAIMS, tables), "applicable to any").ours.status == "not run"
    assert _found(checked, "plug-and-play").ours == Verdict("supported", "equal for 8 of 8 losses")

    def cost(step: float) -> str:
        rows = []
        for row in tables["tableA"].rows:
            value = 2.0 if row.labels[0] == "0" else step
            rows.append(Row(row.labels, tuple(replace(c, ours=(value,)) for c in row.cells)))
        ours = tables | {"tableA": replace(tables["tableA"], rows=tuple(rows))}
        return _found(check(CLAIMS, ours), "is negligible").ours.status

    assert (cost(4.0), cost(30.0)) == ("supported", "contradicted")


def test_evidence_names_the_missing_number(tables: Tables) -> None:
    found = _found(check(CLAIMS, tables), "average -2.15%")
    assert (
        found.ours.evidence
        == "no number for Virtual Softmax under Softmax, distorted glyphs 2 in Table 5"
    )
    assert Evidence(tables, "paper").named("table6", "cub200") == "CUB200"
    assert Evidence(tables, "mean").named("table6", "cub200") == "distorted glyphs 1"
    assert Evidence(tables, "mean").named("table1", "R@1") == "R@1"


def test_an_artifact_that_was_not_made_is_named(tables: Tables) -> None:
    checked = check(CLAIMS, tables, made=["table5"])
    assert _found(checked, "average -2.15%").ours.evidence.endswith("in Table 5")
    for one in checked:
        if one.ours.status == "not run" and "Table 5" not in one.ours.evidence:
            assert re.fullmatch("(Table|Figure) . was not made", one.ours.evidence)


def test_number_missing_from_the_paper_is_not_printed() -> None:
    claim = Claim("s", "w", "c", lambda e: Finding({"a": e.value("t", "r", "k")}, ""))
    (one,) = check([claim], {})
    assert one.ours == Verdict("not run", "no number for r under k in t")
    assert one.paper == Verdict("not printed", "the paper prints no number for r under k in t")


# What the page says of them


def test_claims_as_markdown(tables: Tables) -> None:
    checked = check(CLAIMS, tables)
    text = claims_markdown(checked, SCALES["small"])
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == len(CLAIMS) + 2
    assert all(line.count("|") - line.count("\\|") == 5 for line in lines)
    assert conclusion(checked, SCALES["small"]) in text


def test_every_status_is_counted(tables: Tables) -> None:
    text = conclusion(check(CLAIMS, _all(tables, _echo)), SCALES["small"])
    assert all(f" {status}" in text for status in STATUSES)
    assert sum(map(int, re.findall(r"\d+ (?!claims)", text))) == len(CLAIMS)


@pytest.mark.parametrize("noisy", [True, False])
def test_leading_ablation_is_compared_with_the_spread(tables: Tables, noisy: bool) -> None:
    def measured(cell: Cell) -> Cell:
        if cell.paper is None or not noisy:
            return _echo(cell)
        return replace(_echo(cell), ours=(cell.paper, 100 - cell.paper))

    found = findings(_all(tables, measured), [], SCALES["small"])
    (ablations,) = [text for text in found if text.startswith("Of the ablations")]
    assert ("not beyond the spread" in ablations) == noisy


def test_findings_have_at_most_ten_sentences(tables: Tables) -> None:
    small = SCALES["small"]
    nothing = findings(tables, check(CLAIMS, tables), small)
    assert len(nothing) == 2  # what the scale is, and how many claims
    ours = _all(tables, _echo)
    found = findings(ours, check(CLAIMS, ours), small)
    assert 8 <= len(found) <= 10
    assert any("+1.0 points on average" in text and "Table 6" in text for text in found)
    assert all(text.endswith(".") for text in found)
    assert findings(ours, [], SCALES["smoke"])[0].endswith("meaningless.")
