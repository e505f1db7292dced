"""The folder of artifacts made so far at one scale, and the page that shows them all, with what
was found in plain sentences.

A command that makes one table must not remove the others from the page, so `made.json` records what
was made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from proxysynth.files import write_bytes, write_json
from proxysynth.formatting import and_join
from proxysynth.paper.artifact import PaperFigure, Table
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.claims.claim import (
    STATUSES,
    Checked,
    Evidence,
    Missing,
    check,
    listed,
    titled,
)
from proxysynth.paper.claims.rules import CLAIMS, DIFFERENCES, contradictions
from proxysynth.paper.render import markdown_row, render, section, write_files
from proxysynth.paper.scale import NAMES, Scale
from proxysynth.paper.store import Store, label, requests, unusual
from proxysynth.paper.tables.cells import PAIR
from proxysynth.paper.tables.conventional import TABLE_OF
from proxysynth.report.pages import write_page
from proxysynth.report.statistics import difference_interval
from proxysynth.training.loop import NOT_FINITE
from proxysynth.training.run import Run
from proxysynth.values import encode

MADE, PAGE, CLAIMS_FILE = "made.json", "paper.html", "claims.md"
SCALE_TEXTS = {
    "paper": "The settings of the paper's section C.2.",
    "small": "Sized for two cores: other images and a smaller network than the paper's.",
    "smoke": "A few training steps, to check the code: the numbers are meaningless.",
}
INTRODUCTION = (
    "Sentences of the paper about results, each tested by a stated rule: once on our numbers, once "
    "on the paper's own. A claim is supported or contradicted where the 95% interval over the "
    "seeds says so, undecided otherwise, and not testable where it needs the paper's data, network "
    "or GPU."
)
HEADS = ("the paper says", "it holds if", "here", "in the paper's own numbers")


def add(
    name: str, made: Table | PaperFigure, scale: Scale, store: Store, about: Mapping[str, str]
) -> list[Path]:
    """Write an artifact's files and add it to the page; returns the files."""
    files = write_files(store.folder, name, made, about)
    entries = sorted({*read_entries(store.folder, scale), name})
    record = {"scale": scale.name, "settings": encode(dict(scale.settings)), "made": entries}
    write_json(store.folder / MADE, record)
    return files


def read_entries(folder: Path, scale: Scale) -> list[str]:
    """The artifacts that this folder holds at this scale, with these settings."""
    try:
        record = json.loads((folder / MADE).read_bytes())
        settings = encode(dict(scale.settings))
        same = record["scale"] == scale.name and record.get("settings", {}) == settings
        return list(record["made"]) if same else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def write_book(scale: Scale, store: Store, about: Mapping[str, str]) -> tuple[Path, list[Checked]]:
    """Write paper.html and claims.md of everything made so far."""
    on_page = load_artifacts(read_entries(store.folder, scale))
    unmeasured = Store(store.folder, read_only=True)
    found = {
        # The others provide the paper's numbers, without new measurements of ours.
        name: artifact(scale, store if name in on_page else unmeasured)
        for name, artifact in load_artifacts().items()
    }
    made, tables = {name: found[name] for name in on_page}, evidence(found)
    checked = check(CLAIMS, tables, scale.name == "smoke", list(on_page))
    runs = requests(on_page.values(), scale, store.pick).runs
    page = render_page(made, tables, checked, runs, scale, store, about)
    write_bytes(store.folder / CLAIMS_FILE, claims_markdown(checked, scale).encode())
    return write_page(store.folder / PAGE, page), checked


def evidence(found: Mapping[str, Table | PaperFigure]) -> dict[str, Table]:
    """The tables, and the numbers behind the figures, for the claims to read."""
    tables = {name: m if isinstance(m, Table) else m.numbers for name, m in found.items()}
    return {name: table for name, table in tables.items() if table is not None}


