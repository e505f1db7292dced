"""A contact sheet: what was asked for and what was found, as one page without a script."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from proxysynth.data import Listing
from proxysynth.report.examples import thumbnail
from proxysynth.report.markup import Html, escape, page, tag
from proxysynth.report.pages import write_page
from proxysynth.search.index import Hit, Index

SIDE = 256  # pixels of a thumbnail; shown at about half of it, for dense screens
STYLE = """
.sheet { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem;
  list-style: none; padding: 0; margin: .8rem 0 2.5rem; }
.sheet figure { margin: 0; }
.sheet img, .sheet .gone { width: 100%; aspect-ratio: 1; object-fit: contain; border-radius: .3rem;
  background: rgb(128 128 128 / .12); display: block; }
.sheet .gone { display: grid; place-items: center; color: gray; }
.sheet figcaption { font-size: .8rem; overflow-wrap: anywhere; margin-top: .3rem; }
.sheet b { font-variant-numeric: tabular-nums; }
"""


def write_contact_sheet(
    path: Path, index: Index, queries: Sequence[str | os.PathLike[str]], hits: Sequence[Hit]
) -> Path:
    """Write the page and return where it is."""
    return write_page(path, contact_sheet(index, queries, hits))


def contact_sheet(
    index: Index, queries: Sequence[str | os.PathLike[str]], hits: Sequence[Hit]
) -> Html:
    """The page: the queries, then the hits in order, each with its similarity."""
    asked = []
    for query in queries:
        number = index.find(query)
        file = Path(query) if number is None else index.path(number)
        asked.append(_figure(file, tag("span", os.fspath(query))))
    found = [
        _figure(index.path(hit.number), tag("b", f"{hit.similarity:.3f}"), " ", _words(hit))
        for hit in hits
    ]
    many = f"{len(hits)} of {len(index):,} pictures of {index.root}, by {index.model.name}"
    return page(
        f"Nearest to {os.path.basename(os.fspath(queries[0]))}",
        tag("style", Html(STYLE)),
        tag("header", tag("h1", "Nearest pictures"), tag("p", f"{many}.", class_="lead")),
        tag("h2", "Asked for" if len(queries) == 1 else f"Asked for: the mean of {len(queries)}"),
        tag("ul", asked, class_="sheet"),
        tag("h2", "Found"),
        tag("ul", found, class_="sheet") if found else tag("p", "Nothing as similar as that."),
    )


def _words(hit: Hit) -> Html:
    return Html(f"{tag('i', hit.label)}<br>{escape(hit.path)}") if hit.label else escape(hit.path)


def _figure(file: Path, *caption: object) -> Html:
    full = Path(os.path.abspath(file))
    alone = Listing((full.name,), np.zeros(1, dtype=np.int64), ("picture",), root=full.parent)
    shown = thumbnail(alone, 0, SIDE)
    picture = tag("img", src=shown, alt=full.name) if shown else tag("div", "gone", class_="gone")
    return tag("li", tag("figure", picture, tag("figcaption", *caption)))
