"""How losses see embeddings and proxies: dot products or cosines, (n, c) or (n, c, k)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-12
"""Vectors shorter than this are divided by it instead of by their length, as in F.normalize."""


def at_least_float32(t: Tensor) -> Tensor:
    """Half precision as float32: exponentials and norms of half numbers overflow, margins drown."""
    return t.float() if t.dtype in (torch.float16, torch.bfloat16) else t


def unit(v: Tensor) -> Tensor:
    """Each vector along the last dimension divided by its length."""
    return F.normalize(at_least_float32(v), dim=-1, eps=EPS).to(v.dtype)


def dot(x: Tensor, p: Tensor) -> Tensor:
    """S = x . p for every embedding and every (sub-)proxy."""
    if p.dim() == 3:
        return (x @ p.flatten(0, 1).t()).unflatten(1, p.shape[:2])
    return x @ p.t()


def cosine(x: Tensor, p: Tensor) -> Tensor:
    """S = x . p / (|x| |p|) for every embedding and every (sub-)proxy."""
    return dot(unit(x), unit(p))
