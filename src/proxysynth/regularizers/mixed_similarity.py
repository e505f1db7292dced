"""Proxy Synthesis without a second product with all the proxies.

Mixing is linear, so every similarity with a synthetic is a mix of rows and columns of the one
matrix S that the plain loss computes anyway, divided by the length of the mixed vector:

    synthetic row i, original column:   (lam S_i + lam' S_j) / |lam x_i + lam' x_j|
    original row, synthetic column:     the same over the columns of the parents' classes
    synthetic row, synthetic column:    the row rule on the column rule's result

Only the proxies of the batch's own classes are looked at, which is what lets a process that holds
a part of the proxies compute its part of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from proxysynth.interfaces import ProxyLoss
from proxysynth.losses.similarity import at_least_float32, unit
from proxysynth.regularizers.synthesis import Draw, mix, one_over_length


def mixed_similarity(
    loss: ProxyLoss, x: Tensor, y: Tensor, p: Tensor, draw: Draw, normalized: bool
) -> Tensor:
    """S^ of originals and synthetics, (n + m, c + u) or (n + m, c + u, k)."""
    S = loss.similarity(x, p)
    dtype, S = S.dtype, at_least_float32(S)
    a, b = draw.class_parents(y)
    over_x = over_p = None
    if normalized:
        over_x = one_over_length(mix(unit(x[draw.i]), unit(x[draw.j]), *draw.shares), dtype)
        over_p = one_over_length(mix(unit(p[a]), unit(p[b]), *draw.class_shares), dtype)

    columns = _mixed(S.transpose(0, 1), a, b, draw.class_shares, over_p).transpose(0, 1)
    wide = torch.cat((S, columns), dim=1)
    rows = _mixed(wide, draw.i, draw.j, draw.shares, over_x)
    return torch.cat((wide, rows))


def _mixed(
    S: Tensor, a: Tensor, b: Tensor, shares: tuple[Tensor, Tensor], over: Tensor | None
) -> Tensor:
    """Rows a and b of S mixed and divided by the mixed vectors' lengths, one or k per row."""
    made = mix(S[a], S[b], *shares)
    if over is None:
        return made
    # Rows of S have all columns (and sub-proxies) behind them; columns, transposed, have all rows
    # and then the sub-proxies, which each have a length of their own.
    return made * (over[:, None, :] if over.dim() == 2 else over.view((-1,) + (1,) * (S.dim() - 1)))
