"""Cosine similarities, and exact nearest neighbors by them.

Exact values of chosen pairs (`dots`, `cosines`) decide everything: each is a function of its two
vectors alone, so no result depends on block sizes, threads or the queries that share a product.
Fast products only rule out what cannot matter, so they may be computed in fewer bits as long as a
bound on their error is known (`Rounded`, `Block`).
"""

from __future__ import annotations

import operator
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

Array = Tensor | np.ndarray[Any, Any]
"""A torch tensor, on any device, or a numpy array."""


class Rows(ABC):
    """A matrix (n, d) that is not in memory: its slices and chosen rows are."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def __getitem__(self, which: slice | Tensor) -> Tensor: ...


# ---- Inputs


def as_embeddings(x: Array, name: str = "embeddings") -> Tensor:
    """`x` as a finite float32 or float64 matrix; half precision becomes float32."""
    matrix = as_matrix(x, name)
    matrix = matrix.to(compute_type(matrix))
    low, high = torch.aminmax(matrix)  # NaN propagates to both
    if not (low.isfinite() and high.isfinite()):
        row = int((~matrix.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"{name} must be finite, but row {row} contains NaN or infinity")
    return matrix


def as_matrix(x: Array, name: str) -> Tensor:
    """`x` as a floating-point tensor (n, d), without reading or copying it."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fiu":
        with warnings.catch_warnings():  # read-only arrays: we do not write to them
            warnings.simplefilter("ignore", UserWarning)
            x = torch.from_numpy(np.ascontiguousarray(x, x.dtype.newbyteorder("=")))
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


def compute_type(*matrices: Tensor | Rows) -> torch.dtype:
    """float64 if any of the matrices is float64, else float32."""
    double = any(matrix.dtype == torch.float64 for matrix in matrices)
    return torch.float64 if double else torch.float32


def check_dimensions(query: Tensor, gallery: Tensor | Rows, query_name: str) -> None:
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


class Sets(NamedTuple):
    """Queries x with labels y, and a gallery with its labels: of one type, on one device."""

    x: Tensor
    y: Tensor
    gallery: Tensor
    gallery_y: Tensor
    own: bool  # the queries are the gallery: none may then retrieve itself


def as_sets(
    embeddings: Array,
    labels: Array,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
) -> Sets:
    """Labeled queries and the gallery, checked."""
    if (gallery is None) != (gallery_labels is None):
        raise ValueError("gallery and gallery_labels must be given together")
    x = as_embeddings(embeddings)
    y = as_labels(labels, len(x)).to(x.device)
    if gallery is None or gallery_labels is None:
        return Sets(x, y, x, y, True)
    g = as_embeddings(gallery, "gallery")
    check_dimensions(x, g, "embeddings")
    gy = as_labels(gallery_labels, len(g), "gallery_labels", "gallery").to(x.device)
    kind = compute_type(x, g)
    return Sets(x.to(kind), y, g.to(x.device, kind), gy, False)


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


# ---- Exact similarities


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


GATHERED = 2**22  # numbers gathered at once on devices without a sampled product


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
    begin, values = torch.searchsorted(row, torch.arange(len(x) + 1)), x.new_zeros(len(row))
    shape = len(x), len(y)
    wanted = torch.sparse_csr_tensor(begin, column, values, shape, check_invariants=False)
    return torch.sparse.sampled_addmm(wanted, x, y.T, beta=0.0).values()


# torch warns at the first sparse matrix of a process. Create one here, since warnings cannot be
# silenced reliably in threads.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [0.0], (1, 1), check_invariants=False)


