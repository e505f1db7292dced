"""Cosine similarities, and exact nearest neighbors by them.

Exact values of chosen pairs (`dots`, `cosines`) decide everything: each is a function of its two
vectors alone, so no result depends on block sizes, threads or the queries that share a product.
Fast products only rule out what cannot matter, by a bound on their error (`summation_error`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

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
            kind = "strings" if array.dtype.kind in "US" else array.dtype
            raise ValueError(f"{name} must be integers, got {kind}: number the classes from 0")
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


ANY = -2.0
"""A threshold below every similarity."""


def check_threshold(threshold: float) -> float:
    """`threshold`, a cosine in [-1, 1]."""
    if not -1 <= threshold <= 1:
        raise ValueError(f"threshold must be a cosine in [-1, 1], got {threshold!r}")
    return threshold


# ---- Exact similarities


def normalize_rows_(x: Tensor) -> Tensor:
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
    near = normalize_rows_(
        gallery[used.to(gallery.device)].to(exact.device, torch.float64, copy=True)
    )
    return dots(exact, near, row, slot).clamp_(-1, 1)


def nonzero(flags: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of the nonzero entries, in the order in which they lie in memory."""
    if not flags.is_contiguous():
        column, row = nonzero(flags.T)
        return row, column
    place = flat_nonzero(flags.view(-1))
    row = place.div(flags.shape[1], rounding_mode="floor")
    return row, place - row * flags.shape[1]


def flat_nonzero(flags: Tensor) -> Tensor:
    if flags.device.type != "cpu":
        return flags.nonzero().squeeze(1)
    return torch.from_numpy(np.flatnonzero(flags.numpy()))  # several times as fast as torch


def summation_error(d: int, dtype: torch.dtype) -> float:
    """Half of the error of two sums of d products: the fast one and that of `dots`.

    Each is off by at most half of eps per term. Eight more terms are for the thresholds.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    error = 0.55 * (d + 8) * torch.finfo(wide).eps
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        error += 2**-7  # float32 may then be multiplied as something shorter
    return error


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
    gallery: Array,
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
    g = as_matrix(gallery, "gallery")
    check_dimensions(x, g, "queries")
    if not is_integer(k) or not 1 <= k <= len(g):
        raise ValueError(f"k must be an integer from 1 to {len(g)}, the gallery's size, got {k!r}")
    device = x.device
    exact = normalize_rows_(x.to(torch.float64, copy=True))
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
    s = cosines(normalize_rows_(queries.to(torch.float64, copy=True)), gallery, row, column)
    finite, all_rows = s.isfinite(), torch.arange(len(queries), device=row.device)
    _insert(best, all_rows, row[finite], s[finite], column[finite])
    return best


def as_excluded(exclude: Exclude | None, n: int) -> Excluded:
    """For each of n queries the gallery indices that it must not find, without negative ones."""
    if exclude is not None and len(exclude) != n:
        raise ValueError(f"exclude must have an entry for each of {n} queries, got {len(exclude)}")
    each = exclude.tolist() if isinstance(exclude, Tensor | np.ndarray) else exclude or [None] * n
    lists = [() if one is None else one if isinstance(one, Sequence) else (one,) for one in each]
    return [[j for j in some if j >= 0] for some in lists]


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
    part = normalize_rows_(part.where(finite[:, None], 0).clone())
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
