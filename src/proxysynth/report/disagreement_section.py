"""The part of a comparison's page that shows queries which only one of two runs gets right."""

from __future__ import annotations

from .comparison import Comparison
from .disagreement import Disagreement
from .examples import Example
from .markup import Html, tag
from .numbers import count
from .query_grid import Names, hits, query_shot
from .thumbnails import Pictures


def disagreement_sections(comparison: Comparison) -> list[Html]:
    """A section for each pair of runs that was compared."""
    if not comparison.disagreements:
        return []
    first = comparison.runs[0]  # all that are compared query by query share its test
    pictures = first.pictures()
    return [_section(item, pictures, first.class_name) for item in comparison.disagreements]


def _section(item: Disagreement, pictures: Pictures, names: Names) -> Html:
    body: list[object] = [
        tag(
            "p",
            f"Of {count(item.queries, 'query', 'queries')}, {item.both:,} have the right nearest "
            f"neighbour in both, {item.neither:,} in neither.",
        )
    ]
    if pictures.missing:
        body.append(tag("p", pictures.missing, class_="note"))
    for winner, number, shown in (
        (item.first, item.only_first, item.first_right),
        (item.second, item.only_second, item.second_right),
    ):
        some = f", {len(shown)} of them drawn at random" if number > len(shown) else ""
        body.append(tag("h3", f"Only {winner} is right: {count(number, 'query', 'queries')}{some}"))
        body.append(
            tag("div", [_both(item, pair, pictures, names) for pair in shown], class_="lookups")
        )
    title = f"What {item.first} and {item.second} answer differently"
    return tag("section", tag("h2", title), body)


def _both(
    item: Disagreement, pair: tuple[Example, Example], pictures: Pictures, names: Names
) -> Html:
    answers = [
        tag("div", tag("span", title), hits(example.neighbours, pictures, names))
        for title, example in zip((item.first, item.second), pair, strict=True)
    ]
    return tag(
        "div",
        query_shot(pair[0], pictures, names),
        tag("div", answers, class_="answers"),
        class_="lookup two",
    )
