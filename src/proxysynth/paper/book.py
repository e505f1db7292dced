"""The folder of artifacts made so far at one scale, and the page that shows them all, with what
was found in plain sentences.

A command that makes one table must not remove the others from the page, so `made.json` records what
was made, and `sections/` keeps each as a piece of HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

from markupsafe import Markup

from proxysynth.files import write_bytes, write_json
from proxysynth.formatting import and_join
from proxysynth.paper.artifact import Artifact, PaperFigure, Table
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.claims import CLAIMS, DIFFERENCES, Checked, Evidence, check, contradictions
from proxysynth.paper.claims.claim import STATUSES, Missing, listed, titled
from proxysynth.paper.render import markdown_row, section, templates, write_files
from proxysynth.paper.scale import NAMES, Scale
from proxysynth.paper.store import Store, label, requests, unusual
from proxysynth.paper.tables.cells import PAIR
from proxysynth.paper.tables.conventional import TABLE_OF
from proxysynth.report.pages import write_page
from proxysynth.training.loop import NOT_FINITE
from proxysynth.training.run import Run
from proxysynth.training.run_folder import make_folder
from proxysynth.values import encode

MADE, SECTIONS, PAGE, CLAIMS_FILE = "made.json", "sections", "paper.html", "claims.md"
SCALE_TEXTS = {
    "paper": "The settings of the paper's section C.2.",
    "small": "Sized for two cores: other images and a smaller network than the paper's.",
    "smoke": "A few training steps, to check the code: the numbers are meaningless.",
}
INTRODUCTION = (
    "Sentences of the paper about results, each tested by a stated rule: once on our numbers, once "
    "on the paper's own. A claim is supported or contradicted where the 95 % interval over the "
    "seeds says so, undecided otherwise, and not testable where it needs the paper's data, network "
    "or GPU."
)
HEADS = ("the paper says", "it holds if", "here", "in the paper's own numbers")


def add(
    name: str, made: Table | PaperFigure, scale: Scale, store: Store, about: Mapping[str, str]
) -> list[Path]:
    """Write an artifact's files and its section; returns the files."""
    folder = store.folder
    make_folder(folder / SECTIONS)
    numbers = load_artifacts([name])[name].numbers
    read_by_claims = numbers(scale, store) if numbers else None
    files = write_files(folder, name, made, about, read_by_claims)
    write_bytes(folder / SECTIONS / f"{name}.html", section(name, made).encode())
    entries = read_entries(folder, scale) | {name: {"title": made.title, "about": TITLES[name]}}
    record = {"scale": scale.name, "settings": encode(dict(scale.settings)), "made": entries}
    write_json(folder / MADE, record)
    return files


def read_entries(folder: Path, scale: Scale) -> dict[str, Any]:
    """What this folder holds at this scale, with these settings."""
    try:
        record = json.loads((folder / MADE).read_bytes())
        settings = encode(dict(scale.settings))
        same = record["scale"] == scale.name and record.get("settings", {}) == settings
        return dict(record["made"]) if same else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_book(scale: Scale, store: Store, about: Mapping[str, str]) -> tuple[Path, list[Checked]]:
    """Write paper.html and claims.md of everything made so far."""
    made, artifacts = read_entries(store.folder, scale), load_artifacts()
    paths = {name: store.folder / SECTIONS / f"{name}.html" for name in artifacts if name in made}
    sections = {n: path.read_text(encoding="utf-8") for n, path in paths.items() if path.exists()}
    runs = requests((artifacts[name] for name in sections), scale, store.pick).runs
    tables = evidence(artifacts, scale, store)
    checked = check(CLAIMS, tables, smoke=scale.name == "smoke")
    page = render_page(sections, tables, checked, runs, scale, store, about)
    write_bytes(store.folder / CLAIMS_FILE, claims_markdown(checked, scale).encode())
    return write_page(store.folder / PAGE, page), checked


def evidence(artifacts: Mapping[str, Artifact], scale: Scale, store: Store) -> dict[str, Table]:
    """Every table, and the numbers behind figures, for the claims to read. Those of artifacts that
    are not on the page provide the paper's numbers, without new measurements of ours."""
    made, unmeasured = read_entries(store.folder, scale), Store(store.folder, read_only=True)
    tables = {}
    for name, artifact in artifacts.items():
        make = artifact.make if name.startswith("table") else artifact.numbers
        if make is not None:
            table = make(scale, store if name in made else unmeasured)
            assert isinstance(table, Table)
            tables[name] = table
    return tables


def render_page(
    sections: Mapping[str, str],
    tables: Mapping[str, Table],
    checked: Sequence[Checked],
    runs: Iterable[Run],
    scale: Scale,
    store: Store,
    about: Mapping[str, str],
) -> str:
    """The whole document; `sections` are HTML."""
    lists, rows = departures(checked), []
    for run in runs:
        result, failed = store.result(run), (store.folder_of(run) / NOT_FINITE).exists()
        state = f"{result.seconds:.1f} s" if result else "failed: non-finite loss"
        settings = ", ".join(f"{path} {value}" for path, value in unusual(run).items())
        about_run = {"label": label(run), "settings": settings, "identity": run.identity}
        rows.append({**about_run, "state": state if result or failed else "not run"})
    contents = [
        *((name, titled(name), TITLES[name]) for name in sections),
        ("claims", "Claims", "what the paper says, and what was found"),
        *((anchor, title, "") for anchor, title, _, _ in lists),
        *[("runs", "Runs", "settings and identities")] * bool(rows),
    ]
    return templates().get_template("paper.html").render(
        scale=scale,
        scale_text=SCALE_TEXTS[scale.name],
        findings=findings(tables, checked, scale),
        contents=contents,
        sections=[Markup(text) for text in sections.values()],
        checked=checked,
        introduction=INTRODUCTION,
        conclusion=conclusion(checked, scale),
        heads=HEADS,
        departures=lists,
        runs=rows,
        about=about,
    )  # fmt: skip


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
    return [
        (
            "contradictions",
            "Where the paper contradicts itself",
            "Found while reading it, or by testing its sentences on its own tables.",
            contradictions(checked),
        ),
        (
            "differences",
            "Where we chose differently",
            "This code departs from the paper's text, or fills in what it does not say.",
            DIFFERENCES,
        ),
    ]


