"""The map of the embedding space: pictures that are alike lie near each other.

Two dimensions cannot keep all distances of hundreds; they can keep who is next to whom. From the
plane of largest spread (`projection`) on, every point y_i is drawn to the places y_j of its k
nearest neighbours in the embedding space and pushed away from points r drawn at random,

    pull  -2 (y_i - y_j) / (1 + |y_i - y_j|^2)
    push   2 (y_i - y_r) / ((e + |y_i - y_r|^2) (1 + |y_i - y_r|^2))

the gradients of log q and log (1 - q), q = 1 / (1 + |y - y'|^2) (Tang et al., 2016, McInnes et al.,
2018), in steps that grow smaller.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .projection import evenly, plane

METHOD = "those that are alike lie near each other"

NEIGHBOURS = 12
PUSHES = 6
"""Points that each is pushed away from in a step."""
STEPS = 200
LANDMARKS = 4096
"""Points that are laid out; of more, the others go where the one lies that they resemble most."""
WIDTH = 10.0
"""Of the plane to begin with: distances beyond 1 hardly pull."""
STRONGEST = 4.0
BLOCK = 1024
INSIDE = 99.0
"""Per cent of the points within [-1, 1]; a few far ones must not shrink all others to a dot."""


def layout(x: NDArray[np.float32], seed: int = 0) -> NDArray[np.float32]:
    """(n, 2) places of the rows of x, of unit length, on the map; the same every time."""
    chosen = evenly(len(x), LANDMARKS)
    rows = torch.from_numpy(x)
    generator = torch.Generator().manual_seed(seed)
    landmarks = rows[torch.from_numpy(chosen)]
    y = _settle(landmarks, generator)
    if len(chosen) < len(x):
        nearest = _nearest(rows, landmarks, 1).squeeze(1)
        jitter = 0.1 * torch.randn(len(x), 2, generator=generator)
        jitter[torch.from_numpy(chosen)] = 0
        y = y[nearest] + jitter
    y = y - y.mean(0)
    reach = np.percentile(y.abs().numpy(), INSIDE, axis=0)
    return np.asarray(y.numpy() / np.where(reach > 0, reach, 1.0), dtype=np.float32)


def _settle(x: Tensor, generator: torch.Generator) -> Tensor:
    """Places of a few thousand points."""
    n, k = len(x), min(NEIGHBOURS, len(x) - 1)
    y = WIDTH * torch.from_numpy(plane(x.numpy()))
    if k < 1:
        return y
    j = _nearest(x, x, k, own=True).reshape(-1)
    i, every = torch.arange(n).repeat_interleave(k), torch.arange(n).repeat(PUSHES)
    for step in range(STEPS):
        near = y[i] - y[j]
        pull = near.mul_(-2 / k / (1 + near.square().sum(1, keepdim=True)))
        far = y[every] - y[torch.randint(n, (n * PUSHES,), generator=generator)]
        square = far.square().sum(1, keepdim=True)
        push = far.mul_(2 / ((0.01 + square) * (1 + square))).clamp_(-STRONGEST, STRONGEST)
        move = torch.zeros_like(y).index_add_(0, i, pull).index_add_(0, j, -pull)
        move.index_add_(0, every, push)
        y = y + (1 - step / STEPS) * move
    return y


def _nearest(x: Tensor, others: Tensor, k: int, own: bool = False) -> Tensor:
    """(n, k) the most similar of the others; with `own` they are x, and none is its own."""
    found = []
    for low in range(0, len(x), BLOCK):
        S = x[low : low + BLOCK] @ others.T
        if own:
            rows = torch.arange(len(S))
            S[rows, low + rows] = -torch.inf
        found.append(S.topk(k, dim=1).indices)
    return torch.cat(found)
