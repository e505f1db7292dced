"""Exact ranks of the positives of every query, by counting or by sorting. Both give the same ranks.

Recall@k, R-precision and MAP@R need, of a query with R positives, only the rank of its first
positive and those of the positives among the R nearest.

*By counting*, with few positives per query. A positive j of query i has the rank

    #{g : s(i, g) > s(i, j)}  +  #{g < j : s(i, g) = s(i, j)}

Each query keeps a *floor*, the similarity of its last positive that may still be among the first R.
Hardly anything reaches it: what does is measured exactly and placed between the positives by
bisection. As more of the gallery is seen, positives fall behind and the floor rises. A query that
has lost all of them keeps counting for its first alone. Where the queries are the gallery the
similarity matrix is symmetric: a block serves the queries of its rows and, transposed, those of its
columns, so half of the matrix is enough.

*By sorting*, with many positives per query. A threshold estimated from a sample of each row picks
little more than the R nearest; these are sorted by exact similarities, which also confirm that
nothing was missed.

A block of similarities is a matrix product, whose rounding depends on its shape. It only rules out
what cannot matter, by a bound on its error; exact values of chosen pairs (`dots`) decide.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proxysynth.retrieval.knn import (
    Sets,
    dots,
    flat_nonzero,
    nonzero,
    normalize_rows_,
    summation_error,
)

STEP = 16  # sides of blocks are multiples of this
MANY = 32  # positives per query, on average, from which sorting is faster than counting
NONE, ALL = 64.0, -64.0  # thresholds that no similarity reaches, and that every one does


class PositiveRanks(NamedTuple):
    """What the metrics need of the ranks of b queries, (b,) each."""

    first: Tensor  # the rank, from 0, of the nearest positive
    right: Tensor  # positives among the R nearest
    gain: Tensor  # the sum, over those positives, of the precision at their rank


def ranks(arrangement: Arrangement, side: int) -> PositiveRanks:
    """The ranks of the positives of all sorted queries; meaningless for those without positives.
    `side`, a multiple of STEP, is that of a block of the similarity matrix."""
    x, positives = arrangement.queries.x, int(arrangement.positives().sum())
    # Similarities in float64 are too long for the keys by which candidates are sorted.
    # With more than 128 dimensions products take longest, and counting needs half as many.
    least = MANY * max(1, x.shape[1] / 128)
    many = x.dtype == torch.float32 and positives >= least * arrangement.queries.n
    parts = (_Sorting if many else _Counting)(arrangement).ranks(side)
    return PositiveRanks(*map(torch.cat, zip(*parts, strict=True)))


# ---- Rows in class order


@dataclass(frozen=True)
class SortedRows:
    """Unit rows, one class after another, padded with zeros to a multiple of STEP."""

    x: Tensor  # (n + padding, d)
    label: Tensor  # (n + padding,) the position of the row's class, ascending; -1 for padding
    index: Tensor  # (n + padding,) the row's index in the user's matrix; -1 for padding
    n: int  # the number of rows without padding

    @classmethod
    def of(cls, x: Tensor, label: Tensor, index: Tensor) -> SortedRows:
        """The rows `index` of `x`, sorted by `label`."""
        label, order = torch.sort(label, stable=True)  # stable: by index within a class
        index = index[order]
        n, rows = len(index), round_up(len(index))
        sorted_x = x.new_zeros(rows, x.shape[1])
        torch.index_select(x, 0, index, out=sorted_x[:n])
        normalize_rows_(sorted_x[:n])
        pad = index.new_full((rows - n,), -1)
        return cls(sorted_x, torch.cat([label, pad]), torch.cat([index, pad]), n)

    def blocks(self, side: int) -> list[slice]:
        """All rows in blocks of `side`, a multiple of STEP; the last may include padding."""
        end = len(self.x)
        return [slice(at, min(at + side, end)) for at in range(0, end, side)]

    def __getitem__(self, rows: slice) -> SortedRows:
        real = min(rows.stop, self.n) - rows.start
        return SortedRows(self.x[rows], self.label[rows], self.index[rows], real)


def round_up(n: int) -> int:
    return -(-n // STEP) * STEP


class Arrangement:
    """Queries and gallery in one order of the classes, small classes first.

    The positives of a query are then adjacent, and neighboring queries have similarly many.
    """

    def __init__(self, sets: Sets) -> None:
        x, y, g, gy, self.own = sets
        labels, which, size = torch.unique(gy, return_inverse=True, return_counts=True)
        at = torch.searchsorted(labels, y).clamp_(max=len(labels) - 1)
        asked = (labels[at] == y).nonzero().squeeze(1)  # whose class is in the gallery
        by_size = torch.argsort(size, stable=True)
        place = torch.argsort(by_size)
        # (c + 1,) where each class begins in the gallery.
        self.start = torch.cat([size.new_zeros(1), size[by_size].cumsum(0)])
        self.gallery = SortedRows.of(g, place[which], torch.arange(len(gy), device=y.device))
        self.queries = self.gallery if self.own else SortedRows.of(x, place[at[asked]], asked)
        # A bound on the difference between a product and `dots`.
        self.error = 2 * summation_error(g.shape[1], g.dtype)
        self._buffers = threading.local()

    def positives(self, rows: slice = slice(None)) -> Tensor:
        """How many positives each of these queries has; 0 for padding."""
        label = self.queries.label[rows]
        size = self.start[label + 1] - self.start[label] - int(self.own)
        return size.masked_fill(label < 0, 0)

    def positive_pairs(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """The positives of the queries `at`: which of these, and the row of the gallery."""
        label = self.queries.label[at]
        start, size = self.start[label], self.start[label + 1] - self.start[label]
        row, place = ranges(start, size.masked_fill_(label < 0, 0))
        if self.own:
            others = place != at[row]
            row, place = row[others], place[others]
        return row, place

    def block(self, rows: slice, columns: slice) -> Block:
        """Similarities in memory of this thread, which the next block of the thread overwrites."""
        size = rows.stop - rows.start, columns.stop - columns.start
        n = size[0] * size[1]
        if getattr(self._buffers, "size", 0) < n:
            self._buffers.size = n
            self._buffers.S = self.gallery.x.new_empty(n)
        S = self._buffers.S[:n].view(size)
        torch.mm(self.queries.x[rows], self.gallery.x[columns].T, out=S)
        return Block(S, self.error)


class Block(NamedTuple):
    """Similarities of b queries to w rows of the gallery, up to an error."""

    S: Tensor  # (b, w); -inf for pairs that do not count
    error: float

    def reaching(self, t: Tensor) -> Tensor:
        """Where a similarity may be >= t; elsewhere it is certainly less. t is (b, 1)."""
        return _compared(operator.ge, self.S, t - self.error)

    def above(self, t: Tensor) -> Tensor:
        """Where a similarity is certainly > t. t is (b, 1)."""
        return _compared(operator.gt, self.S, t + self.error)


def _compared(compare: Callable[[Any, Any], Any], S: Tensor, t: Tensor) -> Tensor:
    if t.device.type != "cpu":
        return compare(S, t)
    return torch.from_numpy(compare(S.numpy(), t.numpy()))  # several times as fast as torch


def ranges(start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """The integers from start[i] on, size[i] of them, for every i; and, first, the i of each."""
    i = torch.arange(len(size), device=size.device).repeat_interleave(size)
    step = torch.arange(len(i), device=size.device) - (size.cumsum(0) - size)[i]
    return i, start[i] + step


Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

MOST_THREADS = 16  # with more Python itself becomes the bottleneck


@contextmanager
def threads(device: torch.device) -> Iterator[Map]:
    """A `map` over as many threads as torch uses, each computing on one core.

    torch by itself splits every operation over the cores and waits for the slowest, thousands of
    times. Here every core takes a whole block. Calls may run at the same time and in any order;
    results come in order. The plain `map` with one thread, or off the CPU.
    """
    number = torch.get_num_threads()
    if device.type != "cpu" or number == 1:
        yield map
        return
    most = min(number, MOST_THREADS)
    pool = ThreadPoolExecutor(most, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(number)


# ---- Counting

POSITIVES = 2**22  # held at once, 20 to 24 bytes each; with more, queries go block by block
FEW = 1 / 256  # of a block, to be measured exactly: with more, look for those that need not be


class _Counting:
    """Shows blocks of the similarity matrix to the counters of queries."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.queries, self.gallery = arrangement.queries, arrangement.gallery

    def ranks(self, side: int) -> Iterator[PositiveRanks]:
        positives = self.arrangement.positives()
        if self.arrangement.own and int(positives.sum()) <= POSITIVES:
            return self._half(side)
        height = max(STEP, POSITIVES // int(positives.max()) // STEP * STEP)
        height = min(side, len(self.queries.x), height)
        # Few queries at a time leave room for more of the gallery.
        return self._all(height, side * side // height // STEP * STEP)

    def _half(self, side: int) -> Iterator[PositiveRanks]:
        """Each pair of blocks once, for the queries of both."""
        rows = self.gallery.blocks(side)
        # Round by round every block meets another, itself first: so all counters progress evenly,
        # and threads seldom need the same one.
        n = len(rows)
        pairs = [
            (a, (a + turn) % n)
            for turn in range(n // 2 + 1)
            for a in range(n if 2 * turn < n else n // 2)
        ]

        def show(pair: tuple[int, int]) -> None:
            a, b = pair
            self._show(rows[a], [counters[each] for each in dict.fromkeys(pair)], rows[b])

        with threads(self.gallery.x.device) as map_threads:
            counters = list(map_threads(partial(_Counter, self.arrangement), rows))
            list(map_threads(show, pairs))
        yield from (counter.ranks() for counter in counters)

    def _all(self, height: int, width: int) -> Iterator[PositiveRanks]:
        """All of the gallery for one block of queries after another."""
        columns = self.gallery.blocks(width)
        with threads(self.gallery.x.device) as map_threads:
            for rows in self.queries.blocks(height):
                counter = _Counter(self.arrangement, rows)
                list(map_threads(partial(self._show, rows, [counter]), columns))
                yield counter.ranks()

    def _show(self, a: slice, counters: list[_Counter], b: slice) -> None:
        """Show the block of queries a and gallery b to a counter, transposed to a second one."""
        rows, columns = self.queries[a], self.gallery[b]
        block = self.arrangement.block(a, b)
        _hide_positives(block.S, rows, columns)
        counters[0].see(block, columns)
        if len(counters) > 1:
            counters[1].see(Block(block.S.T, block.error), rows)


def _hide_positives(S: Tensor, rows: SortedRows, columns: SortedRows) -> None:
    """-inf for pairs of one class, the query itself among them, and for padding."""
    mine, theirs = rows.label[: rows.n], columns.label[: columns.n]
    if mine[0] <= theirs[-1] and theirs[0] <= mine[-1]:  # both ascend
        start = torch.searchsorted(theirs, mine)
        row, column = ranges(start, torch.searchsorted(theirs, mine, right=True) - start)
        S.view(-1).index_fill_(0, row * S.shape[1] + column, -torch.inf)
    S[rows.n :] = -torch.inf
    S[:, columns.n :] = -torch.inf


class _Counter:
    """Counts, for a block of b queries, the negatives before each of their at most r positives."""

    def __init__(self, arrangement: Arrangement, rows: slice) -> None:
        gallery, self.x = arrangement.gallery, arrangement.queries.x[rows]
        at = torch.arange(rows.start, rows.stop, device=gallery.index.device)
        row, place = arrangement.positive_pairs(at)
        # (b,) R, how many positives the query has.
        self.count = torch.bincount(row, minlength=len(self.x))
        # (b, r) similarities and gallery indices of the positives, the nearest first, ties by
        # index; -inf where a query has fewer than r.
        t = _side_by_side(dots(self.x, gallery.x, row, place), row, self.count, -torch.inf)
        self.t, order = t.sort(dim=1, descending=True, stable=True)
        self.index = _side_by_side(gallery.index[place], row, self.count, -1).gather(1, order)
        # (b,) the positives m < live may still be among the first R; the others are not.
        self.live = self.count.clone()
        # (b, r) negatives that come before positive m but not before positive m - 1; right for the
        # positives m < live, and for the first.
        self.hits = torch.zeros_like(self.index)
        self.fresh = True
        self.lock = threading.Lock()

    def ranks(self) -> PositiveRanks:
        m = torch.arange(self.t.shape[1], device=self.t.device)
        rank = self.hits.cumsum(1) + m
        # The m-th positive, from 0, is the (m + 1)-th right one among the first rank + 1.
        share = ((m + 1) / (rank + 1).double()).masked_fill_(m >= self.live[:, None], 0)
        return PositiveRanks(rank[:, 0], self.live, share.cumsum(1)[:, -1])

    def see(self, block: Block, others: SortedRows) -> None:
        """Count a block of similarities to others."""
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
                self.hits[:, 0] += _row_sums(above)
            row, column = nonzero(near)  # in the order in which the block lies in memory
            if not len(row):
                return
            if near.is_contiguous():
                s = dots(self.x, others.x, row, column)
            else:
                s = dots(others.x, self.x, column, row)
            self._add(row, s, others.index[column], followed)

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
        """Place each negative (query, similarity, gallery index) among the first `followed`
        positives of its query, count it, and raise the floor."""
        length, t, j = followed[row], self.t.view(-1), self.index.view(-1)
        # (p,) how many of the first `length` positives come before, by bisection.
        m, last = torch.zeros_like(row), row * self.t.shape[1] - 1
        for bit in reversed(range(int(length.max()).bit_length())):
            further = m + (1 << bit)
            at = last + further.minimum(length)
            before = (t[at] > s) | ((t[at] == s) & (j[at] < index))
            m = torch.where((further <= length) & before, further, m)
        kept = m < length
        at = row[kept] * self.t.shape[1] + m[kept]
        self.hits.view(-1).scatter_add_(0, at, torch.ones_like(at))
        widest = int(self.live.max())
        rank = self.hits[:, :widest].cumsum(1)
        rank += torch.arange(widest, device=rank.device)
        self.live = self.live.minimum((rank < self.count[:, None]).sum(1))


def _total(flags: Tensor) -> int:
    return int(np.count_nonzero(flags.numpy()) if flags.device.type == "cpu" else flags.sum())


def _row_sums(flags: Tensor) -> Tensor:
    if flags.device.type != "cpu":
        return flags.sum(1)
    return torch.from_numpy(np.count_nonzero(flags.numpy(), axis=1))


def _side_by_side(values: Tensor, row: Tensor, count: Tensor, pad: float) -> Tensor:
    """(b, w) the values of each row, by ascending row with `count` each; w is at least 1."""
    b, width = len(count), max(1, int(count.max()))
    offset = torch.arange(0, b * width, width, device=row.device) - (count.cumsum(0) - count)
    place = torch.arange(len(row), device=row.device) + offset.index_select(0, row)
    return values.new_full((b * width,), pad).scatter_(0, place, values).view(b, width)


# ---- Sorting

CELLS = 2**23  # similarities held at once by each thread
STRIDE = 16  # one in this many columns is sampled to estimate the threshold of a row
MARGIN = 2.0  # standard deviations of the sample by which the threshold is lowered


class _Sorting:
    """Ranks blocks of queries, possibly in several threads."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.queries, self.gallery = arrangement.queries, arrangement.gallery
        # The lower half of a sort key: ties go to the lower index, positives are odd.
        self.low_key = (len(self.gallery.x) - self.gallery.index) << 1

    def ranks(self, side: int) -> Iterator[PositiveRanks]:
        height = min(side, max(STEP, CELLS // len(self.gallery.x) // STEP * STEP))
        with threads(self.gallery.x.device) as map_threads:
            yield from map_threads(self._ranks, self.queries.blocks(height))

    def _ranks(self, rows: slice) -> PositiveRanks:
        R = self.arrangement.positives(rows)
        block = self.arrangement.block(rows, slice(0, len(self.gallery.x)))
        block.S[:, self.gallery.n :] = -torch.inf
        if self.arrangement.own:
            block.S.diagonal(rows.start).fill_(-torch.inf)
        t = _threshold(block.S, R)
        row, column = nonzero(block.reaching(t))
        at = torch.arange(rows.start, rows.stop, device=R.device)
        sift = block if len(row) < 2 * int(R.sum()) else None
        ranks, last, nearest = self._sort(at, R, row, column, sift)
        again = ((last.minimum(nearest) < t.squeeze(1)) & (R > 0)).nonzero().squeeze(1)
        if len(again):
            at, R, t = at[again], R[again], last[again]
            block = Block(block.S[again], block.error)
            row, column = self.arrangement.positive_pairs(at)
            s = dots(self.queries.x[at], self.gallery.x, row, column)
            t = t.minimum(torch.full_like(t, ALL).scatter_reduce_(0, row, s, "amax"))
            row, column = nonzero(block.reaching(t[:, None]))
            second, *_ = self._sort(at, R, row, column)
            for all_rows, some in zip(ranks, second, strict=True):
                all_rows[again] = some
        return ranks

    def _sort(
        self, at: Tensor, R: Tensor, row: Tensor, column: Tensor, sift: Block | None = None
    ) -> tuple[PositiveRanks, Tensor, Tensor]:
        """Ranks of the queries `at`, with R positives each, among candidates by ascending row.

        Also returns the similarities of the R-th candidate and of the first positive, down to which
        the candidates must be complete. With their block as `sift`, only those are sorted that it
        leaves open.
        """
        b, lead = len(at), torch.zeros_like(R)
        label = self.queries.label[at]
        start, stop = self.arrangement.start[label], self.arrangement.start[label + 1]
        positive = column >= start.index_select(0, row)
        positive &= column < stop.index_select(0, row)
        if sift is not None:
            certain, open_ = _sift(sift, R, row, column, positive)
            lead = torch.bincount(row.index_select(0, certain), minlength=b)
            row, column, positive = (
                each.index_select(0, open_) for each in (row, column, positive)
            )
        key = _to_key(dots(self.queries.x[at], self.gallery.x, row, column))
        key |= self.low_key.index_select(0, column)
        key |= positive
        count = torch.bincount(row, minlength=b)
        keys = _sort_descending(_side_by_side(key, row, count, torch.iinfo(torch.int64).min))
        width = keys.shape[1]

        flags = (keys & 1).bool()
        found, first = flags.max(1)
        nearest = _to_value(keys.gather(1, first[:, None])).squeeze(1)
        nearest.masked_fill_(~found, ALL).masked_fill_(lead > 0, NONE)
        first.masked_fill_(lead > 0, 0)
        others = R - lead
        last = _to_value(keys.gather(1, (others - 1).clamp(0, width - 1)[:, None])).squeeze(1)
        last.masked_fill_(count < others, ALL).masked_fill_(others == 0, NONE)

        flags &= torch.arange(width, device=row.device) < others[:, None]
        row, rank = nonzero(flags)
        right = torch.bincount(row, minlength=b)
        before = lead.index_select(0, row)
        # The m-th positive is the m-th right one among the first rank + 1.
        m = torch.arange(1, len(row) + 1, device=row.device)
        m += (lead + right - right.cumsum(0)).index_select(0, row)
        gain = lead.double().scatter_add_(0, row, m / (rank + before + 1).double())
        return PositiveRanks(first, right + lead, gain), last, nearest


def _threshold(S: Tensor, R: Tensor) -> Tensor:
    """(b, 1) a similarity that probably a little more than R of each row reach."""
    sample = _sort_descending(S[:, ::STRIDE].contiguous())
    expected = R / STRIDE
    place = (expected + MARGIN * expected.sqrt()).ceil().long().clamp_(0, sample.shape[1] - 1)
    t = sample.gather(1, place[:, None]).clamp_(min=ALL)
    return t.masked_fill_(R[:, None] == 0, NONE)


def _sift(
    block: Block, R: Tensor, row: Tensor, column: Tensor, positive: Tensor
) -> tuple[Tensor, Tensor]:
    """Which candidates are positives certainly before all negatives, and which others are left.

    Those that are certainly behind the R nearest are dropped.
    """
    s = block.S.view(-1).index_select(0, row * block.S.shape[1] + column)
    count = torch.bincount(row, minlength=len(R))
    ordered = _sort_descending(_side_by_side(s, row, count, -torch.inf))
    last = ordered.gather(1, (R - 1).clamp(0, ordered.shape[1] - 1)[:, None]).squeeze(1)
    highest = torch.full_like(last, -torch.inf)
    highest.scatter_reduce_(0, row, s.masked_fill(positive, -torch.inf), "amax")
    near = s >= (last - 2 * block.error).index_select(0, row)
    certain = positive & (s > (highest + 2 * block.error).index_select(0, row))
    return flat_nonzero(certain), flat_nonzero(near & ~certain)


def _to_key(s: Tensor) -> Tensor:
    """float32 as int64 of the same order, whose lower 32 bits are free."""
    bits = s.view(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32


def _to_value(key: Tensor) -> Tensor:
    bits = (key >> 32).to(torch.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)


def _sort_descending(keys: Tensor) -> Tensor:
    if keys.device.type != "cpu":
        return keys.sort(dim=1, descending=True).values
    ascending = np.sort(keys.numpy(), axis=1)  # several times as fast as torch
    return torch.from_numpy(ascending[:, ::-1].copy())