# Findings


def findings(tables: Mapping[str, Table], checked: Sequence[Checked], scale: Scale) -> list[str]:
    """What was found, in at most ten sentences; a table without numbers of ours gives none."""
    if scale.name == "smoke":
        return ["Training stopped after a few steps: the numbers on this page are meaningless."]
    ours, found = Evidence(tables, "mean"), [_setting(tables, scale)]
    for sentence in (_table6, _map, _mlrc, _table1, _table3, _table_b, _table5, _cost):
        with suppress(Missing):
            found.append(sentence(ours))
    return [*found, f"Of {len(checked)} claims about results, {counted(checked)}."]


def conclusion(checked: Iterable[Checked], scale: Scale) -> str:
    """How many claims are supported, in one sentence; at scale smoke, that no number counts."""
    if scale.name == "smoke":
        return SCALE_TEXTS["smoke"]
    return f"Of the paper's claims, {counted(checked)}."


def counted(checked: Iterable[Checked]) -> str:
    """ "12 are supported, 3 contradicted, 8 undecided, 4 not testable here and 9 not run"."""
    found = [one.ours.status for one in checked]
    texts = [f"{found.count(status)} {status}" for status in STATUSES]
    verb = " is " if found.count(STATUSES[0]) == 1 else " are "
    return and_join([texts[0].replace(" ", verb, 1), *texts[1:3], f"{texts[3]} here", texts[4]])


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


def _summary(ours: Evidence, tables: Sequence[str], **where: Any) -> str:
    """ "+0.3 points on average; 5 of 32 rise and 1 falls beyond the spread of the seeds"."""
    gains = ours.gains(tables, **where, partial=True)
    up, down = ((gains.verdicts or []).count(kind) for kind in ("better", "worse"))
    return (
        f"{gains.mean:+.1f} points on average; {up} of {len(gains.values)} rise and {down} "
        f"fall{'s' * (down == 1)} beyond the spread of the seeds"
    )


def _table6(ours: Evidence) -> str:
    paper = Evidence(ours.tables, "paper").gains(["table6"])
    return (
        f"Over the eight losses, Proxy Synthesis changes Recall@1 by {_summary(ours, ['table6'])} "
        f"(Table 6). The paper reports {paper.mean:+.1f}."
    )


def _map(ours: Evidence) -> str:
    change = _summary(ours, [f"table{letter}" for letter in TABLE_OF.values()], columns=["map@r"])
    return f"In MAP@R, which counts all neighbors of the class, the change is {change}."


def _mlrc(ours: Evidence) -> str:
    heads = [head for head in ours.tables["table4"].columns if head.key.endswith("map@r")]
    change = _summary(ours, ["table4"], columns=[head.key for head in heads])
    ran = and_join(head.ours for head in heads if head.ours)
    return (
        f"After a hyper-parameter search for each row (MLRC) on {ran}, MAP@R changes by {change} "
        "(Table 4)."
    )


def _table1(ours: Evidence) -> str:
    rows = ours.tables["table1"].rows
    found = {row.labels[0]: ours.value("table1", row.key, "R@1") for row in rows}
    best = max(found, key=found.__getitem__)
    return f"Of the ablations, {best} has the highest Recall@1 ({listed(found)}; Table 1)."


def _table3(ours: Evidence) -> str:
    _, *deformed = ours.rows("table3")
    change = _summary(ours, ["table3"], rows=deformed, columns=["proxy_synthesis"])
    return f"On deformed images, Recall@1 changes by {change} (Table 3)."


def _table_b(ours: Evidence) -> str:
    seen, unseen = (
        " to ".join(
            f"{fmean(ours.column('tableB', f'norm_softmax {part} {reg}').values()):.1f}"
            for reg in PAIR
        )
        for part in ("train", "test")
    )
    return (
        "When mixtures of two classes search for each other, Proxy Synthesis changes the mean "
        f"Recall@1 from {seen} on seen classes and from {unseen} on unseen classes (Table B; the "
        "paper: almost twice)."
    )


def _table5(ours: Evidence) -> str:
    rows = ours.rows("table5")[1:]
    means = {row: ours.gains(["table5"], [row], partial=True).mean for row in rows}
    changes = and_join(f"{name} {round(mean, 1) + 0.0:+.1f}" for name, mean in means.items())
    return f"Mean change of Recall@1 by regularizer: {changes} (Table 5)."


def _cost(ours: Evidence) -> str:
    return (
        "With 98 classes, a forward and backward pass of the loss with mu 1 takes "
        f"{ours.value('tableA', '1', 'ratio'):.1f} times that of the plain loss (Table A)."
    )
