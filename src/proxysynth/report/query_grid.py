"""Rows of a query and what it retrieved: a green border for the query's class, red for others.

A mark beside the similarity says the same, for readers who do not tell green from red.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .examples import Example, Neighbour
from .markup import Html, tag
from .thumbnails import Pictures

Names = Callable[[int], str]  # the name of a label


def lookups(examples: Sequence[Example], pictures: Pictures, names: Names) -> Html:
    """A row for each query."""
    rows = [
        tag(
            "div",
            query_shot(example, pictures, names),
            hits(example.neighbours, pictures, names),
            class_="lookup",
        )
        for example in examples
    ]
    return tag("div", rows, class_="lookups")


def query_shot(example: Example, pictures: Pictures, names: Names) -> Html:
    """The query with its class under it."""
    label = names(example.label)
    return tag(
        "div",
        _face(pictures.of_query(example.query), label, "query"),
        tag("span", "query", class_="similarity"),
        tag("span", label),
        class_="shot query",
        title=label,
    )


def hits(neighbours: Sequence[Neighbour], pictures: Pictures, names: Names) -> Html:
    """What was retrieved, the nearest first."""
    return tag("ol", [_hit(neighbour, pictures, names) for neighbour in neighbours], class_="hits")


def _hit(neighbour: Neighbour, pictures: Pictures, names: Names) -> Html:
    label = names(neighbour.label)
    kind, mark = ("right", "✓") if neighbour.right else ("wrong", "✗")
    shown = f"{neighbour.similarity:.2f}".replace("-", "−")
    return tag(
        "li",
        _face(pictures.of_gallery(neighbour.index), label, kind),
        tag("span", shown, " ", tag("b", mark), class_="similarity"),
        tag("span", label),
        class_=f"shot {kind}",
        title=label,
    )


def _face(uri: str | None, label: str, kind: str) -> Html:
    inside = label if uri is None else tag("img", src=uri, alt=f"{kind}: {label}", loading="lazy")
    return tag("div", inside, class_="face")
