"""Indexes of made-up vectors, without pictures or a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from proxysynth.search.index_file import write_index
from proxysynth.search.model import ModelIdentity


def write_vectors(
    file: Path, x: np.ndarray, name: str = "item", labels: list[str] | None = None
) -> None:
    """The rows of x as an index, of unit length."""
    rows = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    paths = [f"{name}{i:07d}.jpg" for i in range(len(rows))]
    labels = labels or [None if i % 5 == 4 else f"label{i % 5}" for i in range(len(rows))]
    stamps = np.zeros((len(rows), 2), dtype=np.int64)
    model = ModelIdentity(
        folder=None, run=None, epoch=0, backbone="none", dim=x.shape[1], preprocess="imagenet",
        resize=256, crop=224, shrink=256, weights="0" * 16,
    )  # fmt: skip
    write_index(file, model, file.parent, paths, labels, stamps, rows)
