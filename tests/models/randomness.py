"""Networks with nothing left at its default, so that no part can hide behind a zero or a one."""

from __future__ import annotations

import torch
from torch import nn


def shaken(network: nn.Module, seed: int = 0) -> nn.Module:
    """The network in evaluation mode, its norms' scales, shifts and statistics drawn at random."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.8, 1.2, generator=generator)
                module.bias.uniform_(-0.2, 0.2, generator=generator)
                module.running_mean.uniform_(-0.2, 0.2, generator=generator)
                module.running_var.uniform_(0.8, 1.2, generator=generator)
            if isinstance(module, nn.Conv2d) and module.bias is not None:
                module.bias.uniform_(-0.2, 0.2, generator=generator)
    return network.eval()


def parameters(network: nn.Module) -> int:
    return sum(parameter.numel() for parameter in network.parameters())
