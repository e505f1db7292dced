"""The gradients that the paper derives, against ours: Eqs. 7 to 9, 11 to 16, x to xx."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import proxysynth as ps
from proxysynth.regularizers.pairs import Draw

LAM = 0.7
I, J = 0, 1  # noqa: E741  the synthetic is made of classes I and J


@dataclass(frozen=True)
class WithSimilarities:
    """Softmax whose similarities are given, so that a gradient can be asked of them."""

    S: Tensor
    normalized = False

    def similarity(self, x: Tensor, p: Tensor) -> Tensor:
        return self.S

    def logits(self, S: Tensor) -> Tensor:
        return S

    def from_similarity(self, S: Tensor, y: Tensor) -> Tensor:
        return ps.Softmax().from_similarity(S, y)

    def __call__(self, x, y, p, generator=None) -> Tensor:
        return self.from_similarity(self.S, y)


@pytest.fixture
def case() -> tuple[Tensor, Tensor, Tensor, Draw]:
    """Two embeddings of classes I and J, five proxies, one pair (I, J)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    p = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    zero, one = torch.tensor([0]), torch.tensor([1])
    draw = Draw(zero, one, torch.tensor(LAM, dtype=torch.float64), zero, zero)
    return x, torch.tensor([I, J]), p, draw


def test_softmax_over_similarities(case) -> None:
    """Eqs. 7, x and xi: the own similarity E/sum - 1, every other E/sum."""
    x, y, p, _ = case
    S = (x @ p.t()).detach().requires_grad_()
    (grad,) = torch.autograd.grad(WithSimilarities(S)(x, y, p) * 2, S)  # times n: one embedding's
    E = S[0].detach().exp()
    expected = E / E.sum()
    expected[I] -= 1
    torch.testing.assert_close(grad[0], expected, rtol=1e-12, atol=1e-14)


def test_proxy_synthesis_over_similarities(case) -> None:
    """Eqs. 8, 9 and xii to xiv: the synthetic class ties the gradients of its two parents."""
    x, y, p, draw = case
    S = (x @ p.t()).detach().requires_grad_()
    loss = ps.ProxySynthesis(WithSimilarities(S), embeddings="original")
    (grad,) = torch.autograd.grad(loss.on(draw, x, y, p) * 2, S)
    E = S[0].detach().exp()
    mixed = E[I] ** LAM * E[J] ** (1 - LAM)
    torch.testing.assert_close(mixed, (x[0] @ (LAM * p[I] + (1 - LAM) * p[J])).exp().detach())
    total = mixed + E.sum()
    expected = E / total
    expected[I] = (LAM * mixed + E[I]) / total - 1
    expected[J] = ((1 - LAM) * mixed + E[J]) / total
    torch.testing.assert_close(grad[0], expected, rtol=1e-12, atol=1e-14)


def test_softmax_over_the_embedding(case) -> None:
    """Eqs. 11, 12, xv and xvi: tau_i p_i + sum tau_k p_k with tau_i < 0 < tau_k."""
    x, y, p, _ = case
    (grad,) = torch.autograd.grad(ps.Softmax()(x, y, p) * 2, x)
    E = (x[0] @ p.t()).exp().detach()
    tau = E / E.sum()
    tau[I] -= 1
    assert tau[I] < 0
    assert (tau[[1, 2, 3, 4]] > 0).all()
    torch.testing.assert_close(grad[0], tau @ p, rtol=1e-12, atol=1e-14)


def test_the_synthetic_pair_over_the_embedding(case) -> None:
    """Eqs. 13, 14, xvii and xviii: -lam sum (p~ - q) E(q) / (E(p~) + sum E(q))."""
    x, y, p, draw = case
    loss = ps.ProxySynthesis(ps.Softmax(), embeddings="synthetic")  # the synthetic's term alone
    (grad,) = torch.autograd.grad(loss.on(draw, x, y, p), x)
    made_x = (LAM * x[0] + (1 - LAM) * x[1]).detach()
    made_p = LAM * p[I] + (1 - LAM) * p[J]
    E, E_made = (p @ made_x).exp(), (made_p @ made_x).exp()
    expected = -LAM * ((made_p - p) * E[:, None]).sum(0) / (E_made + E.sum())
    torch.testing.assert_close(grad[0], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("lam", [0.7, 0.9, 0.97])
def test_the_approximation_of_the_synthetic_pair(lam: float) -> None:
    """Eqs. 15, 16, xix and xx: tau'_i > 0 > tau'_j, and how far the approximation is off.

    Exact is -lam (A + R) / (D + r), the approximation -lam A / D, where R and r are the terms
    of the proxies other than p_i: they differ by at most lam (|R| + |A| r / D) / (D + r).
    """
    p = 6 * torch.eye(5, 8, dtype=torch.float64)  # far apart, as the proof asks
    x = p[:2].clone().requires_grad_()
    zero, one = torch.tensor([0]), torch.tensor([1])
    draw = Draw(zero, one, torch.tensor(lam, dtype=torch.float64), zero, zero)
    loss = ps.ProxySynthesis(ps.Softmax(), embeddings="synthetic")
    (grad,) = torch.autograd.grad(loss.on(draw, x, torch.tensor([I, J]), p), x)

    made_x = (lam * x[0] + (1 - lam) * x[1]).detach()
    made_p = lam * p[I] + (1 - lam) * p[J]
    E, E_made = (p @ made_x).exp(), (made_p @ made_x).exp()
    tau = lam * (1 - lam) * E[I] / (E_made + E[I])
    tau_i, tau_j = tau, -tau
    assert tau_i > 0 > tau_j
    approximate = tau_i * p[I] + tau_j * p[J]

    others = [q for q in range(5) if q != I]
    A, D = (made_p - p[I]) * E[I], E_made + E[I]
    R, r = ((made_p - p[others]) * E[others, None]).sum(0), E[others].sum()
    bound = lam * (R.norm() + A.norm() * r / D) / (D + r)
    off = (grad[0] - approximate).norm()
    assert off <= bound + 1e-13
    assert off < 0.05 * approximate.norm()
    # A step against the gradient leaves p_i and nears p_j: the claim itself.
    assert (grad[0] @ p[I]) > 0 > (grad[0] @ p[J])
