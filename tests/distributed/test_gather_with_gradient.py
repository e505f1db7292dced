"""The recipe for your own loop: two processes with DistributedDataParallel against one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import proxysynth as ps
from distributed.on_ranks import on_ranks
from proxysynth.distributed import gather_with_gradient
from proxysynth.distributed.process_group import join_process_group


def trained(rank: int, world: int) -> list[float]:
    """Three steps; rank 0 has one image more than rank 1."""
    torch.manual_seed(0)
    net, head = nn.Linear(6, 4), ps.ProxyHead(ps.ProxySynthesis(ps.NormSoftmax()), 5, 4)
    net, head = net.double(), head.double()
    parameters = [*net.parameters(), *head.parameters()]
    if dist.is_initialized():
        net, head = DistributedDataParallel(net), DistributedDataParallel(head)
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(3):
        draw = torch.Generator().manual_seed(step)
        images = torch.randn(7, 6, generator=draw, dtype=torch.float64)
        labels = torch.arange(7) % 5
        own = slice(0, 7) if world == 1 else (slice(0, 4), slice(4, 7))[rank]
        x, y = gather_with_gradient(net(images[own])), gather_with_gradient(labels[own])
        value = head(x, y, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in parameters]).tolist()


def job(_, folder):
    with join_process_group() as ranks:
        return trained(ranks.rank, ranks.world)


def test_gather_with_gradient_matches_one_process(tmp_path):
    first, second = on_ranks(job, 2, None, tmp_path)
    assert first == second
    torch.testing.assert_close(torch.tensor(first), torch.tensor(trained(0, 1)), rtol=0, atol=1e-10)
