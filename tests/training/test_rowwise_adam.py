"""The row-wise optimizer against its formula in a loop."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

import proxysynth as ps
from batches import batch
from proxysynth.models.backbones import make_embedder
from proxysynth.training import Run
from proxysynth.training.optim import (
    RowwiseAdam,
    load_optimizers,
    make_optimizers,
    optimizer_tensors,
    set_rates,
)


def by_loop(p, grads, lr, beta, eps, decay):
    """The same, number by number, in Python's own arithmetic."""
    rows = [list(map(float, row)) for row in p]
    square = [0.0] * len(rows)
    for t, grad in enumerate(grads, start=1):
        for r, row in enumerate(rows):
            g = [float(a) + decay * b for a, b in zip(grad[r], row, strict=True)]
            square[r] = beta * square[r] + (1 - beta) * sum(a * a for a in g) / len(g)
            rate = lr / (math.sqrt(square[r] / (1 - beta**t)) + eps)
            rows[r] = [b - rate * a for a, b in zip(g, row, strict=True)]
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(square, dtype=torch.float64)


@pytest.mark.parametrize("decay", [0.0, 0.03])
def test_update_matches_reference_loop(decay) -> None:
    p = nn.Parameter(torch.randn(5, 3, dtype=torch.float64))
    grads = [torch.randn(5, 3, dtype=torch.float64) * 10.0**-k for k in range(4)]
    expected, square = by_loop(p.detach(), grads, 0.1, 0.9, 1e-6, decay)
    optimizer = RowwiseAdam([p], lr=0.1, beta=0.9, eps=1e-6, weight_decay=decay)
    for grad in grads:
        p.grad = grad.clone()
        optimizer.step()
    torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(optimizer.state[p]["square"], square, rtol=1e-12, atol=1e-12)


def test_state_is_one_value_per_row() -> None:
    p = nn.Parameter(torch.randn(50, 4, 16))  # sub-proxies share their class's number
    p.grad = torch.randn_like(p)
    optimizer = RowwiseAdam([p])
    optimizer.step()
    assert sum(value.numel() for value in optimizer.state[p].values()) == 50 + 1


def test_first_step_length_equals_learning_rate() -> None:
    p = nn.Parameter(torch.zeros(6, 4))
    p.grad = torch.randn(6, 4) * torch.logspace(-6, 6, 6)[:, None]
    RowwiseAdam([p], lr=0.5, eps=0.0).step()
    torch.testing.assert_close(p.detach().square().mean(dim=1).sqrt(), torch.full((6,), 0.5))


def test_training_reduces_the_loss() -> None:
    loss = ps.ProxySynthesis(ps.NormSoftmax())
    x, y, p = batch(loss.loss, n=20, c=10, d=8, dtype=torch.float32)
    p = nn.Parameter(p.detach())
    optimizer = RowwiseAdam([p], lr=0.05)
    first = last = ps.NormSoftmax()(x, y, p).item()
    for _ in range(60):
        optimizer.zero_grad()
        value = loss(x.detach(), y, p)
        value.backward()
        optimizer.step()
        last = ps.NormSoftmax()(x, y, p).item()
    assert last < first / 3


def test_works_alongside_another_optimizer() -> None:
    net = make_embedder("conv4", 6, width=0.25)
    proxies = nn.Parameter(torch.ones(3, 6))
    run = Run(optimizer="sgd", lr=1.0, proxy_lr=1.0, proxy_optimizer="rowwise", eps=1e-30)
    both = make_optimizers(run, net, proxies)
    names = [[group["name"] for group in optimizer.param_groups] for optimizer in both]
    assert names == [["backbone", "embedding"], ["proxies"]]
    set_rates(both, 0.5)
    bias = net.embedding.bias
    before = bias.detach().clone()
    bias.grad, proxies.grad = torch.ones_like(bias), torch.ones(3, 6)
    for optimizer in both:
        optimizer.step()
    torch.testing.assert_close(bias.detach(), before - 0.5)
    torch.testing.assert_close(proxies.detach(), torch.full((3, 6), 0.5))
    square = {"proxies.0.step": torch.tensor(0.0), "proxies.0.square": torch.full((3,), 999.0)}
    load_optimizers(both, square)
    both[1].step()  # what a checkpoint put there is what the second one goes on with
    found = optimizer_tensors(both)["proxies.0.square"]
    torch.testing.assert_close(found, torch.full((3,), 0.999 * 999 + 0.001))


def test_invalid_input_is_rejected() -> None:
    p = nn.Parameter(torch.zeros(2, 2))
    with pytest.raises(ValueError, match="beta"):
        RowwiseAdam([p], beta=1.0)
    with pytest.raises(ValueError, match=r"lr .* got -1"):
        RowwiseAdam([p], lr=-1.0)
    p.grad = torch.zeros(2, 2).to_sparse()
    with pytest.raises(ValueError, match="expected a dense gradient"):
        RowwiseAdam([p]).step()


def test_state_survives_a_checkpoint() -> None:
    def learner() -> tuple[list[nn.Parameter], list[Optimizer]]:
        a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(3, 2))
        first = torch.optim.Adam([{"params": [a], "name": "net"}], fused=True)
        return [a, b], [first, RowwiseAdam([{"params": [b], "name": "proxies"}])]

    def step(parameters: list[nn.Parameter], optimizers: list[Optimizer], seed: int) -> None:
        draw = torch.Generator().manual_seed(seed)
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape, generator=draw)
        for optimizer in optimizers:
            optimizer.step()

    parameters, optimizers = learner()
    step(parameters, optimizers, 0)
    kept = {key: t.clone() for key, t in optimizer_tensors(optimizers).items()}
    assert kept["proxies.0.square"].shape == (3,)
    others, other = learner()
    with torch.no_grad():
        for mine, theirs in zip(others, parameters, strict=True):
            mine.copy_(theirs)
    load_optimizers(other, kept)
    for pair in ((parameters, optimizers), (others, other)):
        step(*pair, 1)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))
