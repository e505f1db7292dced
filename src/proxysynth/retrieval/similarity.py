"""Cosine similarities: accepted inputs, exact values of chosen pairs, and fast products.

Everything is decided by the exact values of `dots`. Fast products only rule out what cannot matter,
so they may be computed in fewer bits as long as a bound on their error is known.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray[Any, Any]
"""A torch tensor, on any device, or a numpy array."""


# ---- Inputs


def as_embeddings(x: Array, name: str = "embeddings") -> Tensor:
    """`x` as a finite float32 or float64 matrix; half precision becomes float32."""
    matrix = as_matrix(x, name)
    matrix = matrix.to(compute_type(matrix))
    low, high = torch.aminmax(matrix)  # NaN propagates to both
    if not (torch.isfinite(low) and torch.isfinite(high)):
        row = int((~torch.isfinite(matrix)).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {row} contains NaN or infinity")
    return matrix


def as_matrix(x: Array, name: str) -> Tensor:
    """`x` as a floating-point tensor (n, d), without reading or copying it."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiu":
        native = x.astype(x.dtype.newbyteorder("="), copy=False)
        x = _from_numpy(np.ascontiguousarray(native))
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


def _from_numpy(x: np.ndarray[Any, Any]) -> Tensor:
    if x.flags.writeable:
        return torch.from_numpy(x)
    with warnings.catch_warnings():  # torch warns that writing would be undefined: we do not write
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(x)


def compute_type(*matrices: Tensor) -> torch.dtype:
    """float64 if any of the matrices is float64, else float32."""
    double = any(matrix.dtype == torch.float64 for matrix in matrices)
    return torch.float64 if double else torch.float32


def check_dimensions(query: Tensor, gallery: Tensor, query_name: str) -> None:
    if query.shape[1] != gallery.shape[1]:
        raise ValueError(
            f"gallery must have the {query.shape[1]} dimensions of {query_name}, "
            f"got {gallery.shape[1]}: embed both with the same model"
        )


def as_labels(y: Array, n: int, name: str = "labels", of: str = "embeddings") -> Tensor:
    """`y` as n integers, one for each row of `of`."""
    if not isinstance(y, Tensor):
        array = np.asarray(y)
        if array.dtype.kind not in "iu":
            raise ValueError(f"{name} must be integers, got {array.dtype}: number the classes")
        # Unsigned values beyond int64 wrap around, which keeps different labels different.
        y = torch.from_numpy(array.astype(np.int64))
    if y.is_floating_point() or y.is_complex() or y.dtype == torch.bool:
        raise ValueError(f"{name} must be integers, got {y.dtype}: convert with .long()")
    if y.shape != (n,):
        raise ValueError(f"{name} must be ({n},), one for each row of {of}, got {tuple(y.shape)}")
    return y.detach().long()


def is_integer(number: object) -> bool:
    """Whether it is a Python or numpy integer, and not a bool."""
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def check_size(size: int | None, default: int, name: str) -> int:
    """`size`, an integer >= 1, or the default if it is None."""
    if size is None:
        return default
    if not is_integer(size) or size < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {size!r}: try {default}")
    return int(size)


# ---- Exact


def unit(x: Tensor) -> Tensor:
    """`x` with each row divided by its norm, in place; rows of zeros stay zero."""
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    info = torch.finfo(x.dtype)
    # Squares of very long or very short rows overflow or underflow: rescale those first.
    extreme = (length < info.tiny**0.25) | (length > info.max**0.25)
    rows = extreme.squeeze(1).nonzero().squeeze(1)
    if len(rows):
        peak = x[rows].abs().amax(1, keepdim=True)
        x[rows] = x[rows] / peak.where(peak > 0, 1)
        length[rows] = torch.linalg.vector_norm(x[rows], dim=1, keepdim=True)
    return x.div_(length.where(length > 0, 1))


GATHERED = 2**22
"""Numbers gathered at once on devices without a sampled product."""


