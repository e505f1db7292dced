"""The equations of the losses, written as loops over single numbers. Slow, float64, independent."""

from __future__ import annotations

import torch
from torch import Tensor


def s(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a.norm() * b.norm())


def log_sum(terms: list[Tensor]) -> Tensor:
    """log sum exp by definition, after taking the largest out."""
    top = max(float(t.detach()) for t in terms)
    return sum((t - top).exp() for t in terms).log() + top  # type: ignore[union-attr]


def softmax(x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    rows = [log_sum([xi @ q for q in p]) - xi @ p[t] for xi, t in zip(x, y, strict=True)]
    return sum(rows) / len(rows)


def margins(x: Tensor, y: Tensor, p: Tensor, scale: float, m1: float, m2: float, m3: float):
    total = 0.0
    for xi, t in zip(x, y, strict=True):
        own = scale * (torch.cos(m1 * torch.arccos(s(xi, p[t])) + m2) - m3)
        others = [scale * s(xi, q) for c, q in enumerate(p) if c != t]
        total = total - (own - log_sum([own, *others]))
    return total / len(x)


def norm_softmax(x: Tensor, y: Tensor, p: Tensor, scale: float) -> Tensor:
    rows = []
    for xi, t in zip(x, y, strict=True):
        rows.append(log_sum([scale * s(xi, q) for q in p]) - scale * s(xi, p[t]))
    return sum(rows) / len(rows)


def proxy_nca(x: Tensor, y: Tensor, p: Tensor, scale: float) -> Tensor:
    def d(a: Tensor, b: Tensor) -> Tensor:
        return (a / a.norm() - b / b.norm()).norm()

    total = 0.0
    for xi, t in zip(x, y, strict=True):
        others = log_sum([-scale * d(xi, q) for c, q in enumerate(p) if c != t])
        total = total - (-scale * d(xi, p[t]) - others)
    return total / len(x)


def squared_proxy_nca(x: Tensor, y: Tensor, p: Tensor, scale: float) -> Tensor:
    def d2(a: Tensor, b: Tensor) -> Tensor:
        return (a / a.norm() - b / b.norm()).square().sum()

    total = 0.0
    for xi, t in zip(x, y, strict=True):
        total = total + scale * d2(xi, p[t]) + log_sum([-scale * d2(xi, q) for q in p])
    return total / len(x)


def soft_triple(x, y, p, scale, temperature, margin, scaled_margin):
    def relaxed(a: Tensor, centers: Tensor) -> Tensor:
        sims = [s(a, b) for b in centers]
        weights = [(v / temperature).exp() for v in sims]
        return sum(w * v for w, v in zip(weights, sims, strict=True)) / sum(weights)

    total = 0.0
    for xi, t in zip(x, y, strict=True):
        own = scale * (relaxed(xi, p[t]) - scaled_margin) - margin
        others = [scale * relaxed(xi, q) for c, q in enumerate(p) if c != t]
        total = total - (own - log_sum([own, *others]))
    return total / len(x)


def soft_triple_penalty(p: Tensor, tau: float) -> Tensor:
    c, k = p.shape[:2]
    total = torch.zeros((), dtype=p.dtype)
    for centers in p:
        for a in range(k):
            for b in range(a + 1, k):
                total = total + torch.sqrt(2 + 1e-5 - 2 * s(centers[a], centers[b]))
    return tau * total / (c * k * (k - 1))


def proxy_anchor(x: Tensor, y: Tensor, p: Tensor, scale: float, margin: float) -> Tensor:
    zero = torch.zeros((), dtype=x.dtype)
    pull, push, present = zero, zero, 0
    for c, q in enumerate(p):
        own = [-scale * (s(xi, q) - margin) for xi, t in zip(x, y, strict=True) if t == c]
        others = [scale * (s(xi, q) + margin) for xi, t in zip(x, y, strict=True) if t != c]
        if own:
            present += 1
            pull = pull + log_sum([zero, *own])
        push = push + log_sum([zero, *others])
    return pull / present + push / len(p)


def value(loss, x: Tensor, y: Tensor, p: Tensor) -> Tensor:
    """The equation that belongs to a loss of the package."""
    y = [int(t) for t in y]
    name = type(loss).__name__
    if name == "Softmax":
        return softmax(x, y, p)
    if name == "NormSoftmax":
        return norm_softmax(x, y, p, loss.scale)
    if name in ("SphereFace", "CosFace", "ArcFace", "MarginSoftmax"):
        return margins(x, y, p, loss.scale, loss.m1, loss.m2, loss.m3)
    if name == "ProxyNCA":
        return proxy_nca(x, y, p, loss.scale)
    if name == "SquaredProxyNCA":
        return squared_proxy_nca(x, y, p, loss.scale)
    if name == "SoftTriple":
        made = soft_triple(x, y, p, loss.scale, loss.temperature, loss.margin, loss.scaled_margin)
        return made + (soft_triple_penalty(p, loss.regularizer) if loss.regularizer else 0.0)
    if name == "ProxyAnchor":
        return proxy_anchor(x, y, p, loss.scale, loss.margin)
    raise AssertionError(f"no oracle for {name}: write one")
