"""The page of claims: each sentence of the paper beside what was found, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proxysynth.paper.claims.claim import STATUSES, Checked
from proxysynth.paper.render.html import code
from proxysynth.report.markup import Html, tag

INTRODUCTION = (
    "Sentences of the paper that carry a number or a result, each tested by a stated rule: once on "
    "what was found here, once on what the paper itself prints."
)
PARTS = {
    True: "What trained models show",
    False: "Definitions, settings and closed forms, asked of the code",
}
HEADS = ("the paper says", "it holds if", "here", "in the paper's own numbers")
COLOURS = {"holds": "better", "fails": "worse", "not run": "quiet", "not printed": "quiet"}


def counted(claims: Iterable[Checked]) -> str:
    """ "12 hold, 3 fail, 20 not run", of what was found here."""
    found = [one.ours.status for one in claims]
    words = {"holds": "hold", "fails": "fail", "not run": "not run"}
    return ", ".join(f"{found.count(status)} {words[status]}" for status in STATUSES)


def _parts(claims: Sequence[Checked]) -> list[tuple[str, list[Checked]]]:
    groups = [(title, [c for c in claims if c.claim.trained is is_it]) for is_it, title
              in PARTS.items()]  # fmt: skip
    return [(title, group) for title, group in groups if group]


def claims_markdown(claims: Sequence[Checked]) -> str:
    """The claims as a page of their own."""
    lines = ["# Claims of the paper", "", INTRODUCTION, "", f"Here: {counted(claims)}."]
    for title, group in _parts(claims):
        lines += ["", f"## {title}", "", f"{counted(group)}.", ""]
        lines += [f"| {' | '.join(HEADS)} |", "| --- | --- | --- | --- |"]
        for one in group:
            cells = (
                f"“{one.claim.sentence}” ({one.claim.where})",
                one.claim.criterion,
                f"**{one.ours.status}**: {one.ours.evidence}",
                ": ".join(filter(None, (one.paper.status, one.paper.evidence))),
            )
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])


def claims_section(claims: Sequence[Checked]) -> Html | None:
    """The claims as a section of the page; None where there are none."""
    if not claims:
        return None
    head = tag("thead", tag("tr", [tag("th", text) for text in HEADS]))
    parts = []
    for title, group in _parts(claims):
        parts += [
            tag("h3", title),
            tag("p", f"{counted(group)}.", class_="quiet"),
            tag("div", tag("table", head, tag("tbody", [_line(one) for one in group]),
                class_="claims"), class_="scroll"),
        ]  # fmt: skip
    return tag(
        "section",
        tag("h2", "Claims"),
        tag("p", f"{INTRODUCTION} Here: {counted(claims)}."),
        *parts,
        id="claims",
    )


def _line(one: Checked) -> Html:
    colour = COLOURS[one.ours.status]
    return tag(
        "tr",
        tag("td", f"“{one.claim.sentence}”", tag("br"), tag("small", one.claim.where),
        ),
        tag("td", code(one.claim.criterion), class_="quiet"),
        tag("td", tag("span", one.ours.status, class_=f"verdict {colour}"), tag("br"),
            tag("small", one.ours.evidence)),
        tag("td", tag("span", one.paper.status), tag("br"), tag("small", one.paper.evidence),
            class_="quiet"),
    )  # fmt: skip
