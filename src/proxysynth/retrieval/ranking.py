"""Ranks of the positives with many positives per query: select the top of each row and sort it.

Recall@k, R-precision and MAP@R need, of a query with R positives, only the R nearest and the rank
of its first positive. A coarse product and a threshold estimated from a sample of each row pick
little more than these; exact similarities then decide, and confirm that nothing was missed.

With few positives per query, `counting` is faster. Both give the same ranks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from proxysynth.retrieval.similarity import (
    Block,
    Rounded,
    dots,
    fast_types,
    nonzero,
    rounded,
    unit,
)

STEP = 16
"""Sides of blocks are multiples of this."""

Progress = Callable[[int, int], None]
"""Called with the number of blocks done and the number of all blocks."""

# ---- Rows in class order


@dataclass(frozen=True)
class SortedRows:
    """Unit rows, one class after another, padded with zeros to a multiple of STEP.

    Attributes:
        x: (n + padding, d).
        label: (n + padding,) the position of the row's class, ascending; -1 for padding.
        index: (n + padding,) the row's index in the user's matrix; -1 for padding.
        n: the number of rows without padding.
    """

    x: Tensor
    label: Tensor
    index: Tensor
    n: int

    @classmethod
    def of(cls, x: Tensor, label: Tensor, index: Tensor) -> SortedRows:
        """The rows `index` of `x`, sorted by `label`."""
        label, order = torch.sort(label, stable=True)  # stable: by index within a class
        index = index[order]
        n, rows = len(index), round_up(len(index))
        sorted_x = x.new_zeros(rows, x.shape[1])
        torch.index_select(x, 0, index, out=sorted_x[:n])
        unit(sorted_x[:n])
        pad = index.new_full((rows - n,), -1)
        return cls(sorted_x, torch.cat([label, pad]), torch.cat([index, pad]), n)

    def blocks(self, side: int) -> list[slice]:
        """All rows in blocks of `side`, a multiple of STEP; the last may include padding."""
        end = round_up(self.n)
        return [slice(at, min(at + side, end)) for at in range(0, end, side)]

    def real(self, rows: slice) -> int:
        """How many of these rows are not padding."""
        return min(rows.stop, self.n) - rows.start


def round_up(n: int) -> int:
    """n rounded up to a multiple of STEP."""
    return -(-n // STEP) * STEP


@dataclass(frozen=True)
class Arrangement:
    """Queries and gallery in one order of the classes, small classes first.

    The positives of a query are then adjacent, and neighboring queries have similarly many.

    Attributes:
        queries: those whose class is in the gallery; the gallery itself when `own`.
        gallery: all of it.
        start: (c + 1,) where each class begins in the gallery.
        own: whether the queries are the gallery, so that none may retrieve itself.
    """

    queries: SortedRows
    gallery: SortedRows
    start: Tensor
    own: bool

    @classmethod
    def of(
        cls, x: Tensor, y: Tensor, gallery: Tensor | None, gallery_y: Tensor | None
    ) -> Arrangement:
        own = gallery is None or gallery_y is None
        g, gy = (x, y) if gallery is None or gallery_y is None else (gallery, gallery_y)
        labels, which, size = torch.unique(gy, return_inverse=True, return_counts=True)
        at = torch.searchsorted(labels, y).clamp_(max=len(labels) - 1)
        asked = (labels[at] == y).nonzero().squeeze(1)
        by_size = torch.argsort(size, stable=True)
        place = torch.empty_like(by_size)
        place[by_size] = torch.arange(len(size), device=y.device)
        start = torch.cat([size.new_zeros(1), size[by_size].cumsum(0)])
        rows = SortedRows.of(g, place[which], torch.arange(len(gy), device=y.device))
        queries = rows if own else SortedRows.of(x, place[at[asked]], asked)
        return cls(queries, rows, start, own)

    def positives(self, rows: slice | None = None) -> Tensor:
        """How many positives each of these queries has; 0 for padding."""
        label = self.queries.label if rows is None else self.queries.label[rows]
        size = self.start[label + 1] - self.start[label] - int(self.own)
        return size.masked_fill(label < 0, 0)


def ranges(start: Tensor, size: Tensor) -> tuple[Tensor, Tensor]:
    """The integers from start[i] on, size[i] of them, for every i; and, first, the i of each."""
    i = torch.arange(len(size), device=size.device).repeat_interleave(size)
    step = torch.arange(len(i), device=size.device) - (size.cumsum(0) - size)[i]
    return i, start[i] + step


class Ranks(NamedTuple):
    """What the metrics need of the ranks of b queries.

    Attributes:
        first: (b,) the rank, from 0, of the nearest positive.
        right: (b,) positives among the R nearest.
        gain: (b,) the sum, over those positives, of the precision at their rank.
    """

    first: Tensor
    right: Tensor
    gain: Tensor


class Products:
    """Blocks of similarities of queries and gallery, in any of the fast types."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.queries, self.gallery = arrangement.queries, arrangement.gallery
        self.types = fast_types(self.gallery.x.device, self.gallery.x.shape[1])
        self._rounded: dict[torch.dtype, tuple[Rounded, Rounded]] = {}
        self._buffers, self._lock = threading.local(), threading.Lock()

    def rounded(self, dtype: torch.dtype) -> tuple[Rounded, Rounded]:
        """Queries and gallery in this type, computed when first used."""
        with self._lock:
            if dtype not in self._rounded:
                gallery = rounded(self.gallery.x, dtype)
                own = self.queries is self.gallery
                self._rounded[dtype] = gallery if own else rounded(self.queries.x, dtype), gallery
            return self._rounded[dtype]

    def block(self, rows: slice, columns: slice, dtype: torch.dtype) -> Block:
        """In memory of this thread, which the next block of the thread overwrites."""
        size = rows.stop - rows.start, columns.stop - columns.start
        n = size[0] * size[1]
        if getattr(self._buffers, "size", 0) < n:
            self._buffers.size = n
            self._buffers.both = torch.empty(2, n, device=self.gallery.x.device)
        S, spare = (buffer[:n].view(size) for buffer in self._buffers.both)
        queries, gallery = self.rounded(dtype)
        return Block.of(queries[rows], gallery[columns], S, spare)


