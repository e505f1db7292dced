"""SVHN: 32 x 32 photographs of digits on house fronts (Netzer et al. 2011).

    train_32x32.mat, test_32x32.mat   X (32, 32, 3, n) and y (n, 1), where 10 is the digit 0

Train and test have the same classes; the pictures are held in memory.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..listing import Listing
from ..matfile import read_mat
from .catalogue import CATALOGUE
from .contents import Contents, copy_folder

FILES = {"train": "train_32x32.mat", "test": "test_32x32.mat"}
SIDE = 32
DIGITS = tuple("0123456789")


def read_svhn(root: str | os.PathLike[str]) -> Contents:
    """What the copy under `root` holds."""
    base = copy_folder(CATALOGUE["svhn"], root, tuple(FILES.values()))
    parts, missing, damaged = {}, [], []
    for part, file in FILES.items():
        pixels, labels = np.empty((0, SIDE, SIDE, 3), dtype=np.uint8), np.empty(0, dtype=np.int64)
        if not (base / file).is_file():
            missing.append(file)
        else:
            try:
                pixels, labels = _pictures(base / file)
            except ValueError as error:
                damaged.append((file, str(error)))
        names = tuple(f"{part}:{i}" for i in range(len(labels)))
        parts[part] = Listing(names, labels, DIGITS, pixels=pixels)
    return Contents(base, parts, missing=tuple(missing), damaged=tuple(damaged))


def _pictures(file: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """(n, 32, 32, 3) and (n,)."""
    held = read_mat(file)
    x, y = held.get("X"), held.get("y")
    if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray):
        raise ValueError(f"{file} must hold X and y, got {', '.join(held) or 'nothing'}")
    if x.dtype != np.uint8 or x.shape != (SIDE, SIDE, 3, y.size):
        raise ValueError(
            f"X of {file} must be uint8 (32, 32, 3, {y.size}), got {x.dtype} {x.shape}"
        )
    labels = y.reshape(-1).astype(np.int64)
    if y.size and not 1 <= labels.min() <= labels.max() <= 10:
        raise ValueError(f"y of {file} must lie in 1..10, got {labels.min()} to {labels.max()}")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels % 10
