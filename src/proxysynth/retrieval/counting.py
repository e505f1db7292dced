"""Ranks of the positives with few positives per query: count what comes before each of them.

A positive j of query i has the rank

    #{g : s(i, g) > s(i, j)}  +  #{g < j : s(i, g) = s(i, j)}

Recall@k needs the rank of the first positive; R-precision and MAP@R need those of the positives
among the first R. So each query keeps a *floor*, the similarity of its last positive that may still
be among the first R. Hardly anything reaches it: what does is measured exactly and placed between
the positives by bisection. As more of the gallery is seen, positives fall behind and the floor
rises. A query that has lost all of them keeps counting for its first alone.

Where the queries are the gallery the similarity matrix is symmetric: a block serves the queries of
its rows and, transposed, those of its columns, so half of the matrix is enough.
"""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from proxysynth.retrieval.ranking import (
    NONE,
    STEP,
    Arrangement,
    Products,
    Progress,
    Ranks,
    ranges,
    round_up,
    threads,
)
from proxysynth.retrieval.similarity import Block, dots, error_bound, nonzero

POSITIVES = 2**22
"""Positives held at once, 20 to 24 bytes each. With more, queries are taken block by block."""

FEW = 1 / 256
"""Of a block, to be measured exactly: with more, look for those that need not be."""

NARROW = 16
"""Positives of a query up to which comparing with all of them is faster than bisection."""

SCATTERED = 1 / 16
"""The part of a block up to which filling single entries is faster than filling by a mask."""

LONGEST_PAUSE = 15
"""Blocks for which a type that was too coarse is skipped, at most."""

EXACT_COST = 2**-14
"""A finer block costs about this times its dimensions and entries, in exact similarities."""


