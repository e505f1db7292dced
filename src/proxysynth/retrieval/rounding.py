"""Embeddings in fewer bits, with what each row lost: for products that need only be nearly right.

Many processors have instructions that multiply bfloat16 about twice and int8 about four times as
fast as float32. Which types pay is measured once. Nothing but speed depends on it, since what a
product leaves open is decided exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

TYPES = (torch.int8, torch.bfloat16, torch.float32)
"""From coarse to fine."""

SHORT = 32
"""Vectors of fewer dimensions are not worth it."""

PAYS = 0.7
"""A coarser product must take less than this part of the time of the next finer one."""


@dataclass(frozen=True)
class Rounded:
    """Unit rows x as `unit` times x', with x' in a shorter type.

    Attributes:
        x: (n, d) x'.
        unit: what a 1 in x' stands for; 1 unless x' are whole numbers.
        off: (n, 1) see `slack`.
        grain: a product is rounded besides, by no more than this fraction of itself.
    """

    x: Tensor
    unit: float
    off: Tensor
    grain: float


def rounded(x: Tensor, dtype: torch.dtype, unit: float | None = None) -> Rounded:
    """The rows of x, of length one or zero, in another type; `unit` of whole numbers, if known."""
    off = torch.full((len(x), 1), summing(x.shape[1], dtype), device=x.device)
    if dtype == x.dtype:
        return Rounded(x, 1.0, off, 0.0)
    if dtype != torch.int8:
        unit = 1.0
    elif unit is None:
        unit = best_unit(x)
    short = torch.empty(x.shape, dtype=dtype, device=x.device)
    for at in range(0, len(x), 4096):
        rows = slice(at, at + 4096)
        short[rows] = _whole(x[rows], unit) if dtype == torch.int8 else x[rows]
        lost = x[rows] - short[rows].to(x.dtype) * unit
        off[rows] += torch.linalg.vector_norm(lost, dim=1, keepdim=True)
    return Rounded(short, unit, off, torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0)


def slack(off: Tensor, other: Tensor) -> Tensor:
    """(n, 1) by how much a product of the row with any of the `other` rows may be off.

        | x . y  -  x' . y' |  <=  |x - x'| |y|  +  |x'| |y - y'|  +  rounding of the sums

    where |y| is 1 and |x'| hardly more.
    """
    most = other.max()
    return (off + most) * (1 + most + off.max())


def summing(d: int, dtype: torch.dtype) -> float:
    """Half of what the sums of d products may be off by: this one and that of `dots`.

    Each is rounded by no more than half of eps per term. Eight more are for the thresholds.
    """
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    error = 0.55 * (d + 8) * torch.finfo(wide).eps
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        error += 2**-7  # float32 may then be multiplied as something shorter
    return error


def multiply(x: Rounded, y: Rounded, S: Tensor, spare: Tensor) -> Tensor:
    """x' . y' in the memory of S, as float32, or as int32 where x' are whole numbers.

    `spare` is a buffer as large as S.
    """
    a, b = x.x, y.x.T
    if a.dtype == torch.float32:
        return torch.mm(a, b, out=S)
    if a.dtype == torch.int8:
        return torch._int_mm(a, b, out=S.view(torch.int32))
    return S.copy_(torch.mm(a, b, out=spare.view(-1).view(a.dtype)[: S.numel()].view(S.shape)))


@lru_cache(maxsize=8)
def types_that_pay(device: torch.device, d: int) -> tuple[torch.dtype, ...]:
    """Those of TYPES worth trying, coarse ones first, float32 always the last."""
    chosen: tuple[torch.dtype, ...] = (torch.float32,)
    if device.type != "cpu" or d < SHORT:
        return chosen
    fastest = _seconds(torch.float32, d)
    for dtype in (torch.bfloat16, torch.int8):
        seconds = _seconds(dtype, d)
        if seconds < PAYS * fastest:
            chosen, fastest = (dtype, *chosen), seconds
    return chosen


def _seconds(dtype: torch.dtype, d: int, side: int = 480) -> float:
    """The time of a product on one core; infinite where it is not to be had, or not right."""
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
    # Without the right instructions large sums may be cut off.
    error = (made.abs() / (largest * largest * d) - 1).abs().max()
    return min(seconds) if error <= torch.finfo(torch.bfloat16).eps else float("inf")


def _whole(x: Tensor, unit: float) -> Tensor:
    return (x / unit).round_().clamp_(-127, 127)


def best_unit(x: Tensor) -> float:
    """The unit by which no row loses much: a small one cuts off, a large one is coarse."""
    sample = x[:: -(-len(x) // 1024)]
    largest = float(sample.abs().max())
    units = [largest / 127 * 0.85**i for i in range(12)] if largest else [1.0]
    return min(units, key=lambda u: float((sample - _whole(sample, u) * u).norm(dim=1).max()))