def cosines(exact: Tensor, gallery: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """(p,) float64 cosines of unit rows and rows of the gallery, with `row` ascending."""
    used, slot = torch.unique(column, return_inverse=True)
    near = unit(gallery[used.to(gallery.device)].to(exact.device, torch.float64, copy=True))
    return dots(exact, near, row, slot).clamp_(-1, 1)


def nonzero(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the nonzero entries, in the order in which they lie in memory."""
    if not flags.is_contiguous():
        column, row = nonzero(flags.T)
        return row, column
    place = places(flags.view(-1))
    row = place.div(flags.shape[1], rounding_mode="floor")
    return row, place - row * flags.shape[1]


def places(flags: Tensor) -> Tensor:
    if flags.device.type != "cpu":
        return flags.nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(flags.numpy()))  # several times as fast as torch


# ---- Fast similarities, with a known error

TYPES = (torch.int8, torch.bfloat16, torch.float32)
"""From coarse to fine. Many processors multiply bfloat16 about twice and int8 about four times as
fast as float32; which types pay off is measured once per process. Only speed depends on it."""

SHORT = 32  # coarse types do not pay off for vectors of fewer dimensions
PAYS = 0.7  # a coarser product must take less than this share of the time of the next finer one
LEAST = torch.iinfo(torch.int32).min
LARGE = 2.0**30  # beyond every sum of products of bytes, and exact both in float32 and in int32


@dataclass(frozen=True)
class Rounded:
    """Unit rows x as `unit` times x', with x' in a shorter type."""

    x: Tensor  # (n, d) x'
    unit: float  # what a 1 in x' stands for; 1 unless x' are integers
    error: Tensor  # (n, 1) see `error_bound`
    grain: float  # the product itself is rounded too, by at most this fraction of its value

    def __getitem__(self, rows: slice | Tensor) -> Rounded:
        return Rounded(self.x[rows], self.unit, self.error[rows], self.grain)


def rounded(x: Tensor, dtype: torch.dtype, unit: float | None = None) -> Rounded:
    """Rows of norm one or zero in another type; `unit` applies to int8 (default: the best one)."""
    error = torch.full((len(x), 1), summation_error(x.shape[1], dtype), device=x.device)
    if dtype == x.dtype:
        return Rounded(x, 1.0, error, 0.0)
    unit = 1.0 if dtype != torch.int8 else best_unit(x) if unit is None else unit
    short = torch.empty(x.shape, dtype=dtype, device=x.device)
    for at in range(0, len(x), 4096):
        rows = slice(at, at + 4096)
        short[rows] = _quantize(x[rows], unit) if dtype == torch.int8 else x[rows]
        lost = x[rows] - short[rows].to(x.dtype) * unit
        error[rows] += torch.linalg.vector_norm(lost, dim=1, keepdim=True)
    return Rounded(short, unit, error, torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0)


def best_unit(x: Tensor) -> float:
    """The unit with the smallest worst error: a small one clips, a large one is coarse."""
    sample = x[:: -(-len(x) // 1024)]
    largest = float(sample.abs().max())
    units = [largest / 127 * 0.85**i for i in range(12)] if largest else [1.0]
    return min(units, key=lambda u: float((sample - _quantize(sample, u) * u).norm(dim=1).max()))


def _quantize(x: Tensor, unit: float) -> Tensor:
    return (x / unit).round_().clamp_(-127, 127)


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
    """x' . y' in S: float32, or int32 where x' are integers. `spare` is as large as S."""
    a, b = x.x, y.x.T
    if a.dtype == torch.float32:
        return torch.mm(a, b, out=S)
    if a.dtype == torch.int8:
        return torch._int_mm(a, b, out=S.view(torch.int32))
    return S.copy_(torch.mm(a, b, out=spare.view(-1).view(a.dtype)[: S.numel()].view(S.shape)))


@dataclass(frozen=True)
class Block:
    """Similarities of b queries to w rows of the gallery, with a known error."""

    S: Tensor  # (b, w) in `unit`s, float32 or int32; `least` for pairs that do not count
    x: Rounded  # the queries
    y: Rounded  # the rows

    @property
    def least(self) -> float:
        return LEAST if self.S.dtype == torch.int32 else -torch.inf

    @property
    def unit(self) -> float:
        return self.x.unit * self.y.unit

    @cached_property
    def error(self) -> Tensor:
        """(b, 1) bound on the error of the row's similarities, apart from the grain."""
        return error_bound(self.x.error, self.y.error)

    def reaching(self, t: Tensor) -> Tensor:
        """Where a similarity may be >= t; elsewhere it is certainly less. t is (b, 1)."""
        return self._compared(operator.ge, self._bound(t, -1))

    def above(self, t: Tensor) -> Tensor:
        """Where a similarity is certainly > t. t is (b, 1)."""
        return self._compared(operator.gt, self._bound(t, 1))

    def certain(self, S: Tensor, side: int) -> Tensor:
        """(b,) values of S above which (side 1) a similarity certainly exceeds that of these, or
        below which (side -1) it is certainly less."""
        s = S[:, None] * self.unit
        slack = 2 * self.x.grain * s.abs() + self.error  # 1 / (1 - grain) < 1 + 2 grain
        bound = self._bound(torch.add(s, slack, alpha=side), side).squeeze(1)
        return bound.where(S.gt(self.least), self.least)

    def _compared(self, compare: Callable[[Any, Any], Any], bound: Tensor) -> Tensor:
        if bound.device.type != "cpu":
            return compare(self.S, bound)
        # Several times as fast as torch.
        return torch.from_numpy(compare(self.S.numpy(), bound.numpy()))

    def _bound(self, t: Tensor, side: int) -> Tensor:
        """(b, 1) values of S beyond which a similarity is certainly > t, or below which < t."""
        t = torch.add(t, self.error, alpha=side)
        t = ((t + side * self.x.grain * t.abs()) / self.unit).float()
        if self.S.dtype != torch.int32:
            return t
        whole = t.floor() if side > 0 else t.ceil()
        return whole.clamp_(-LARGE, LARGE).to(torch.int32)


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


def product_seconds(dtype: torch.dtype, d: int) -> float:
    """The time of a product on one core; infinite where it is unavailable or wrong."""
    side, largest = 480, 127 if dtype == torch.int8 else 1
    x = torch.full((side, d), largest, dtype=dtype)
    x[::2] *= -1
    numbers, (S, spare) = Rounded(x, 1.0, torch.empty(0), 0.0), torch.empty(2, side, side)
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


# ---- Nearest neighbors

ROWS = 1024  # queries that share a product, at most
CELLS = 2**20  # similarities, and numbers of the gallery, held at once: what stays in the cache

Exclude = Tensor | Sequence[int | Sequence[int] | None]
Excluded = Sequence[Sequence[int]]
Among = np.ndarray[Any, np.dtype[np.int64]] | None


class Neighbors(NamedTuple):
    """The k nearest neighbors of each of n queries, nearest first.

    Where fewer than k rows could be found, the rest has similarity -inf and index -1.

    Attributes:
        similarities: (n, k) float64 cosines, descending.
        indices: (n, k) int64 rows of the gallery.
    """

    similarities: Tensor
    indices: Tensor

    @staticmethod
    def none(n: int, k: int, device: torch.device) -> Neighbors:
        return Neighbors(
            torch.full((n, k), -torch.inf, dtype=torch.float64, device=device),
            torch.full((n, k), -1, dtype=torch.int64, device=device),
        )


def nearest(
    queries: Array,
    gallery: Array | Rows,
    k: int,
    *,
    exclude: Exclude | None = None,
    among: Array | None = None,
    block: int | None = None,
) -> Neighbors:
    """The k rows of the gallery most similar to each query; ties go to the lower index.

    The gallery is read once, block by block, and neither copied as a whole nor changed, so it may
    be memory-mapped and of any floating-point type. Its rows need not be normalized. Rows with NaN
    or infinity are never found.

    Args:
        queries: (n, d).
        gallery: (N, d).
        k: an integer from 1 to N.
        exclude: for each query, the gallery indices it must not find: (n,) integers, negative for
            none, or a sequence with an index, None or several indices for each query. For the
            neighbors of a set within itself: `torch.arange(n)`.
        among: the only gallery indices to consider, ascending. Default: all.
        block: gallery rows per block; affects speed and memory only.
    """
    x = as_embeddings(queries, "queries")
    g = gallery if isinstance(gallery, Rows) else as_matrix(gallery, "gallery")
    check_dimensions(x, g, "queries")
    if not is_integer(k) or not 1 <= k <= len(g):
        raise ValueError(f"k must be an integer from 1 to {len(g)}, the gallery's size, got {k!r}")
    device = x.device
    exact = unit(x.to(torch.float64, copy=True))
    x = exact.to(compute_type(x, g))
    numbers = None if among is None else torch.as_tensor(among, device=device)
    n, N, d = len(x), len(g) if numbers is None else len(numbers), x.shape[1]
    pairs = [(i, int(j)) for i, some in enumerate(as_excluded(exclude, n)) for j in some]
    row, column = torch.tensor(pairs, dtype=torch.int64, device=device).view(-1, 2).T.contiguous()
    if numbers is not None and N:  # the place of each in `numbers`
        place = torch.searchsorted(numbers, column)
        column = place.where(numbers[place.clamp(max=N - 1)] == column, -1)
    height = min(n, ROWS, max(1, CELLS // (4 * k)))
    # Much wider than k, so that few of a block are among its own k nearest.
    width = check_size(block, max(4 * k, CELLS // max(height, d)), "block")

    best = Neighbors.none(n, k, device)
    for low in range(0, N, width):
        if numbers is None:
            here = torch.arange(low, min(low + width, N), device=device)
            part = g[low : low + width]
        else:
            here = numbers[low : low + width]
            part = g[here.to(g.device)]
        part, scale = _scaled(part.to(device, x.dtype))
        hidden = (column >= low) & (column < low + len(part))
        for at in range(0, n, height):
            rows = slice(at, min(at + height, n))
            few = rows.stop - at <= 8  # much faster this way round
            S = (part @ x[rows].T).T.contiguous() if few else x[rows] @ part.T
            S.mul_(scale)
            inside = hidden & (row >= rows.start) & (row < rows.stop)
            S[row[inside] - at, column[inside] - low] = -torch.inf
            S.masked_fill_(S.isnan(), -torch.inf)
            _merge(best, rows, S, exact, part, here)
    return best


def top(queries: Tensor, gallery: Tensor, row: Tensor, column: Tensor, k: int) -> Neighbors:
    """The k nearest of candidate pairs (queries[row], gallery[column]), by cosines in float64.

    Args:
        queries: (n, d).
        gallery: (N, d) of any floating-point type; may be memory-mapped.
        row, column: (p,) with `row` ascending, and `column` ascending within a row.
    """
    best = Neighbors.none(len(queries), k, queries.device)
    s = cosines(unit(queries.to(torch.float64, copy=True)), gallery, row, column)
    finite, all_rows = s.isfinite(), torch.arange(len(queries), device=row.device)
    _insert(best, all_rows, row[finite], s[finite], column[finite])
    return best


def as_excluded(exclude: Exclude | None, n: int) -> Excluded:
    """For each of n queries the gallery indices that it must not find."""
    if exclude is not None and len(exclude) != n:
        raise ValueError(f"exclude must have an entry for each of {n} queries, got {len(exclude)}")
    each = exclude.tolist() if isinstance(exclude, Tensor | np.ndarray) else exclude or [None] * n
    return [() if one is None else one if isinstance(one, Sequence) else (one,) for one in each]


def _scaled(part: Tensor) -> tuple[Tensor, Tensor]:
    """The rows, and what their dot products with unit vectors are to be multiplied by.

    NaN marks rows that are not finite; rows of zeros have similarity 0 to everything.
    """
    length = torch.linalg.vector_norm(part, dim=1)
    info = torch.finfo(part.dtype)
    ordinary = (length > info.tiny**0.25) & (length < info.max**0.25)
    if bool(ordinary.all()):
        return part, length.reciprocal_()
    finite = part.isfinite().all(1)
    part = unit(part.where(finite[:, None], 0).clone())
    return part, torch.ones_like(length).masked_fill_(~finite, torch.nan)


def _merge(
    best: Neighbors, rows: slice, S: Tensor, exact: Tensor, part: Tensor, here: Tensor
) -> None:
    """Insert those of a block that are nearer than the `best` so far, of lower gallery indices.

    Args:
        S: (b, w) similarities of the queries `rows`, rounded; -inf for what must not be found.
        exact: (n, d) the queries in float64.
        part: (w, d) the gallery's rows, with the indices `here`.
    """
    worst = best.similarities[rows, -1]
    error = 2 * summation_error(part.shape[1], part.dtype)
    promising = (S.amax(1) >= worst - error).nonzero().squeeze(1)
    if not len(promising):
        return
    S = S[promising]
    low = S.topk(min(best.indices.shape[1], S.shape[1]), dim=1).values[:, -1] - 2 * error
    low = low.double().maximum(worst[promising] - error)
    # Rounded down, so that a comparison in the type of S loses nothing.
    low = low.to(S.dtype).nextafter(S.new_tensor(-torch.inf)).clamp_(min=-4)
    row, column = nonzero(S.ge(low[:, None]))
    at = promising + rows.start
    _insert(best, at, row, cosines(exact[at], part, row, column), here[column])


def _insert(best: Neighbors, at: Tensor, row: Tensor, s: Tensor, index: Tensor) -> None:
    """Insert pairs of query at[row] and gallery `index`, all beyond those in `best`."""
    k = best.indices.shape[1]
    found = torch.bincount(row, minlength=len(at))
    place = k + torch.arange(len(row), device=row.device) - (found.cumsum(0) - found)[row]
    both = best.similarities.new_full((len(at), k + int(found.max())), -torch.inf)
    which = best.indices.new_full(both.shape, -1)
    both[:, :k], which[:, :k] = best.similarities[at], best.indices[at]
    both[row, place], which[row, place] = s, index
    both, order = both.sort(dim=1, descending=True, stable=True)
    best.similarities[at] = both[:, :k]
    best.indices[at] = which.gather(1, order[:, :k])
