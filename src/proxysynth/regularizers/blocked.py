"""Proxy Synthesis, or a plain loss, in memory that does not grow with the number of classes.

Of the c original classes only sums are asked for, and the batch's own proxies (n, d); of the
synthetic classes, made of those, the same sums. Both are a tour (`blocked_tour`). The rest is small
and left to autograd, which is why the same few lines serve a process that holds all proxies and one
of many that each hold a part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proxysynth.losses.proxy_anchor import positive_term
from proxysynth.losses.similarity import at_least_float32, unit
from proxysynth.regularizers.block_size import block_size
from proxysynth.regularizers.blocked_tour import Tour, tour
from proxysynth.regularizers.fused_families import Columns, Family, Rows
from proxysynth.regularizers.synthesis import Draw, mix, normalized_mix, one_over_length

Visit = Callable[[Tensor], tuple[Tensor, Tensor, int]]
"""From embeddings to the sums over all original classes, the batch's own proxies (n, d), and how
many classes those sums are over."""


@dataclass(frozen=True)
class Taking:
    """Who takes part: the fields `embeddings` and `proxies` of Proxy Synthesis, and its pairs."""

    draw: Draw | None = None
    embeddings: str = "both"
    proxies: str = "both"

    @property
    def originals(self) -> bool:
        return self.draw is None or self.embeddings != "synthetic"

    @property
    def rows(self) -> Draw | None:
        """The pairs whose embeddings take part."""
        return None if self.embeddings == "original" else self.draw

    @property
    def visits(self) -> bool:
        """Whether the original classes do."""
        return self.draw is None or self.proxies != "synthetic"

    def tour(
        self, own: Tensor, looked_up: Tensor, target: Tensor | None, block: int, low: torch.dtype
    ) -> Tour:
        """A tour of classes of which `own` (n,) are those of the originals, -1 for elsewhere, and
        `target` those of the synthetics, None for elsewhere."""
        places = [own] if self.originals else []
        if self.rows is not None:
            places.append(torch.full_like(self.rows.i, -1) if target is None else target)
        visited = None if target is not None or self.visits else own[:0]
        return Tour(self.rows, self.originals, torch.cat(places), looked_up, visited, block, low)


def blocked(
    family: Family, x: Tensor, y: Tensor, p: Tensor, taking: Taking, block: int | None = None
) -> Tensor:
    """The loss, with exact gradients to x and p; `block` classes at a time, or as many as suit."""
    block, low = checked_block(block, taking, x), product_type(x)

    def visit(x: Tensor) -> tuple[Tensor, Tensor, int]:
        total, own = visited(family, x, p, taking.tour(y, y, None, block, low))
        return total, own, len(p)

    with torch.autocast(x.device.type, enabled=False):
        return assembled(family, x, y, taking, visit, block, low)


def checked_block(block: int | None, taking: Taking, x: Tensor) -> int:
    """Classes in a block: what was asked for, or what suits."""
    if block is None:
        rows = len(x) if taking.rows is None else len(x) + len(taking.rows.i)
        return block_size(rows, x.device, at_least_float32(x[:0]).element_size())
    if isinstance(block, bool) or not isinstance(block, int) or block < 1:
        raise ValueError(f"block must be a number of classes from 1 on (or None), got {block!r}")
    return block


def visited(family: Family, x: Tensor, p: Tensor, plan: Tour) -> tuple[Tensor, ...]:
    """`tour` for embeddings of any length."""
    x = at_least_float32(x)
    one_over = x.new_ones(plan.synthetics)
    if family.normalized:
        x = unit(x)
        if plan.draw is not None:
            i, j = plan.draw.i, plan.draw.j
            one_over = one_over_length(mix(x[i], x[j], *plan.draw.shares), plan.low)
    return tour(family, x, one_over, p, plan)


def product_type(x: Tensor) -> torch.dtype:
    """The type in which products are taken: the embeddings' own, or autocast's."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def assembled(
    family: Family, x: Tensor, y: Tensor, taking: Taking, visit: Visit, block: int, low: torch.dtype
) -> Tensor:
    """The loss, from the sums over the original classes and the small rest."""
    total, q, classes = visit(x)
    sums = [total] if taking.visits else []
    before, after = (unit, normalized_mix) if family.normalized else (_same, _same)
    unit_x, q, draw = before(at_least_float32(x)), before(q), taking.draw
    parts = [(unit_x, q, y)] if taking.originals else []
    if draw is not None:
        a, b = draw.class_parents(torch.arange(len(y), device=y.device))
        made_q = after(mix(q[a], q[b], *draw.class_shares), low)
        if taking.rows is not None:
            made_x = after(mix(unit_x[draw.i], unit_x[draw.j], *draw.shares), low)
            # Any numbers do for the synthetic classes that no class of the batch has.
            parts.append((made_x, made_q.index_select(0, draw.target), y.max() + 1 + draw.target))
        none = torch.full_like(y, -1)
        plan = taking.tour(none, none[:0], draw.target, block, low)
        sums.append(visited(family, x, made_q, plan)[0])
        classes = len(made_q) + (classes if taking.visits else 0)
    rows, proxies, labels = (torch.cat(group) for group in zip(*parts, strict=True))
    own = family.scale * (rows * proxies).sum(dim=1)
    if isinstance(family, Rows):
        return _row_loss(family, sums, own)
    return _column_loss(family, torch.stack(sums).sum() / classes, own, labels)


def _row_loss(family: Rows, sums: list[Tensor], own: Tensor) -> Tensor:
    """The mean of -log(own share), with the sums over strangers of each kind."""
    hard = own
    if family.margin is not None:
        hard = family.scale * family.margin.harder(own / family.scale)
    return (torch.stack([hard, *sums]).logsumexp(dim=0) - hard).mean()


def _column_loss(family: Columns, push: Tensor, own: Tensor, labels: Tensor) -> Tensor:
    """Proxy-anchor: the mean pull over the classes present, besides the mean push over all."""
    present, labels = labels.unique(return_inverse=True)
    return positive_term(family.scale * family.margin - own, labels, len(present)) + push


def _same(v: Tensor, *_: Any) -> Tensor:
    return v