def render_page(
    made: Mapping[str, Table | PaperFigure],
    tables: Mapping[str, Table],
    checked: Sequence[Checked],
    runs: Iterable[Run],
    scale: Scale,
    store: Store,
    about: Mapping[str, str],
) -> str:
    """The page of what was made, in HTML; the claims read `tables`."""
    rows = []
    for run in runs:
        state = "not run"
        if result := store.result(run):
            state = f"{result.seconds:.1f} s"
        elif (store.folder_of(run) / NOT_FINITE).exists():
            state = "failed: non-finite loss"
        settings = ", ".join(f"{path} {value}" for path, value in unusual(run).items())
        row = {"label": label(run), "settings": settings, "identity": run.identity}
        rows.append({**row, "state": state})
    return render(
        "paper.html",
        scale=scale,
        scale_text=SCALE_TEXTS[scale.name],
        findings=findings(tables, checked, scale),
        titled=titled,
        titles=TITLES,
        sections={name: Markup(section(name, each, store.folder)) for name, each in made.items()},
        checked=checked,
        introduction=INTRODUCTION,
        conclusion=conclusion(checked, scale),
        heads=HEADS,
        departures=departures(checked),
        runs=rows,
        about=about,
    )


def claims_markdown(checked: Sequence[Checked], scale: Scale) -> str:
    """The claims as a page of their own."""
    lines = ["# Claims of the paper", "", INTRODUCTION, "", conclusion(checked, scale), ""]
    lines += [markdown_row(HEADS), markdown_row(["---"] * len(HEADS))]
    for one in checked:
        cells = (
            f"“{one.claim.sentence}” ({one.claim.where})",
            one.claim.criterion,
            f"**{one.ours.status}**: {one.ours.evidence}",
            ": ".join(filter(None, (one.paper.status, one.paper.evidence))),
        )
        lines.append(markdown_row(cells))
    for _, title, _, items in departures(checked):
        lines += ["", f"## {title}", "", *(f"- {item}" for item in items)]
    return "\n".join([*lines, ""])


def departures(checked: Sequence[Checked]) -> list[tuple[str, str, str, Sequence[str]]]:
    """Two lists after the claims: an anchor, a title, an introduction and the items of each."""
    theirs = "Found while reading it, or by testing its sentences on its own tables."
    ours = "This code departs from the paper's text, or fills in what it does not say."
    return [
        ("contradictions", "Where the paper contradicts itself", theirs, contradictions(checked)),
        ("differences", "Where we chose differently", ours, DIFFERENCES),
    ]


# Findings