def dots(x: Tensor, y: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(p,) x[row] . y[column], with `row` ascending.

    A large product rounds differently depending on its shape, the library and the threads. A value
    computed here depends on its two vectors alone: equal vectors have equal similarities, ties are
    ties, and no result depends on how the work was divided.
    """
    if x.device.type != "cpu":
        parts = max(1, GATHERED // x.shape[1])
        pairs = zip(row.split(parts), column.split(parts), strict=True)
        return torch.cat([(x[i] * y[j]).sum(1) for i, j in pairs])
    begin = torch.searchsorted(row, torch.arange(len(x) + 1))
    wanted = _sparse(begin, column, x.new_zeros(len(row)), len(x), len(y))
    return torch.sparse.sampled_addmm(wanted, x, y.T, beta=0.0).values()


def _sparse(begin: Tensor, column: Tensor, values: Tensor, rows: int, columns: int) -> Tensor:
    return torch.sparse_csr_tensor(begin, column, values, (rows, columns), check_invariants=False)


# torch warns at the first sparse matrix of a process. Create one here, since warnings cannot be
# silenced reliably in threads.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    _sparse(torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(1), 1, 1)


def nonzero(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the nonzero entries, in the order in which they lie in memory."""
    if not flags.is_contiguous():
        column, row = nonzero(flags.T)
        return row, column
    if flags.device.type != "cpu":
        row, column = flags.nonzero(as_tuple=True)
        return row, column
    # numpy finds them several times as fast as torch.
    place = torch.from_numpy(np.flatnonzero(flags.numpy()))
    row = place.div(flags.shape[1], rounding_mode="floor")
    return row, place - row * flags.shape[1]


# ---- Fast, with a known error

TYPES = (torch.int8, torch.bfloat16, torch.float32)
"""From coarse to fine. Many processors multiply bfloat16 about twice and int8 about four times as
fast as float32; which types pay off is measured once per process. Only speed depends on it."""

SHORT = 32
"""Coarse types do not pay off for vectors of fewer dimensions."""

PAYS = 0.7
"""A coarser product must take less than this fraction of the time of the next finer one."""

LEAST = torch.iinfo(torch.int32).min
LARGE = 2.0**30
"""Beyond every sum of products of bytes, and exact both in float32 and in int32."""


@dataclass(frozen=True)
class Rounded:
    """Unit rows x as `unit` times x', with x' in a shorter type.

    Attributes:
        x: (n, d) x'.
        unit: what a 1 in x' stands for; 1 unless x' are integers.
        error: (n, 1) see `error_bound`.
        grain: the product itself is rounded too, by at most this fraction of its value.
    """

    x: Tensor
    unit: float
    error: Tensor
    grain: float

    def __getitem__(self, rows: slice) -> Rounded:
        return Rounded(self.x[rows], self.unit, self.error[rows], self.grain)


def rounded(x: Tensor, dtype: torch.dtype, unit: float | None = None) -> Rounded:
    """Rows of norm one or zero in another type; `unit` applies to int8 (default: the best one)."""
    error = torch.full((len(x), 1), summation_error(x.shape[1], dtype), device=x.device)
    if dtype == x.dtype:
        return Rounded(x, 1.0, error, 0.0)
    if dtype != torch.int8:
        unit = 1.0
    elif unit is None:
        unit = best_unit(x)
    short = torch.empty(x.shape, dtype=dtype, device=x.device)
    for at in range(0, len(x), 4096):
        rows = slice(at, at + 4096)
        short[rows] = _quantize(x[rows], unit) if dtype == torch.int8 else x[rows]
        lost = x[rows] - short[rows].to(x.dtype) * unit
        error[rows] += torch.linalg.vector_norm(lost, dim=1, keepdim=True)
    return Rounded(short, unit, error, torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0)


def error_bound(error: Tensor, other: Tensor) -> Tensor:
    """(n, 1) bound on the error of a product of the row with any of the `other` rows.

        | x . y  -  x' . y' |  <=  |x - x'| |y|  +  |x'| |y - y'|  +  rounding of the sums

    where |y| is 1 and |x'| hardly more.
    """
    most = other.max()
    return (error + most) * (1 + most + error.max())


def summation_error(d: int, dtype: torch.dtype) -> float:
    """Half of the error of two sums of d products: the fast one and that of `dots`.

    Each is off by at most half of eps per term. Eight more terms are for the thresholds.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    error = 0.55 * (d + 8) * torch.finfo(wide).eps
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        error += 2**-7  # float32 may then be multiplied as something shorter
    return error


def multiply(x: Rounded, y: Rounded, S: Tensor, spare: Tensor) -> Tensor:
    """x' . y' in the memory of S: float32, or int32 where x' are integers.

    `spare` is a buffer as large as S.
    """
    a, b = x.x, y.x.T
    if a.dtype == torch.float32:
        return torch.mm(a, b, out=S)
    if a.dtype == torch.int8:
        return torch._int_mm(a, b, out=S.view(torch.int32))
    if a.dtype == torch.float64:
        return S.copy_(a @ b)
    return S.copy_(torch.mm(a, b, out=spare.view(-1).view(a.dtype)[: S.numel()].view(S.shape)))


@dataclass(frozen=True)
class Block:
    """Similarities of b queries to w rows of the gallery, with a known error.

    Attributes:
        S: (b, w) in `unit`s, float32 or int32; `least` for pairs that do not count.
        error: (b, 1) bound on the error of the row's similarities,
        grain: and on their further error, as a fraction of the value.
    """

    S: Tensor
    unit: float
    error: Tensor
    grain: float

    @classmethod
    def of(cls, x: Rounded, y: Rounded, S: Tensor, spare: Tensor) -> Block:
        """The product of x and y, in the memory of S."""
        S = multiply(x, y, S, spare)
        return cls(S, x.unit * y.unit, error_bound(x.error, y.error), x.grain)

    def rows(self, rows: Tensor) -> Block:
        return Block(self.S[rows], self.unit, self.error[rows], self.grain)

    @property
    def least(self) -> float:
        return LEAST if self.S.dtype == torch.int32 else -torch.inf

    def reaching(self, t: Tensor) -> Tensor:
        """Where a similarity may be >= t; elsewhere it is certainly less. t is (b, 1)."""
        low = t - self.error
        low -= self.grain * low.abs()
        return compare(np.greater_equal, self.S, self._bound(low, torch.ceil))

    def above(self, t: Tensor) -> Tensor:
        """Where a similarity is certainly > t. t is (b, 1)."""
        high = t + self.error
        high += self.grain * high.abs()
        return compare(np.greater, self.S, self._bound(high, torch.floor))

    def surpassing(self, S: Tensor) -> Tensor:
        """(b,) values of S above which a similarity certainly exceeds that of these."""
        high = self._similarity(S, 1) + self.error
        high += self.grain * high.abs()
        return self._bound(high, torch.floor).squeeze(1).where(S.gt(self.least), self.least)

    def equaling(self, S: Tensor) -> Tensor:
        """(b,) values of S below which a similarity is certainly less than that of these."""
        low = self._similarity(S, -1) - self.error
        low -= self.grain * low.abs()
        return self._bound(low, torch.ceil).squeeze(1).where(S.gt(self.least), self.least)

    def _similarity(self, S: Tensor, sign: int) -> Tensor:
        """(b, 1) the largest (sign 1) or least (-1) similarities that may have these values."""
        s = S[:, None] * self.unit
        return s + sign * (2 * self.grain * s.abs() + self.error)  # 1 / (1 - grain) < 1 + 2 grain

    def _bound(self, t: Tensor, to_integer: Callable[[Tensor], Tensor]) -> Tensor:
        """t as S is compared with it."""
        t = (t / self.unit).float()
        if self.S.dtype != torch.int32:
            return t
        return to_integer(t).clamp_(-LARGE, LARGE).to(torch.int32)


def compare(which: np.ufunc, S: Tensor, t: Tensor) -> Tensor:
    """S >= t or S > t, laid out in memory as S is."""
    if S.device.type != "cpu":
        return S.ge(t) if which is np.greater_equal else S.gt(t)
    return torch.from_numpy(which(S.numpy(), t.numpy()))  # several times as fast as torch


@lru_cache(maxsize=8)
def fast_types(device: torch.device, d: int) -> tuple[torch.dtype, ...]:
    """Those of TYPES worth trying, coarse ones first; float32 is always the last."""
    chosen: tuple[torch.dtype, ...] = (torch.float32,)
    if device.type != "cpu" or d < SHORT:
        return chosen
    fastest = product_seconds(torch.float32, d)
    for dtype in (torch.bfloat16, torch.int8):
        seconds = product_seconds(dtype, d)
        if seconds < PAYS * fastest:
            chosen, fastest = (dtype, *chosen), seconds
    return chosen


def product_seconds(dtype: torch.dtype, d: int, side: int = 480) -> float:
    """The time of a product on one core; infinite where it is unavailable or wrong."""
    largest = 127 if dtype == torch.int8 else 1
    x = torch.full((side, d), largest, dtype=dtype)
    x[::2] *= -1
    numbers = Rounded(x, 1.0, torch.empty(0), 0.0)
    S, spare = torch.empty(2, side, side)
    seconds = []
    try:
        for _ in range(6):
            start = time.thread_time()
            made = multiply(numbers, numbers, S, spare)
            seconds.append(time.thread_time() - start)
    except (AttributeError, RuntimeError, TypeError):
        return float("inf")
    # Without the right instructions large sums may saturate.
    error = (made.abs() / (largest * largest * d) - 1).abs().max()
    return min(seconds) if error <= torch.finfo(torch.bfloat16).eps else float("inf")


def _quantize(x: Tensor, unit: float) -> Tensor:
    return (x / unit).round_().clamp_(-127, 127)


def best_unit(x: Tensor) -> float:
    """The unit with the smallest worst error: a small one clips, a large one is coarse."""
    sample = x[:: -(-len(x) // 1024)]
    largest = float(sample.abs().max())
    units = [largest / 127 * 0.85**i for i in range(12)] if largest else [1.0]
    return min(units, key=lambda u: float((sample - _quantize(sample, u) * u).norm(dim=1).max()))
