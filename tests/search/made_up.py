"""Indexes of vectors that no model made."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proxysynth.search.index_file import write_index
from proxysynth.search.model import ModelIdentity


def identity(dim: int) -> ModelIdentity:
    return ModelIdentity(
        folder="/no/such/run",
        run="0123456789ab",
        epoch=1,
        backbone="conv4",
        dim=dim,
        preprocess="grey",
        resize=32,
        crop=32,
        shrink=32,
        weights="0" * 16,
    )


def vectors(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows of unit length."""
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def made_up(file: Path, x: np.ndarray, classes: int = 3) -> Path:
    """An index of these rows; a third of the items has no label."""
    n = len(x)
    paths = [f"{i:08d}.jpg" for i in range(n)]
    labels = [None if i % 3 == 0 else f"label{i % classes}" for i in range(n)]
    stamps = np.arange(2 * n, dtype=np.int64).reshape(n, 2)
    write_index(file, identity(x.shape[1]), file.parent, paths, labels, stamps, x)
    return file