# ---- Threads

Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

MOST_THREADS = 16
"""With more threads Python itself becomes the bottleneck."""


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
    pool = ThreadPoolExecutor(
        min(number, MOST_THREADS), initializer=torch.set_num_threads, initargs=(1,)
    )
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(number)


# ---- Selection

CELLS = 2**21
"""Similarities held at once, by each thread."""

STRIDE = 16
"""One in this many columns is sampled to estimate the threshold of a row."""

MARGIN = 2.0
"""Standard deviations of the sample by which the threshold is lowered."""

NONE, ALL = 64.0, -64.0
"""Thresholds that no similarity and every similarity reaches, however coarse the product."""

TOO_COARSE = 1 / 32
"""Candidates in vain, as a fraction of a row, above which a finer product is faster."""


def ranks_by_selection(
    arrangement: Arrangement, side: int, progress: Progress | None = None
) -> Iterator[tuple[slice, Ranks]]:
    """Blocks of the sorted queries, each with the ranks of their positives; float32 only.

    Args:
        side: the most queries of a block.
    """
    gallery = arrangement.gallery
    height = min(side, max(STEP, CELLS // len(gallery.x) // STEP * STEP))
    blocks = arrangement.queries.blocks(height)
    selection = _Selection(arrangement)
    with threads(gallery.x.device) as map_blocks:
        found = zip(blocks, map_blocks(selection.ranks, blocks), strict=True)
        for done, (rows, ranks) in enumerate(found, 1):
            yield rows, ranks
            if progress is not None:
                progress(done, len(blocks))


class _Selection:
    """Ranks blocks of queries, possibly in several threads."""

    def __init__(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self.queries, self.gallery = arrangement.queries, arrangement.gallery
        self.products = Products(arrangement)
        self.types = self.products.types
        # The lower half of a sort key: ties go to the lower index, positives are odd.
        self.low_key = (len(self.gallery.x) - self.gallery.index) << 1

    def ranks(self, rows: slice) -> Ranks:
        """The ranks of the positives of these queries."""
        R = self.arrangement.positives(rows)
        types = self.types
        for finer, dtype in enumerate(types, 1):
            block = self._block(rows, dtype)
            t = _threshold(block, R)
            row, column = nonzero(block.reaching(t))
            in_vain = len(row) - 1.5 * int(R.sum())
            if finer == len(types) or in_vain <= TOO_COARSE * block.S.numel():
                break
            self.types = types[finer:]  # neighboring queries are alike
        at = torch.arange(rows.start, rows.stop, device=R.device)
        sift = block if len(row) < 2 * int(R.sum()) else None
        ranks, last, nearest = self._sort(at, R, row, column, sift)
        again = ((last.minimum(nearest) < t.squeeze(1)) & (R > 0)).nonzero().squeeze(1)
        if len(again):
            at, R, block = at[again], R[again], block.rows(again)
            t = last[again].minimum(self._nearest_positive(at))
            row, column = nonzero(block.reaching(t[:, None]))
            second, *_ = self._sort(at, R, row, column)
            for all_rows, some in zip(ranks, second, strict=True):
                all_rows[again] = some
        return ranks

    def _block(self, rows: slice, dtype: torch.dtype) -> Block:
        """All similarities of these queries, without those to themselves and to padding."""
        block = self.products.block(rows, slice(0, len(self.gallery.x)), dtype)
        block.S[:, self.gallery.n :] = block.least
        if self.arrangement.own:
            block.S.diagonal(rows.start).fill_(block.least)
        return block

    def _sort(
        self, at: Tensor, R: Tensor, row: Tensor, column: Tensor, sift: Block | None = None
    ) -> tuple[Ranks, Tensor, Tensor]:
        """Ranks among candidates, and two similarities down to which those must be complete.

        These are the similarity of the R-th candidate and that of the first positive.

        Args:
            at: (b,) the queries, with R positives each.
            row, column: (p,) the candidates, by ascending row.
            sift: the queries' block, to sort only those of the candidates that it leaves open.
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
        keys = _sort_descending(_padded(key, row, count, torch.iinfo(torch.int64).min))
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
        return Ranks(first, right + lead, gain), last, nearest

    def _nearest_positive(self, at: Tensor) -> Tensor:
        """The similarity of the nearest positive of each of these queries."""
        label = self.queries.label[at]
        start, stop = self.arrangement.start[label], self.arrangement.start[label + 1]
        row, column = ranges(start, stop - start)
        if self.arrangement.own:
            others = column != at[row]
            row, column = row[others], column[others]
        best = self.queries.x.new_full((len(at),), ALL)
        s = dots(self.queries.x[at], self.gallery.x, row, column)
        return best.scatter_reduce_(0, row, s, "amax")


def _threshold(block: Block, R: Tensor) -> Tensor:
    """(b, 1) a similarity that probably a little more than R of each row reach."""
    sample = np.sort(block.S[:, ::STRIDE].cpu().numpy(), axis=1)
    expected = R.cpu() / STRIDE
    place = (expected + MARGIN * expected.sqrt() + 1).ceil().long().clamp_(1, sample.shape[1])
    t = torch.from_numpy(np.take_along_axis(sample, (sample.shape[1] - place)[:, None].numpy(), 1))
    t = (t.to(R.device).float() * block.unit).clamp_(min=ALL)
    return t.masked_fill_(R[:, None] == 0, NONE)


def _sift(
    block: Block, R: Tensor, row: Tensor, column: Tensor, positive: Tensor
) -> tuple[Tensor, Tensor]:
    """Which candidates are positives certainly before all negatives, and which others are left.

    Those that are certainly behind the R nearest are dropped.
    """
    s = block.S.view(-1).index_select(0, row * block.S.shape[1] + column)
    count = torch.bincount(row, minlength=len(R))
    ordered = _sort_descending(_padded(s, row, count, block.least))
    last = ordered.gather(1, (R - 1).clamp(0, ordered.shape[1] - 1)[:, None]).squeeze(1)
    highest = torch.full_like(last, block.least)
    highest.scatter_reduce_(0, row, s.masked_fill(positive, block.least), "amax")
    near = s >= block.equaling(last).index_select(0, row)
    certain = positive & (s > block.surpassing(highest).index_select(0, row))
    return _places(certain), _places(near & ~certain)


def _places(flags: Tensor) -> Tensor:
    if flags.device.type != "cpu":
        return flags.nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(flags.numpy()))


def _padded(values: Tensor, row: Tensor, count: Tensor, pad: float) -> Tensor:
    """(b, w) the values of each row, by ascending row with `count` each, side by side."""
    b, width = len(count), max(1, int(count.max()))
    offset = torch.arange(0, b * width, width, device=row.device) - (count.cumsum(0) - count)
    place = torch.arange(len(row), device=row.device) + offset.index_select(0, row)
    return values.new_full((b * width,), pad).scatter_(0, place, values).view(b, width)


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
