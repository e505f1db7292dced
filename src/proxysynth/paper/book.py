"""The folder of artifacts made so far at one scale, and the page that shows them all.

A command that makes one table must not remove the others from the page, so `made.json` records what
was made, and `sections/` keeps each as a piece of HTML.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proxysynth.files import write_bytes, write_json
from proxysynth.paper.artifact import Artifact, PaperFigure, Table
from proxysynth.paper.artifacts import TITLES, load_artifacts
from proxysynth.paper.claims import CLAIMS, DIFFERENCES, Checked, check, contradictions
from proxysynth.paper.claims.claim import titled
from proxysynth.paper.findings import counted, findings
from proxysynth.paper.plan import label
from proxysynth.paper.render import markdown_row, section, templates, write_files
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.report.pages import write_page
from proxysynth.report.settings import changed, rows
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
    sections: dict[str, str] = {}
    runs: dict[Run, None] = {}
    for name, artifact in artifacts.items():
        path = store.folder / SECTIONS / f"{name}.html"
        if name in made and path.exists():
            sections[name] = path.read_text(encoding="utf-8")
            runs |= dict.fromkeys([*artifact.runs(scale), *artifact.later(scale, store.pick)])
    tables = evidence(artifacts, scale, store)
    checked = check(CLAIMS, tables, smoke=scale.name == "smoke")
    page = render_page(sections, tables, checked, runs, scale, store, about)
    write_bytes(store.folder / CLAIMS_FILE, claims_markdown(checked).encode())
    return write_page(store.folder / PAGE, page), checked


def evidence(artifacts: Mapping[str, Artifact], scale: Scale, store: Store) -> dict[str, Table]:
    """Every table, and the numbers behind figures, for the claims to read.

    Artifacts that are not on the page are read from the store without new measurements; they still
    provide the paper's numbers.
    """
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
    lists = departures(checked)
    contents = [(name, titled(name), TITLES[name]) for name in sections]
    contents.append(("claims", "Claims", "what the paper says, and what was found"))
    contents += [(anchor, title, "") for anchor, title, _, _ in lists]
    listed = [_run_row(run, store) for run in runs]
    contents += [("runs", "Runs", "settings and identities")] if listed else []
    return templates().get_template("paper.html").render(
        scale=scale,
        scale_text=SCALE_TEXTS[scale.name],
        findings=findings(tables, checked, scale),
        contents=contents,
        sections=[Markup(text) for text in sections.values()],
        checked=checked,
        introduction=INTRODUCTION,
        counts=counted(checked),
        heads=HEADS,
        departures=lists,
        runs=listed,
        about=about,
    )  # fmt: skip


def _run_row(run: Run, store: Store) -> dict[str, str]:
    settings, result = encode(run), store.result(run)
    flat = rows(settings)
    failed = (store.folder_of(run) / NOT_FINITE).exists()
    state = "failed: non-finite loss" if failed else "not run"
    return {
        "label": label(run),
        "settings": ", ".join(f"{path} {flat[path]}" for path in changed(settings, encode(Run()))),
        "identity": run.identity,
        "state": state if result is None else f"{result.seconds:.1f} s",
    }


def claims_markdown(checked: Sequence[Checked]) -> str:
    """The claims as a page of their own."""
    lines = ["# Claims of the paper", "", INTRODUCTION, "", f"Here, {counted(checked)}.", ""]
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
