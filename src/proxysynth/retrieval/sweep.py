"""The walk over the blocks of the similarity matrix, which is never held as a whole.

Where the queries are the gallery the matrix is symmetric: a block serves the queries of its rows
and, transposed, those of its columns, so that half of the matrix is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from proxysynth.retrieval.counting import Counter
from proxysynth.retrieval.positives import find_positives
from proxysynth.retrieval.product import Product
from proxysynth.retrieval.shelf import STEP, Shelves, up
from proxysynth.retrieval.workers import workers

POSITIVES = 2**22
"""Positives held at once, 20 to 24 bytes each. With more, queries are taken block by block."""

Progress = Callable[[int, int], None]
"""Called with the number of blocks done and of all blocks."""


def sweep(
    shelves: Shelves, side: int, progress: Progress | None = None
) -> Iterator[tuple[slice, Counter]]:
    """Runs of rows on the queries' shelf, each with its Counter that has seen all the gallery."""
    queries = shelves.queries
    positives = shelves.positives(queries.klass[: queries.n])
    held = int(positives.sum())
    if not held:
        return iter(())
    if shelves.own and held <= POSITIVES:
        return _sweep_half(shelves, side, progress)
    height = min(side, up(queries.n), max(STEP, POSITIVES // int(positives.max()) // STEP * STEP))
    # Few queries at a time leave room for more of the gallery.
    return _sweep_all(shelves, height, side * side // height // STEP * STEP, progress)


def _sweep_half(
    shelves: Shelves, side: int, progress: Progress | None
) -> Iterator[tuple[slice, Counter]]:
    """Each pair of blocks once, for both."""
    shelf = shelves.gallery
    rows = shelf.blocks(side)
    product = Product(shelf, shelf)
    # Round by round every block meets another, itself first: so all counters learn evenly, and
    # threads at work side by side seldom want the same one.
    n = len(rows)
    pairs = [
        (a, (a + turn) % n)
        for turn in range(n // 2 + 1)
        for a in range(n if 2 * turn < n else n // 2)
    ]

    def see(pair: tuple[int, int]) -> None:
        a, b = pair
        product.show(rows[a], rows[b], counters[a].see, counters[b].see if a != b else None)

    with workers(shelf.x.device) as spread:
        counters = list(spread(lambda a: Counter(find_positives(shelves, a)), rows))
        for done, _ in enumerate(spread(see, pairs), 1):
            if progress is not None:
                progress(done, len(pairs))
    yield from zip(rows, counters, strict=True)


def _sweep_all(
    shelves: Shelves, height: int, width: int, progress: Progress | None
) -> Iterator[tuple[slice, Counter]]:
    """All of the gallery for one block of queries after another."""
    rows, columns = shelves.queries.blocks(height), shelves.gallery.blocks(width)
    product = Product(shelves.queries, shelves.gallery)

    with workers(shelves.gallery.x.device) as spread:
        for i, a in enumerate(rows):
            counter = Counter(find_positives(shelves, a))
            show = partial(product.show, a, by_rows=counter.see)
            for done, _ in enumerate(spread(show, columns), i * len(columns) + 1):
                if progress is not None:
                    progress(done, len(rows) * len(columns))
            yield a, counter
