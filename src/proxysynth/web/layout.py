"""The map of the embedding space: similar images are near each other.

Two dimensions cannot keep all distances of hundreds, but they can keep neighborhoods. Starting from
the first two principal components, every point y_i is attracted by the positions y_j of its k
nearest neighbors in the embedding space and repelled by random points y_r,

    pull  -2 (y_i - y_j) / (1 + |y_i - y_j|^2)
    push   2 (y_i - y_r) / ((e + |y_i - y_r|^2) (1 + |y_i - y_r|^2))

the gradients of log q and log (1 - q), q = 1 / (1 + |y - y'|^2) (Tang et al., 2016; McInnes et al.,
2018), in decreasing steps.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.knn import nearest

METHOD = "similar ones are near each other"

NEIGHBORS = 12
REPELLED = 6  # random points that repel each point in a step
STEPS = 200
LANDMARKS = 4096  # points that are laid out; further ones go to their nearest landmark
WIDTH = 10.0  # of the initial plane: distances beyond 1 hardly attract
STRONGEST = 4.0
INSIDE = 99.0  # percent of the points within [-1, 1]; a few outliers must not shrink the rest


def layout(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, 2) positions of the rows of x, of unit length, on the map; deterministic."""
    chosen = evenly(len(x), LANDMARKS)
    rows = torch.from_numpy(x)
    generator = torch.Generator().manual_seed(0)
    landmarks = rows[torch.from_numpy(chosen)]
    y = _settle(landmarks, generator)
    if len(chosen) < len(x):
        landmark = nearest(rows, landmarks, 1).indices.squeeze(1)
        jitter = 0.1 * torch.randn(len(x), 2, generator=generator)
        jitter[torch.from_numpy(chosen)] = 0
        y = y[landmark] + jitter
    y = y - y.mean(0)
    reach = np.percentile(y.abs().numpy(), INSIDE, axis=0)
    return np.asarray(y.numpy() / np.where(reach > 0, reach, 1.0), dtype=np.float32)


def _settle(x: Tensor, generator: torch.Generator) -> Tensor:
    """Positions of a few thousand points."""
    n, k = len(x), min(NEIGHBORS, len(x) - 1)
    y = WIDTH * torch.from_numpy(plane(x.numpy()))
    if k < 1:
        return y
    j = nearest(x, x, k, exclude=torch.arange(n)).indices.reshape(-1)
    i, every = torch.arange(n).repeat_interleave(k), torch.arange(n).repeat(REPELLED)
    for step in range(STEPS):
        near = y[i] - y[j]
        pull = near.mul_(-2 / k / (1 + near.square().sum(1, keepdim=True)))
        far = y[every] - y[torch.randint(n, (n * REPELLED,), generator=generator)]
        square = far.square().sum(1, keepdim=True)
        push = far.mul_(2 / ((0.01 + square) * (1 + square))).clamp_(-STRONGEST, STRONGEST)
        move = torch.zeros_like(y).index_add_(0, i, pull).index_add_(0, j, -pull)
        move.index_add_(0, every, push)
        y = y + (1 - step / STEPS) * move
    return y


def plane(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, 2) the first two principal components of x, scaled so that the farthest point is at 1."""
    centered = x - x.mean(axis=0, keepdims=True)
    _, axes = np.linalg.eigh((centered.T @ centered).astype(np.float64))  # ascending
    two = axes[:, ::-1][:, :2]
    if two.shape[1] < 2:  # one dimension only
        two = np.concatenate([two, np.zeros_like(two)], axis=1)
    positions = centered @ two
    reach = np.linalg.norm(positions, axis=1).max()
    return np.asarray(positions / (reach if reach > 0 else 1.0), dtype=np.float32)


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most `most` of the numbers 0 .. n - 1, evenly spaced."""
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).astype(np.int64)
