"""paper.html: everything on one page that asks nothing of the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from proxysynth.paper.claims.claim import Checked
from proxysynth.paper.render.claims_page import claims_section
from proxysynth.paper.scale import Scale
from proxysynth.paper.store import Store
from proxysynth.paper.work import label
from proxysynth.report.markup import Html, page, tag
from proxysynth.report.settings import changed, rows
from proxysynth.training.loop import NOT_FINITE
from proxysynth.training.run import Run
from proxysynth.values import encode

WORDS = {
    "paper": "Section C.2 as printed.",
    "small": "A scale for two cores: other pictures and a smaller network than the paper's, so "
    "look at directions and sizes of differences, not at the numbers themselves.",
    "smoke": "A few steps of training, to show that everything works: the numbers mean nothing.",
}
STYLE = """
main { max-width: 80rem; }
a { color: var(--accent); }
.scroll {
  background:
    linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat local,
    linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat scroll;
}
table.paper tr.groups th { border-bottom: none; padding-bottom: 0; }
table.paper th.held { position: sticky; left: 0; background: var(--paper); }
table.paper td.paper, table.paper th.paper { color: var(--muted); }
table.paper th.group { text-align: center; color: var(--ink); font-weight: 600; }
table.paper td, table.paper th { padding-right: 1.1rem; }
table.paper small.better { color: var(--right); }
table.paper small.worse { color: var(--wrong); }
ul.notes { max-width: 52rem; padding-left: 1.1rem; color: var(--muted); font-size: 0.88rem; }
img.drawing { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
nav ol { columns: 3 16rem; padding-left: 0; list-style: none; font-size: 0.92rem; }
.verdict { white-space: nowrap; font-weight: 600; }
#runs td details { margin-top: 0; }
td.wide { white-space: normal; min-width: 14rem; }
table.claims { table-layout: fixed; width: 100%; min-width: 46rem; }
table.claims td { white-space: normal; overflow-wrap: anywhere; }
table.claims th:first-child { width: 34%; }
table.claims th:nth-child(2) { width: 20%; }
table.claims th:nth-child(3) { width: 25%; }
"""


@dataclass(frozen=True)
class Entry:
    """An artifact on the page: its name, its title, what it shows in a few words, its section."""

    name: str
    title: str
    about: str
    section: Html


def paper_page(
    made: Sequence[Entry],
    claims: Sequence[Checked],
    runs: Sequence[Run],
    scale: Scale,
    store: Store,
    about: Mapping[str, str],
) -> Html:
    """The whole document."""
    return page(
        "Proxy Synthesis, every table and figure",
        tag("style", Html(STYLE)),
        tag(
            "header",
            tag("p", "Proxysynth", class_="over"),
            tag("h1", "Proxy Synthesis: every table and figure"),
            tag("p", f"Scale: {scale.name}. {WORDS[scale.name]}", class_="lead"),
            tag("p", _legend(scale)),
        ),
        _contents(made, bool(claims), bool(runs)),
        claims_section(claims),
        *(one.section for one in made),
        _runs(runs, store),
        _facts(about),
    )


def _legend(scale: Scale) -> Html:
    return tag(
        "span",
        "Each number of ours stands beside the paper's (grey). A difference is ",
        tag("span", "green", class_="better"),
        " or ",
        tag("span", "red", class_="worse"),
        f" only where the 95 % interval over the {len(scale.seeds)} seeds leaves out zero"
        if len(scale.seeds) > 1
        else " only where several seeds support it, and there is one",
        ". A dash was not run.",
    )


def _contents(made: Sequence[Entry], claims: bool, runs: bool) -> Html:
    items = [("claims", "Claims", "what the paper says, and what was found")] if claims else []
    items += [(one.name, one.title, one.about) for one in made]
    items += [("runs", "Runs", "settings and folders")] if runs else []
    links = [
        tag("li", tag("a", title, href=f"#{name}"), tag("span", f" {text}", class_="quiet"))
        for name, title, text in items
    ]
    return tag("nav", tag("h2", "Contents"), tag("ol", links))


def _runs(runs: Sequence[Run], store: Store) -> Html | None:
    """Every Run behind the page: what is unusual in it, all settings on demand, its folder."""
    if not runs:
        return None
    usual, lines = encode(Run()), []
    for run in runs:
        told, result = encode(run), store.result(run)
        flat = rows(told)
        unusual = ", ".join(f"{path} {flat[path]}" for path in changed(told, usual))
        broken = (store.folder_of(run) / NOT_FINITE).exists()
        state = "failed: its loss is not finite" if broken else "not run"
        if result is not None:
            state = f"{result.seconds:.1f} s"
        place = Path("runs") / run.identity
        lines.append(
            tag(
                "tr",
                tag("td", label(run), class_="wide"),
                tag("td", tag("details", tag("summary", "settings"), tag("small", unusual)),
                    class_="value"),
                tag("td", tag("a", str(place), href=f"{place.as_posix()}/")),
                tag("td", state, class_="number"),
            )
        )  # fmt: skip
    head = [tag("th", text) for text in ("Run", "unlike the defaults", "folder", "time")]
    return tag(
        "section",
        tag("h2", "Runs"),
        tag("p", f"{len(runs)} trainings. Each folder holds run.json with everything needed to run "
            "it again."),
        tag("details", tag("summary", "show all"),
            tag("div", tag("table", tag("thead", tag("tr", head)), tag("tbody", lines)),
                class_="scroll")),
        id="runs",
    )  # fmt: skip


def _facts(about: Mapping[str, str]) -> Html:
    pairs = [(tag("dt", name), tag("dd", value)) for name, value in about.items() if value]
    return tag("section", tag("h2", "Where this was made"), tag("dl", pairs, class_="facts"))
