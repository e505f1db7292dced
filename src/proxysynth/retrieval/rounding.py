"""Embeddings in fewer bits, with what each row lost: for products that need only be nearly right.

Processors multiply short numbers faster, where they have instructions for it: on the machine this
was written on bfloat16 twice and int8 four times as fast as float32. Which types pay is measured
once. Nothing but speed depends on it, since what a product leaves open is decided exactly.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

TYPES = (torch.int8, torch.bfloat16, torch.float32)
"""From coarse to fine."""

PAYS = 0.7
"""A coarser product must take less than this part of the time of the next finer one."""


@dataclass(frozen=True)
class Rounded:
    """Unit rows x as `unit` times x', with x' in a shorter type.

    Attributes:
        x: (n, d) x'.
        unit: the length of 1 in x'; only whole numbers have another than 1.
        off: (n, 1) no product of two rows is off by more than the sum of their two.
        grain: the result is rounded besides, by no more than this fraction of itself.
    """

    x: Tensor
    unit: float
    off: Tensor
    grain: float


def rounded(x: Tensor, dtype: torch.dtype) -> Rounded:
    """The rows of x, of length one or zero, in another type.

        | x . y  -  x' . y' |  <=  |x - x'| |y|  +  |x'| |y - y'|  +  rounding of the sum
    """
    # A sum is rounded by half of eps per dimension, the product's and that of the exact similarity.
    summing = 0.55 * x.shape[1] * torch.finfo(torch.float32).eps
    if dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest":
        summing += 2**-7  # float32 may then be multiplied as something shorter
    off = torch.full((len(x), 1), summing, device=x.device)
    unit = _best_unit(x) if dtype == torch.int8 else 1.0
    short = torch.empty(x.shape, dtype=dtype, device=x.device) if dtype != x.dtype else x
    for at in range(0, len(x), 4096) if dtype != x.dtype else ():
        rows = slice(at, at + 4096)
        short[rows] = _whole(x[rows], unit) if dtype == torch.int8 else x[rows]
        lost = x[rows] - short[rows].to(x.dtype) * unit
        off[rows] += torch.linalg.vector_norm(lost, dim=1, keepdim=True)
    # x' is a little longer or shorter than 1.
    off *= 1 + float(off.max())
    grain = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 0.0
    return Rounded(short, unit, off, grain)


def multiply(x: Rounded, rows: slice, y: Rounded, columns: slice, S: Tensor, spare: Tensor) -> None:
    """S = x' . y', in float32; `spare` is a buffer as large as S."""
    a, b = x.x[rows], y.x[columns].T
    if a.dtype == torch.float32:
        torch.mm(a, b, out=S)
    elif a.dtype == torch.int8:
        S.copy_(torch._int_mm(a, b, out=spare.view(torch.int32)))
    else:
        S.copy_(torch.mm(a, b, out=spare.view(-1).view(a.dtype)[: S.numel()].view(S.shape)))


@lru_cache(maxsize=8)
def types_that_pay(device: torch.device, d: int) -> tuple[torch.dtype, ...]:
    """Those of TYPES worth trying, coarse ones first, float32 always the last."""
    if device.type != "cpu":
        return (torch.float32,)
    chosen, fastest = (torch.float32,), _seconds(torch.float32, d)
    for dtype in (torch.bfloat16, torch.int8):
        seconds = _seconds(dtype, d)
        if seconds < PAYS * fastest:
            chosen, fastest = (dtype, *chosen), seconds
    return chosen


def _seconds(dtype: torch.dtype, d: int, side: int = 480) -> float:
    """The time of a product on one core, infinite where it is not to be had or not right."""
    x = torch.full((side, d), 127 if dtype == torch.int8 else 1, dtype=dtype)
    x[::2] *= -1
    seconds = []
    try:
        for _ in range(6):
            start = time.thread_time()
            S = torch._int_mm(x, x.T) if dtype == torch.int8 else torch.mm(x, x.T)
            seconds.append(time.thread_time() - start)
    except (AttributeError, RuntimeError):
        return float("inf")
    # Some processors cut off sums of large whole numbers.
    if dtype == torch.int8 and not (S.abs() == 127 * 127 * d).all():
        return float("inf")
    return min(seconds)


def _whole(x: Tensor, unit: float) -> Tensor:
    return (x / unit).round_().clamp_(-127, 127)


def _best_unit(x: Tensor) -> float:
    """The unit by which no row loses much: a small one cuts off, a large one is coarse."""
    sample = x[:: -(-len(x) // 1024)]
    largest = float(sample.abs().max())
    units = [largest / 127 * 0.85**i for i in range(12)] if largest else [1.0]
    return min(units, key=lambda u: float((sample - _whole(sample, u) * u).norm(dim=1).max()))
