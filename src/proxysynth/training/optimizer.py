"""The optimizer of a run, its groups of parameters, and its state as tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from proxysynth.models.embedder import Embedder
from proxysynth.training.rowwise import RowwiseAdam, SideBySide
from proxysynth.training.run import Run

GROUPS = ("backbone", "embedding", "proxies")

Steps = torch.optim.Optimizer | SideBySide
"""What takes a run's steps."""


def make_optimizer(run: Run, net: Embedder, proxies: nn.Parameter) -> Steps:
    """One group each for the backbone, the embedding layer and the proxies.

    A group keeps its own learning rate under "base_lr", which the schedule multiplies.
    """
    parts = {
        "backbone": (list(net.backbone.parameters()), run.lr),
        "embedding": (list(net.embedding.parameters()), run.embedding_lr or run.lr),
        "proxies": ([proxies], run.proxy_lr),
    }
    groups = [
        {"params": params, "lr": lr, "base_lr": lr, "name": name}
        for name, (params, lr) in parts.items()
    ]
    if run.proxy_optimizer == "rowwise":
        own = RowwiseAdam([groups.pop()], eps=run.eps, weight_decay=run.weight_decay)
        return SideBySide(_optimizer(run, groups, proxies.device), own)
    return _optimizer(run, groups, proxies.device)


def _optimizer(
    run: Run, groups: list[dict[str, Any]], device: torch.device
) -> torch.optim.Optimizer:
    decay = run.weight_decay
    # One kernel for all the tensors of a group: what small networks spend most of a step on.
    fused = device.type in ("cpu", "cuda")
    if run.optimizer == "adam":
        return torch.optim.Adam(groups, eps=run.eps, weight_decay=decay, fused=fused)
    if run.optimizer == "adamw":
        return torch.optim.AdamW(groups, eps=run.eps, weight_decay=decay, fused=fused)
    if run.optimizer == "rmsprop":
        return torch.optim.RMSprop(groups, eps=run.eps, weight_decay=decay, momentum=run.momentum)
    return torch.optim.SGD(groups, weight_decay=decay, momentum=run.momentum, fused=fused)


def set_rates(optimizer: Steps, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = factor * group["base_lr"]


def optimizer_tensors(optimizer: Steps) -> dict[str, Tensor]:
    """The optimizer's memory: "group.number.what" -> tensor. Rates are the schedule's to know."""
    return {
        f"{group['name']}.{i}.{what}": value
        for group in optimizer.param_groups
        for i, parameter in enumerate(group["params"])
        for what, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)  # SGD says None before it has a momentum
    }


def load_optimizer(optimizer: Steps, tensors: Mapping[str, Tensor]) -> None:
    """Give the optimizer the memory that `optimizer_tensors` told."""
    for group in optimizer.param_groups:
        for i, parameter in enumerate(group["params"]):
            start = f"{group['name']}.{i}."
            state: dict[str, Any] = {
                key.removeprefix(start): _like(value, parameter, bool(group.get("fused")))
                for key, value in tensors.items()
                if key.startswith(start)
            }
            if state:
                optimizer.state[parameter] = state


def _like(value: Tensor, parameter: nn.Parameter, fused: bool) -> Tensor:
    """The value in the parameter's own memory format: another order of numbers in memory is summed
    in another order, and rounds differently."""
    if value.shape == parameter.shape:
        return torch.empty_like(parameter, requires_grad=False).copy_(value)
    # The count of steps stays on the CPU, unless a kernel on the device reads it.
    return value.to(parameter.device if fused else "cpu", copy=True)
