"""A contact sheet: the queries and their hits, as one page without a script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proxysynth.data import Listing
from proxysynth.report.examples import thumbnail
from proxysynth.report.pages import environment, write_page
from proxysynth.search.index import Hit, Index

SIDE = 256  # pixels of a thumbnail; shown at about half of it, for dense screens


def write_contact_sheet(
    path: Path, index: Index, queries: Sequence[str | os.PathLike[str]], hits: Sequence[Hit]
) -> Path:
    """Write the page and return its path."""
    return write_page(path, contact_sheet(index, queries, hits))


def contact_sheet(
    index: Index, queries: Sequence[str | os.PathLike[str]], hits: Sequence[Hit]
) -> str:
    """The page: the queries, then the hits in order, with their similarities."""
    asked = []
    for query in queries:
        number = index.find(query)
        file = Path(query) if number is None else index.path(number)
        asked.append({**_image(file), "path": os.fspath(query)})
    found = [{**_image(index.path(hit.number)), **vars(hit)} for hit in hits]
    template = environment("proxysynth.search").get_template("contact_sheet.html")
    return template.render(
        queries=asked, hits=found, total=len(index), root=str(index.root), model=index.model.name
    )


def _image(file: Path) -> dict[str, Any]:
    """The name of a file and its thumbnail as a data URL, None if it cannot be read."""
    full = Path(os.path.abspath(file))
    alone = Listing((full.name,), np.zeros(1, dtype=np.int64), ("image",), root=full.parent)
    return {"name": full.name, "shown": thumbnail(alone, 0, SIDE)}