def ranks_by_counting(
    arrangement: Arrangement, side: int, progress: Progress | None = None
) -> Iterator[tuple[slice, Ranks]]:
    """Blocks of the sorted queries, each with the ranks of their positives.

    Args:
        side: rows and columns of a block of the similarity matrix.
    """
    queries, positives = arrangement.queries, arrangement.positives()
    held = int(positives.sum())
    if not held:
        return
    if arrangement.own and held <= POSITIVES:
        yield from _count_half(arrangement, side, progress)
        return
    height = max(STEP, POSITIVES // int(positives.max()) // STEP * STEP)
    height = min(side, round_up(queries.n), height)
    # Few queries at a time leave room for more of the gallery.
    yield from _count_all(arrangement, height, side * side // height // STEP * STEP, progress)


def _count_half(
    arrangement: Arrangement, side: int, progress: Progress | None
) -> Iterator[tuple[slice, Ranks]]:
    """Each pair of blocks once, for the queries of both."""
    rows = arrangement.gallery.blocks(side)
    blocks = _Blocks(arrangement)
    # Round by round every block meets another, itself first: so all counters progress evenly, and
    # threads seldom need the same one.
    n = len(rows)
    pairs = [
        (a, (a + turn) % n)
        for turn in range(n // 2 + 1)
        for a in range(n if 2 * turn < n else n // 2)
    ]

    def see(pair: tuple[int, int]) -> None:
        a, b = pair
        blocks.show(rows[a], rows[b], counters[a].see, counters[b].see if a != b else None)

    with threads(arrangement.gallery.x.device) as map_threads:
        counters = list(map_threads(lambda a: _Counter(arrangement, a), rows))
        for done, _ in enumerate(map_threads(see, pairs), 1):
            if progress is not None:
                progress(done, len(pairs))
    for a, counter in zip(rows, counters, strict=True):
        yield a, counter.ranks()


def _count_all(
    arrangement: Arrangement, height: int, width: int, progress: Progress | None
) -> Iterator[tuple[slice, Ranks]]:
    """All of the gallery for one block of queries after another."""
    rows, columns = arrangement.queries.blocks(height), arrangement.gallery.blocks(width)
    blocks = _Blocks(arrangement)
    with threads(arrangement.gallery.x.device) as map_threads:
        for i, a in enumerate(rows):
            counter = _Counter(arrangement, a)
            show = partial(blocks.show, a, by_rows=counter.see)
            for done, _ in enumerate(map_threads(show, columns), i * len(columns) + 1):
                if progress is not None:
                    progress(done, len(rows) * len(columns))
            yield a, counter.ranks()


# ---- Blocks of the similarity matrix


@dataclass(frozen=True)
class _View:
    """A block as its rows or, transposed, its columns see it.

    Attributes:
        block: the similarities; the least value for pairs of one class and for padding.
        index: (w,) the gallery indices of its columns.
        exact: the similarities at rows and columns, in the order in which the block lies in memory.
        enough: the part of the block that is better measured exactly than computed again, finer.
    """

    block: Block
    index: Tensor
    exact: Callable[[Tensor, Tensor], Tensor]
    enough: float


_See = Callable[[_View], bool]


class _Blocks:
    """Computes blocks as finely as those who see them need."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.queries, self.gallery = arrangement.queries, arrangement.gallery
        self.products = Products(arrangement)
        self.pause: collections.Counter[torch.dtype] = collections.Counter()
        self.wait: collections.Counter[torch.dtype] = collections.Counter()

    def show(self, a: slice, b: slice, by_rows: _See, by_columns: _See | None = None) -> None:
        """Show the block of queries a and gallery b to `by_rows`, and transposed to `by_columns`.

        Each returns whether it could decide by it. If not, it is shown a finer block.
        """
        waiting = {0: by_rows} if by_columns is None else {0: by_rows, 1: by_columns}
        for dtype in self.products.types:
            if dtype != torch.float32 and self.wait[dtype] > 0:
                self.wait[dtype] -= 1
                continue
            views = self._views(a, b, dtype)
            waiting = {way: see for way, see in waiting.items() if not see(views[way])}
            if not waiting:
                self.pause[dtype] = 0
                return
            # A type that is too coarse is skipped for a while, longer every time.
            self.pause[dtype] = min(2 * self.pause[dtype] + 1, LONGEST_PAUSE)
            self.wait[dtype] = self.pause[dtype]

    def _views(self, a: slice, b: slice, dtype: torch.dtype) -> tuple[_View, _View]:
        block = self.products.block(a, b, dtype)
        self._hide(block, a, b)
        x, y = self.queries.x[a], self.gallery.x[b]
        enough = 1.0 if dtype == torch.float32 else x.shape[1] * EXACT_COST
        queries, gallery = self.products.rounded(dtype)
        error = error_bound(gallery.error[b], queries.error[a])
        turned = Block(block.S.T, block.unit, error, block.grain)
        return (
            _View(
                block, self.gallery.index[b], lambda row, column: dots(x, y, row, column), enough
            ),
            _View(
                turned, self.queries.index[a], lambda row, column: dots(x, y, column, row), enough
            ),
        )

    def _hide(self, block: Block, a: slice, b: slice) -> None:
        """The least value for pairs of one class, the query itself among them, and for padding."""
        S, least = block.S, block.least
        rows, columns = self.queries.real(a), self.gallery.real(b)
        mine, theirs = self.queries.label[a][:rows], self.gallery.label[b][:columns]
        if mine[0] <= theirs[-1] and theirs[0] <= mine[-1]:  # both ascend
            start = torch.searchsorted(theirs, mine)
            size = torch.searchsorted(theirs, mine, right=True) - start
            if int(size.sum()) > SCATTERED * S.numel():
                S[:rows, :columns].masked_fill_(mine[:, None] == theirs, least)
            else:
                row, column = ranges(start, size)
                S.view(-1).index_fill_(0, row * S.shape[1] + column, least)
        S[rows:] = least
        S[:, columns:] = least


# ---- Counting


class _Counter:
    """Counts, for a block of b queries, the negatives before each of their at most r positives.

    Attributes:
        t, index: (b, r) similarities and gallery indices of the positives, the nearest first, ties
            by index; -inf where a query has fewer than r.
        count: (b,) R, how many positives the query has.
        live: (b,) the positives m < live may still be among the first R; the others are not.
        hits: (b, r) negatives that come before positive m but not before positive m - 1; right for
            the positives m < live, and for the first.
    """

    def __init__(self, arrangement: Arrangement, rows: slice) -> None:
        queries, gallery = arrangement.queries, arrangement.gallery
        label = queries.label[rows][: queries.real(rows)]
        start, end = arrangement.start[label], arrangement.start[label + 1]
        row, place = ranges(start, end - start)
        if arrangement.own:
            others = gallery.index[place] != queries.index[rows][row]
            row, place = row[others], place[others]
        self.count = torch.bincount(row, minlength=rows.stop - rows.start)
        m = torch.arange(len(row), device=row.device) - (self.count.cumsum(0) - self.count)[row]
        t = queries.x.new_full((len(self.count), int(self.count.max())), -torch.inf)
        index = queries.index.new_full(t.shape, -1)
        t[row, m] = dots(queries.x[rows], gallery.x, row, place)
        index[row, m] = gallery.index[place]
        self.t, order = t.sort(dim=1, descending=True, stable=True)
        self.index = index.gather(1, order)
        self.live = self.count.clone()
        self.hits = torch.zeros_like(self.index)
        self.fresh = True
        self.lock = threading.Lock()

    def ranks(self) -> Ranks:
        if not self.t.shape[1]:
            return Ranks(*torch.zeros(3, len(self.count), dtype=torch.int64).to(self.t.device))
        m = torch.arange(self.t.shape[1], device=self.t.device)
        ranks = self.hits.cumsum(1) + m
        # The m-th positive, from 0, is the (m + 1)-th right one among the first rank + 1.
        share = ((m + 1) / (ranks + 1).double()).masked_fill_(m >= self.live[:, None], 0)
        return Ranks(ranks[:, 0], self.live, share.cumsum(1)[:, -1])

    def see(self, view: _View) -> bool:
        """Count a block of the similarity matrix; False if it is too coarse, and nothing is."""
        if not self.t.shape[1]:
            return True
        block = view.block
        with self.lock:  # blocks come from several threads
            if self.fresh:
                self._drop_hopeless(block)
                self.fresh = False
            followed = self.live.clamp(min=1).minimum(self.count)
            floor = self.t.gather(1, (followed - 1).clamp_(min=0)[:, None])
            floor.masked_fill_(followed[:, None] == 0, NONE)
            near = block.reaching(floor)
            if _total(near) > FEW * near.numel():
                # What certainly comes before the one positive that is left need not be measured.
                lost = (self.live == 0) & (self.count > 0)
                above = block.above(torch.where(lost[:, None], floor, NONE))
                near ^= above
                if _total(near) > view.enough * near.numel():
                    return False
                self.hits[:, 0] += _row_sums(above)
            row, column = nonzero(near)
            if len(row):
                self._add(row, view.exact(row, column), view.index[column], followed)
            return True

    def _drop_hopeless(self, block: Block) -> None:
        """Bisect for the positives that R or more come before in the first block alone."""
        low, high = torch.zeros_like(self.live), self.live
        for _ in range(self.t.shape[1].bit_length()):
            m = (low + high) // 2
            t = self.t.gather(1, m.clamp(max=self.t.shape[1] - 1)[:, None])
            before = _row_sums(block.above(t))
            hopeless = (m < high) & (m + before >= self.count)
            hopeful = (m < high) & ~hopeless
            low, high = torch.where(hopeful, m + 1, low), torch.where(hopeless, m, high)
        self.live = low

    def _add(self, row: Tensor, s: Tensor, index: Tensor, followed: Tensor) -> None:
        """Place negatives between the positives that are followed, and raise the floor.

        Args:
            row: (p,) the query,
            s: (p,) the similarity to it,
            index: (p,) the gallery index.
            followed: (b,) how many positives of each query are.
        """
        m = self._place(row, s, index, followed[row])
        kept = m < followed[row]
        at = row[kept] * self.t.shape[1] + m[kept]
        self.hits.view(-1).scatter_add_(0, at, torch.ones_like(at))
        widest = int(self.live.max())
        ranks = self.hits[:, :widest].cumsum(1)
        ranks += torch.arange(widest, device=ranks.device)
        self.live = self.live.minimum((ranks < self.count[:, None]).sum(1))

    def _place(self, row: Tensor, s: Tensor, index: Tensor, length: Tensor) -> Tensor:
        """(p,) how many of the first `length` positives come before."""
        t, j = self.t.view(-1), self.index.view(-1)
        base = row * self.t.shape[1]
        if self.t.shape[1] <= NARROW:
            m = (self.t.index_select(0, row) > s[:, None]).sum(1).minimum(length)
        else:
            m = _bisect(length, base, lambda at: t[at] > s)
        # Few are tied with a positive; only for those the indices are compared.
        tied = (t[base + m.minimum(length - 1)] == s).nonzero().squeeze(1)
        if len(tied):
            s, index = s[tied], index[tied]
            m[tied] = _bisect(
                length[tied],
                base[tied],
                lambda at: (t[at] > s) | ((t[at] == s) & (j[at] < index)),
            )
        return m


def _bisect(length: Tensor, base: Tensor, before: Callable[[Tensor], Tensor]) -> Tensor:
    """How many of the `length` entries from `base` on come before; those that do are the first."""
    m, last = torch.zeros_like(length), base - 1
    for bit in reversed(range(int(length.max()).bit_length())):
        further = m + (1 << bit)
        inside = further <= length
        m = torch.where(inside & before(last + further.minimum(length)), further, m)
    return m


def _total(flags: Tensor) -> int:
    return int(np.count_nonzero(flags.numpy()) if flags.device.type == "cpu" else flags.sum())


def _row_sums(flags: Tensor) -> Tensor:
    if flags.device.type != "cpu":
        return flags.sum(1)
    return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))
