"""The plane on which embeddings spread the most: their first two principal components.

X - mean(X) = U S V^T          place(x) = (x - mean(X)) V[:, :2]

scaled so that the farthest point has the distance 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def plane(x: Floats) -> Floats:
    """(n, 2) places of the rows of x."""
    centred = x - x.mean(axis=0, keepdims=True)
    _, axes = np.linalg.eigh((centred.T @ centred).astype(np.float64))  # ascending
    two = axes[:, ::-1][:, :2]
    if two.shape[1] < 2:  # embeddings of one dimension: a line
        two = np.concatenate([two, np.zeros_like(two)], axis=1)
    # An eigenvector has no sign of its own; one is chosen, so that a map looks the same every time.
    largest = two[np.abs(two).argmax(axis=0), np.arange(2)]
    places = centred @ (two * np.where(largest < 0, -1.0, 1.0))
    reach = np.linalg.norm(places, axis=1).max()
    return np.asarray(places / (reach if reach > 0 else 1.0), dtype=np.float32)


def evenly(n: int, most: int) -> NDArray[np.int64]:
    """At most `most` numbers of 0 .. n - 1, evenly spread."""
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).astype(np.int64)
