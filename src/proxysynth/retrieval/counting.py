"""Ranks by counting: how many of the gallery come before each positive, without any sorting.

A positive j of query i has the rank

    #{g : s(i, g) > s(i, j)}  +  #{g < j : s(i, g) = s(i, j)}

and every measure of retrieval follows from few of them. R-precision and MAP@R ask only for the
positives among the first R; Recall@k asks for the rank of the first. So each query keeps a *floor*,
the similarity of its last positive that may still be among the first R. Hardly anything reaches it:
what does is measured exactly and placed between the positives by bisection. As more of the gallery
is seen, positives fall behind and the floor rises. A query that has lost all of them goes on
counting for its first alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import Tensor

from proxysynth.retrieval.flags import count, ones
from proxysynth.retrieval.positives import Positives
from proxysynth.retrieval.product import Block

NEVER = 64.0
"""A cosine that nothing reaches, however coarse the block."""

FEW = 1 / 256
"""Of a block, to be measured exactly: with more it is worth to look for those that need not."""

NARROW = 16
"""Positives of a query, up to which looking at all of them is faster than bisection."""


class Counter:
    """Counts, for a block of queries, the negatives before each positive.

    Attributes:
        hits: (b, r) negatives that come before positive m but not before positive m - 1; right for
            the positives m < live, and for the first.
        live: (b,) the positives m < live may still be among the first R; the others are not.
    """

    def __init__(self, positives: Positives) -> None:
        self.t, self.index, self.count = positives.similarity, positives.index, positives.count
        self.hits = torch.zeros_like(self.index)
        self.live = self.count.clone()
        self.fresh = True
        self.lock = threading.Lock()

    def see(self, block: Block) -> bool:
        """Count a block of the similarity matrix; False if it is too coarse, and nothing is."""
        if not self.t.shape[1]:
            return True
        with self.lock:  # blocks come from several threads
            if self.fresh:
                self._drop_hopeless(block)
                self.fresh = False
            followed = self.live.clamp(min=1).minimum(self.count)
            floor = self.t.gather(1, (followed - 1).clamp_(min=0)[:, None])
            floor.masked_fill_(followed[:, None] == 0, NEVER)
            near = block.reaching(floor)
            counts = count(near)
            if counts.sum() > FEW * near.numel():
                # What surely comes before the one positive that is left need not be measured.
                lost = (self.live == 0) & (self.count > 0)
                above = block.above(torch.where(lost[:, None], floor, NEVER))
                counts = count(near.sub_(above))
                if counts.sum() > block.enough * near.numel():
                    return False
                self.hits[:, 0] += above.sum(1, dtype=above.dtype).long()
            row, column = ones(near, counts)
            if len(row):
                self._add(row, block.exact(row, column), block.index[column], followed)
            return True

    def ranks(self) -> Tensor:
        """(b, r) ranks from 0 of the positives m < live and of the first; the others are void."""
        return self.hits.cumsum(1).add_(torch.arange(self.t.shape[1], device=self.t.device))

    def _drop_hopeless(self, block: Block) -> None:
        """Bisect for the positives that R or more come before in the first block alone."""
        low, high = torch.zeros_like(self.live), self.live
        for _ in range(self.t.shape[1].bit_length()):
            m = (low + high) // 2
            t = self.t.gather(1, m.clamp(max=self.t.shape[1] - 1)[:, None])
            above = block.above(t)
            before = above.sum(1, dtype=above.dtype).long()
            hopeless = (m < high) & (m + before >= self.count)
            hopeful = (m < high) & ~hopeless
            low, high = torch.where(hopeful, m + 1, low), torch.where(hopeless, m, high)
        self.live = low

    def _add(self, row: Tensor, s: Tensor, index: Tensor, followed: Tensor) -> None:
        """Place these of the gallery between the positives that are followed, and raise the floor.

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
        # Few are tied with a positive; only for those the indices are looked up.
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
    """How many of the `length` entries from `base` on come before; those that do stand first."""
    m, last = torch.zeros_like(length), base - 1
    for bit in reversed(range(int(length.max()).bit_length())):
        further = m + (1 << bit)
        inside = further <= length
        m = torch.where(inside & before(last + further.minimum(length)), further, m)
    return m