def findings(tables: Mapping[str, Table], checked: Sequence[Checked], scale: Scale) -> list[str]:
    """What was found, in at most ten sentences; a table without numbers of ours gives none."""
    if scale.name == "smoke":
        return [SCALE_TEXTS["smoke"]]
    ours, paper = Evidence(tables, "mean"), Evidence(tables, "paper")

    def change(*names: str, **where: Any) -> str:
        """ "+0.3 points on average; 5 of 32 rise and 1 falls beyond the spread of the seeds"."""
        gains = ours.gains(names, **where, partial=True)
        up, down = ((gains.verdicts or []).count(kind) for kind in ("better", "worse"))
        return (
            f"{gains.mean:+.1f} points on average; {up} of {len(gains.values)} rise and {down} "
            f"fall{'s' if down == 1 else ''} beyond the spread of the seeds"
        )

    def mixtures(part: str) -> str:
        """ "26.7 to 26.9", without and with Proxy Synthesis."""
        columns = (ours.column("tableB", f"norm_softmax {part} {reg}") for reg in PAIR)
        return " to ".join(f"{fmean(column.values()):.1f}" for column in columns)

    def ablations() -> str:
        rows = tables["table1"].rows
        found = {row.labels[0]: ours.value("table1", row.key, "R@1") for row in rows}
        best = max(found, key=found.__getitem__)
        seeds = {row.labels[0]: row.cells[0].ours for row in rows}
        top = seeds.pop(best)
        intervals = [difference_interval(other, top, paired=True) for other in seeds.values()]
        beyond = all(interval and interval[0] > 0 for interval in intervals)
        spread = "" if beyond else ", but not beyond the spread of the seeds"
        return (
            f"Of the ablations, {best} has the highest Recall@1{spread} ({listed(found)}; Table 1)."
        )

    def by_search() -> str:
        heads = [head for head in tables["table4"].columns if head.key.endswith("map@r")]
        ran = and_join(head.ours for head in heads if head.ours)
        found = change("table4", columns=[head.key for head in heads])
        return (
            f"After a hyper-parameter search for each row (MLRC) on {ran}, MAP@R changes by "
            f"{found} (Table 4)."
        )

    def by_regularizer() -> str:
        rows = ours.rows("table5")[1:]
        means = {row: ours.gains(["table5"], [row], partial=True).mean for row in rows}
        changes = and_join(f"{name} {round(mean, 1) + 0.0:+.1f}" for name, mean in means.items())
        return f"Mean change of Recall@1 by regularizer: {changes} (Table 5)."

    sentences: tuple[Callable[[], str], ...] = (
        lambda: (
            f"Over the eight losses, Proxy Synthesis changes Recall@1 by {change('table6')} "
            f"(Table 6). The paper reports {paper.gains(['table6']).mean:+.1f}."
        ),
        lambda: (
            "In MAP@R, which counts all neighbors of the class, the change is "
            f"{change(*(f'table{letter}' for letter in TABLE_OF.values()), columns=['map@r'])}."
        ),
        by_search,
        ablations,
        lambda: (
            "On deformed images, Recall@1 changes by "
            f"{change('table3', rows=ours.rows('table3')[1:], columns=['proxy_synthesis'])} "
            "(Table 3)."
        ),
        lambda: (
            "When mixtures of two classes search for each other, Proxy Synthesis changes the mean "
            f"Recall@1 from {mixtures('train')} on seen classes and from {mixtures('test')} on "
            "unseen classes (Table B; the paper: almost twice)."
        ),
        by_regularizer,
        lambda: (
            "With 98 classes, a forward and backward pass of the loss with mu 1 takes "
            f"{ours.value('tableA', '1', 'ratio'):.1f} times that of the plain loss (Table A)."
        ),
    )
    found = [_setting(tables, scale)]
    for sentence in sentences:
        with suppress(Missing):
            found.append(sentence())
    return [*found, conclusion(checked, scale)]


def conclusion(checked: Sequence[Checked], scale: Scale) -> str:
    """How many claims have which status, in one sentence; at scale smoke, that no number counts."""
    if scale.name == "smoke":
        return SCALE_TEXTS["smoke"]
    found = Counter(one.ours.status for one in checked)
    counts = and_join(f"{found[status]} {status}" for status in STATUSES)
    return f"Of {len(checked)} claims about results: {counts}."


def _setting(tables: Mapping[str, Table], scale: Scale) -> str:
    """What the columns of each dataset hold."""
    if scale.name == "paper":
        return f"The paper's data, network and settings, over {len(scale.seeds)} seeds."
    held: dict[str, dict[str, None]] = {name: {} for name in NAMES.values()}
    for letter, table in tables.items():
        for column in table.columns if letter[5:] not in TABLE_OF.values() else ():
            if column.ours and column.paper in held:
                held[column.paper][column.ours] = None
            elif column.key.endswith(" photographs"):
                held["CUB200"][f"photographs ({column.ours})"] = None
    what = "; ".join(f"for {name}, {' and '.join(ours)}" for name, ours in held.items() if ours)
    return (
        "Drawn characters and a small network stand in for most of the paper's photographs and for "
        "BN-Inception: compare directions and sizes of differences, not the numbers."
        + (f" Our columns show, {what}." if what else "")
    )
