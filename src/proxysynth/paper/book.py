"""The book that a folder holds: every artifact made so far at one scale, and the page of them.

A command that makes one table must not take the others from the page, so `made.json` remembers
what was made, and `sections/` keeps each as a piece of HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proxysynth.files import write_bytes, write_json
from proxysynth.paper.artifact import Artifact, Picture, Table
from proxysynth.paper.claims import CLAIMS, Checked, check
from proxysynth.paper.figures.figure_numbers import figure_tables
from proxysynth.paper.render.claims_page import claims_markdown
from proxysynth.paper.render.files import write_picture, write_table
from proxysynth.paper.render.html import picture_section, table_section
from proxysynth.paper.render.page import Entry, paper_page
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.work import chooser
from proxysynth.report.markup import Html
from proxysynth.report.pages import write_page
from proxysynth.training.run import Run
from proxysynth.training.run_folder import make_folder

MADE, SECTIONS, PAGE, CLAIMS_FILE = "made.json", "sections", "paper.html", "claims.md"


def add(
    name: str,
    what: Table | Picture,
    artifact: Artifact,
    scale: Scale,
    store: Store,
    about: Mapping[str, str],
) -> list[Path]:
    """Write an artifact's files and its section; returns the files."""
    folder = store.folder
    make_folder(folder / SECTIONS)
    if isinstance(what, Table):
        files, section = write_table(folder, name, what, about), table_section(name, what)
    else:
        files, section = write_picture(folder, name, what), picture_section(name, what)
    write_bytes(folder / SECTIONS / f"{name}.html", section.encode())
    made = entries(folder, scale)
    made[name] = {"title": what.title, "about": artifact.title}
    write_json(folder / MADE, {"scale": scale.name, "made": made})
    return files


def entries(folder: Path, scale: Scale) -> dict[str, Any]:
    """What this folder holds of this scale."""
    try:
        told = json.loads((folder / MADE).read_bytes())
        return dict(told["made"]) if told["scale"] == scale.name else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def write_book(
    artifacts: Mapping[str, Artifact], scale: Scale, store: Store, about: Mapping[str, str]
) -> tuple[Path, list[Checked]]:
    """paper.html and claims.md of everything made so far; figures are taken as they are."""
    made = entries(store.folder, scale)
    shown: list[Entry] = []
    runs: dict[Run, None] = {}
    for name, artifact in artifacts.items():
        if name not in made:
            continue
        try:
            section = (store.folder / SECTIONS / f"{name}.html").read_text(encoding="utf-8")
        except OSError:
            continue
        shown.append(Entry(name, made[name]["title"], made[name]["about"], Html(section)))
        runs.update(dict.fromkeys(runs_of(artifact, scale, store)))
    tables = evidence(artifacts, scale, store)
    checked = check(CLAIMS, tables, meaningful=scale.name != "smoke")
    page = paper_page(shown, checked, list(runs), scale, store, about)
    write_bytes(store.folder / CLAIMS_FILE, claims_markdown(checked).encode())
    return write_page(store.folder / PAGE, page), checked


def evidence(artifacts: Mapping[str, Artifact], scale: Scale, store: Store) -> dict[str, Table]:
    """Every table, and the numbers behind figures, for the claims to read.

    Those that are not on the page are made of what lies there and measure nothing: the paper's
    numbers, which they hold as well, are there at any time.
    """
    made, unmeasured = entries(store.folder, scale), Store(store.folder, measures=False)

    def of(name: str) -> Store:
        return store if name in made else unmeasured

    tables = figure_tables(scale, of)
    for name, artifact in artifacts.items():
        if name.startswith("table"):
            table = artifact.make(scale, of(name))
            assert isinstance(table, Table)
            tables[name] = table
    return tables


def runs_of(artifact: Artifact, scale: Scale, store: Store) -> Sequence[Run]:
    """The Runs behind an artifact, those of finished searches among them."""
    return [*artifact.runs(scale), *artifact.later(scale, chooser(store))]
