"""Contact sheets: images of an index in titled sections, as one page without a script."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from proxysynth.report.examples import thumbnail
from proxysynth.report.pages import environment, write_page
from proxysynth.search.index import Hit, Index

SIDE = 256  # pixels of a thumbnail; shown at about half of it, for dense screens

Section = tuple[str, Sequence[Hit | str | os.PathLike[str]]]
"""A title, and a row of images: items of the index, or files that need not be in it."""


def write_contact_sheet(
    path: Path, index: Index, queries: Sequence[str | os.PathLike[str]], hits: Sequence[Hit]
) -> Path:
    """Write the page of a search: the queries, then the hits in order, with their similarities."""
    several = f": the mean of {len(queries)} images" if len(queries) > 1 else ""
    sections: list[Section] = [(f"Query{several}", queries), ("Hits", hits)]
    lead = f"{len(hits)} of {len(index):,} images of {index.root}, embedded by {index.model.name}."
    return write_sheet(path, index, "Nearest images", lead, sections)


def write_sheet(
    path: Path, index: Index, title: str, lead: str, sections: Iterable[Section]
) -> Path:
    template = environment("proxysynth.search").get_template("contact_sheet.html")
    shown = ((name, [_image(index, one) for one in images]) for name, images in sections)
    return write_page(path, template.render(title=title, lead=lead, sections=shown))


def _image(index: Index, image: Hit | str | os.PathLike[str]) -> dict[str, Any]:
    """Path, label, similarity and, as a data URL, the thumbnail; None if it cannot be read."""
    if isinstance(image, Hit):
        file, known = index.path(image.number), dict(vars(image))
    else:
        number = index.find(image)
        file = Path(image) if number is None else index.path(number)
        known = {"path": os.fspath(image), "label": None}
    return {**known, "shown": thumbnail(file, SIDE)}
