"""Embeddings of different distributions."""

from __future__ import annotations

import torch


def gaussian(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d)


def heavy_tailed(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d) ** 5


def sparse(n: int, d: int) -> torch.Tensor:
    return torch.relu(torch.randn(n, d) - 1.5) + torch.eye(n, d)


def concentrated(n: int, d: int) -> torch.Tensor:
    return torch.ones(n, d) + 1e-3 * torch.randn(n, d)


def with_an_outlier(n: int, d: int) -> torch.Tensor:
    x = torch.randn(n, d)
    x[n // 2] = torch.eye(d)[0]
    x[n // 3] = 0
    return x


CLOUDS = [gaussian, heavy_tailed, sparse, concentrated, with_an_outlier]
