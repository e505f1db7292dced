"""Batches that fit a loss, and losses at settings other than their defaults."""

from __future__ import annotations

import torch
from torch import Tensor

import proxysynth as ps

EVERY_LOSS = {
    **{name: kind() for name, kind in ps.LOSSES.items()},
    "squared_proxy_nca": ps.SquaredProxyNCA(scale=3.0),
    "margins": ps.MarginSoftmax(scale=11.0, m1=1.1, m2=0.2, m3=0.05),
    "proxy_nca_scaled": ps.ProxyNCA(scale=5.0),
    "norm_softmax_steep": ps.NormSoftmax(scale=100.0),
    "proxy_anchor_steep": ps.ProxyAnchor(scale=64.0, margin=0.2),
    "soft_triple_as_its_paper": ps.SoftTriple(margin=0.0, scaled_margin=0.05, k=3, regularizer=0.2),
}


def batch(
    loss, n: int = 7, c: int = 5, d: int = 4, dtype: torch.dtype = torch.float64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """x and p with gradients, y with at least two classes."""
    generator = torch.Generator().manual_seed(seed)
    shape = (c, loss.k, d) if hasattr(loss, "k") else (c, d)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype)
    p = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    y = torch.randint(c, (n,), generator=generator)
    y[0], y[1] = 0, c - 1
    return x.requires_grad_(), y, p.requires_grad_()


def gradients(value: Tensor, *tensors: Tensor) -> list[Tensor]:
    """The value and its gradients, detached, to compare with others."""
    return [value.detach(), *torch.autograd.grad(value, tensors)]
