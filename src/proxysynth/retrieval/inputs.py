"""What retrieval accepts: embeddings and labels, checked where they enter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray[Any, Any]
"""A torch tensor, on any device, or a numpy array."""


def as_embeddings(x: Array, name: str = "embeddings") -> Tensor:
    """`x` as a finite float32 or float64 matrix; half precision is computed in float32."""
    matrix = as_matrix(x, name)
    matrix = matrix.to(compute_type(matrix))
    check_finite(matrix, name)
    return matrix


def as_matrix(x: Array, name: str) -> Tensor:
    """`x` as a tensor (n, d) of floats, neither copied nor read."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiu":
        native = x.astype(x.dtype.newbyteorder("="), copy=False)
        x = _tensor(np.ascontiguousarray(native))
    if not isinstance(x, Tensor):
        kind = x.dtype if isinstance(x, np.ndarray) else type(x).__name__
        raise ValueError(f"{name} must be a tensor or an array of floats (n, d), got {kind}")
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(
            f"{name} must be (n, d) with at least one row and one column, got {tuple(x.shape)}"
        )
    if not x.is_floating_point():
        raise ValueError(f"{name} must be floating point, got {x.dtype}: convert with .float()")
    return x.detach()


def _tensor(x: np.ndarray[Any, Any]) -> Tensor:
    if x.flags.writeable:
        return torch.from_numpy(x)
    with warnings.catch_warnings():  # that one could write to it: nobody does
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(x)


def compute_type(*matrices: Tensor) -> torch.dtype:
    """float64 where one of the matrices has it, float32 otherwise."""
    double = any(matrix.dtype == torch.float64 for matrix in matrices)
    return torch.float64 if double else torch.float32


def check_finite(x: Tensor, name: str, first_row: int = 0) -> None:
    """One sentence that names the first row of `x` with NaN or infinity in it."""
    low, high = torch.aminmax(x)  # NaN spreads to both
    if not (torch.isfinite(low) and torch.isfinite(high)):
        row = first_row + int((~torch.isfinite(x)).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {row} holds NaN or infinity")


def check_dimensions(query: Tensor, gallery: Tensor, query_name: str) -> None:
    """Queries and gallery live in one space."""
    if query.shape[1] != gallery.shape[1]:
        raise ValueError(
            f"gallery must have the {query.shape[1]} dimensions of {query_name}, "
            f"got {gallery.shape[1]}: embed both with one model"
        )


def as_labels(y: Array, n: int, name: str = "labels", of: str = "embeddings") -> Tensor:
    """`y` as n whole numbers of any value; one for every row of `of`."""
    if not isinstance(y, Tensor):
        array = np.asarray(y)
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be whole numbers, got {array.dtype}: number the classes")
        # Unsigned values beyond int64 wrap around, which keeps different labels different.
        y = torch.from_numpy(array.astype(np.int64))
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"{name} must be whole numbers, got {y.dtype}: convert with .long()")
    if y.shape != (n,):
        raise ValueError(f"{name} must be ({n},), one for each row of {of}, got {tuple(y.shape)}")
    return y.detach().long()


def as_block(block: int | None, default: int) -> int:
    """The side of a block of the similarity matrix, or the default one."""
    if block is None:
        return default
    if not is_whole(block) or block < 1:
        raise ValueError(f"block must be a whole number from 1 on, got {block!r}: try {default}")
    return int(block)


def is_whole(number: object) -> bool:
    """Whether it is a whole number, Python's or numpy's."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def unit(x: Tensor) -> Tensor:
    """`x` with each row divided by its length, in place; a row of zeros stays one."""
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    info = torch.finfo(x.dtype)
    # The squares of very long or very short rows overflow or fade: bring those near 1 first.
    extreme = (length < info.tiny**0.25) | (length > info.max**0.25)
    rows = extreme.squeeze(1).nonzero().squeeze(1)
    if len(rows):
        peak = x[rows].abs().amax(1, keepdim=True)
        x[rows] = x[rows] / peak.where(peak > 0, 1)
        length[rows] = torch.linalg.vector_norm(x[rows], dim=1, keepdim=True)
    return x.div_(length.where(length > 0, 1))
