"""The rules of retrieval, spelt out in slow float64 loops."""

from __future__ import annotations

import numpy as np


def similarities(query: np.ndarray, gallery: np.ndarray) -> np.ndarray:
    """Cosines. Pair by pair and not as one product, so that equal vectors give equal numbers."""

    def unit(x: np.ndarray) -> np.ndarray:
        x = x.astype(np.float64)
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    g = unit(gallery)
    return np.stack([(q * g).sum(1) for q in unit(query)])


def order(S: np.ndarray, i: int, own: bool) -> list[int]:
    """The gallery as query i ranks it."""
    others = [j for j in range(S.shape[1]) if not (own and j == i)]
    return sorted(others, key=lambda j: (-S[i, j], j))


def ranked(
    x: np.ndarray, y: np.ndarray, g: np.ndarray | None = None, gy: np.ndarray | None = None
) -> np.ndarray:
    """(n, 4): R, rank of the first positive, R-precision, average precision at R."""
    own = g is None
    if own:
        g, gy = x, y
    S = similarities(x, g)
    rows = []
    for i in range(len(x)):
        right = [gy[j] == y[i] for j in order(S, i, own)]
        R = sum(right)
        if R == 0:
            rows.append((0, -1, 0.0, 0.0))
            continue
        seen, average = 0, 0.0
        for place in range(R):
            if right[place]:
                seen += 1
                average += seen / (place + 1)
        rows.append((R, right.index(True), seen / R, average / R))
    return np.array(rows, dtype=np.float64)
