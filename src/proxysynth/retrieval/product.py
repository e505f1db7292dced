"""Blocks of the similarity matrix, fast and with a known error.

Only what lies near a threshold has to be known exactly. So blocks are made with few bits at first,
and made again with more where that leaves too much open.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from proxysynth.retrieval.dots import dots
from proxysynth.retrieval.rounding import (
    Rounded,
    best_unit,
    multiply,
    rounded,
    slack,
    types_that_pay,
)
from proxysynth.retrieval.runs import spread
from proxysynth.retrieval.shelf import Shelf


@dataclass(frozen=True)
class Block:
    """Similarities of b queries to w of the gallery, nearly.

    Attributes:
        S: (b, w) in `unit`s, float32 or int32; the least number there is for all that is not to be
            counted: positives, the query itself, padding.
        flags, others: buffers laid out as S, of its type.
        slack: (b, 1) by how much a similarity of the row may be off,
        grain: and by which fraction of itself besides.
        index: (w,) the gallery indices of the columns.
        exact: the similarities at rows and columns, in the order in which S lies in memory.
        enough: the part of it that is better measured exactly than made again, finer.
    """

    S: Tensor
    flags: Tensor
    others: Tensor
    unit: float
    slack: Tensor
    grain: float
    index: Tensor
    exact: Callable[[Tensor, Tensor], Tensor]
    enough: float

    def reaching(self, t: Tensor) -> Tensor:
        """1 where a similarity may be t or more, 0 where it is surely less; t is (b, 1)."""
        low = t - self.slack
        low -= self.grain * low.abs()
        return torch.ge(self.S, self._bound(low, torch.ceil), out=self.flags)

    def above(self, t: Tensor) -> Tensor:
        """1 where a similarity is surely more than t, 0 where it may not be; t is (b, 1)."""
        high = t + self.slack
        high += self.grain * high.abs()
        return torch.gt(self.S, self._bound(high, torch.floor), out=self.others)

    def _bound(self, t: Tensor, to_whole: Callable[[Tensor], Tensor]) -> Tensor:
        """t as S is compared with it; between whole numbers only the next one matters."""
        t = (t / self.unit).float()
        if self.S.dtype != torch.int32:
            return t
        return to_whole(t).clamp_(-FAR, FAR).to(torch.int32)


LEAST = torch.iinfo(torch.int32).min
FAR = 2.0**30
"""Beyond every sum of products of bytes, and a whole number in float32 as well as in int32."""

Viewer = Callable[[Block], bool]

SCATTERED = 1 / 16
"""The part of a block up to which single entries are filled faster than all are looked at."""

LONGEST_PAUSE = 15
"""Blocks for which a type that was too coarse is left out, at most."""

EXACT_COST = 2**-14
"""A finer block costs about this times its dimensions and entries, in exact similarities."""


class Product:
    """Makes blocks of queries and gallery, as fine as those who look at them need."""

    def __init__(self, queries: Shelf, gallery: Shelf) -> None:
        self.queries, self.gallery = queries, gallery
        types = types_that_pay(queries.x.device, queries.x.shape[1])
        self.units = (1.0, 1.0)
        if torch.int8 in types:
            unit = best_unit(queries.x)
            self.units = unit, unit if gallery is queries else best_unit(gallery.x)
        self.rounded: dict[tuple[torch.dtype, bool, int, int], Rounded] = {}
        self.pause: Counter[torch.dtype] = Counter()
        self.wait: Counter[torch.dtype] = Counter()
        self.buffers = threading.local()

    def show(self, a: slice, b: slice, by_rows: Viewer, by_columns: Viewer | None = None) -> None:
        """Show the block of queries a and gallery b to `by_rows`, and transposed to `by_columns`.

        Each answers whether it could decide by it. If not, it is shown a finer block.
        """
        waiting = {0: by_rows} if by_columns is None else {0: by_rows, 1: by_columns}
        for dtype in types_that_pay(self.queries.x.device, self.queries.x.shape[1]):
            if dtype != torch.float32 and self.wait[dtype] > 0:
                self.wait[dtype] -= 1
                continue
            enough = 1.0 if dtype == torch.float32 else self.queries.x.shape[1] * EXACT_COST
            both = self._make(a, b, self._part(dtype, a, True), self._part(dtype, b, False), enough)
            waiting = {way: see for way, see in waiting.items() if not see(both[way])}
            if not waiting:
                self.pause[dtype] = 0
                return
            # A type that is too coarse is left out for a while, longer every time.
            self.pause[dtype] = min(2 * self.pause[dtype] + 1, LONGEST_PAUSE)
            self.wait[dtype] = self.pause[dtype]

    def _part(self, dtype: torch.dtype, rows: slice, of_queries: bool) -> Rounded:
        """These rows in a shorter type, made when they are first wanted.

        Two threads may both make them, which costs less than to wait for each other.
        """
        of_queries = of_queries or self.gallery is self.queries
        key = dtype, of_queries, rows.start, rows.stop
        if key not in self.rounded:
            shelf, unit = (self.queries if of_queries else self.gallery), self.units[not of_queries]
            self.rounded[key] = rounded(shelf.x[rows], dtype, unit)
        return self.rounded[key]

    def _make(
        self, a: slice, b: slice, queries: Rounded, gallery: Rounded, enough: float
    ) -> tuple[Block, Block]:
        S, flags, others = self._buffers((a.stop - a.start, b.stop - b.start))
        S = multiply(queries, gallery, S, spare=flags)
        flags, others = flags.view(S.dtype), others.view(S.dtype)
        self._hide(S, a, b)
        x, y = self.queries.x[a], self.gallery.x[b]
        off_x, off_y = queries.off, gallery.off
        unit, grain = queries.unit * gallery.unit, queries.grain
        upright = Block(
            S,
            flags,
            others,
            unit,
            slack(off_x, off_y),
            grain,
            self.gallery.index[b],
            lambda row, column: dots(x, y, row, column),
            enough,
        )
        turned = Block(
            S.T,
            flags.T,
            others.T,
            unit,
            slack(off_y, off_x),
            grain,
            self.queries.index[a],
            lambda row, column: dots(x, y, column, row),
            enough,
        )
        return upright, turned

    def _hide(self, S: Tensor, a: slice, b: slice) -> None:
        """The least number for pairs of one class, the query itself among them, and padding."""
        never = LEAST if S.dtype == torch.int32 else -torch.inf
        rows, columns = self.queries.real(a), self.gallery.real(b)
        mine, theirs = self.queries.klass[a][:rows], self.gallery.klass[b][:columns]
        if mine[0] <= theirs[-1] and theirs[0] <= mine[-1]:  # both ascend
            start = torch.searchsorted(theirs, mine)
            size = torch.searchsorted(theirs, mine, right=True) - start
            if int(size.sum()) > SCATTERED * S.numel():
                S[:rows, :columns].masked_fill_(mine[:, None] == theirs, never)
            else:
                row, column = spread(start, size)
                S.view(-1).index_fill_(0, row * S.shape[1] + column, never)
        S[rows:] = never
        S[:, columns:] = never

    def _buffers(self, size: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
        n = size[0] * size[1]
        if getattr(self.buffers, "n", 0) < n:
            self.buffers.n = n
            self.buffers.all = torch.empty(3, n, device=self.queries.x.device)
        S, flags, others = (buffer[:n].view(size) for buffer in self.buffers.all)
        return S, flags, others
