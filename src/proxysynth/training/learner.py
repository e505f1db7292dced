"""Learner: what learns in a run, and one step of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from proxysynth.data import Batch
from proxysynth.interfaces import Objective, ProxyLoss
from proxysynth.models.embedder import Embedder
from proxysynth.models.proxy_head import ProxyHead
from proxysynth.training.embed import nearest_class
from proxysynth.training.objective import make_objective
from proxysynth.training.optimizer import (
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    set_rates,
)
from proxysynth.training.precision import gradient_scaler, mixed_type, mixing
from proxysynth.training.run import Run
from proxysynth.training.schedule import rate_factor


@dataclass
class Learner:
    """The network, the proxies and the optimizer of a run.

    Everything drawn in a step depends on the run's seed and the step's number alone, so there is no
    state of random numbers to keep.
    """

    run: Run
    net: Embedder
    proxies: nn.Parameter
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler
    objective: Objective
    forward: nn.Module
    mixed: torch.dtype | None
    steps_per_epoch: int

    @property
    def device(self) -> torch.device:
        return self.proxies.device

    def step(self, batch: Batch, number: int) -> float:
        """One step of the optimizer; returns the loss before it."""
        run = self.run
        torch.manual_seed(step_seed(run.seed, number))
        set_rates(self.optimizer, rate_factor(run, number, self.steps_per_epoch))
        images = batch.images.to(self.device, non_blocking=True)
        if not run.channels_last:
            images = images.contiguous()
        labels = batch.labels.to(self.device, non_blocking=True)
        with mixing(self.device, self.mixed):
            value = self.objective(self.forward, images, labels, self.proxies)
        loss = value.item()
        if not np.isfinite(loss):
            return loss
        self.optimizer.zero_grad()
        self.scaler.scale(value).backward()
        if run.clip_norm is not None or run.clip_value is not None:
            self.scaler.unscale_(self.optimizer)
            self._clip()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def _clip(self) -> None:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if self.run.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.run.clip_value)
        if self.run.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, self.run.clip_norm)

    def begin_epoch(self, epoch: int) -> None:
        """Training mode; the backbone learns, unless this epoch is still one of the warm-up."""
        self.net.train()
        warm = epoch >= self.run.warmup_epochs
        for parameter in self.net.backbone.parameters():
            parameter.requires_grad_(warm)
            if not warm:
                parameter.grad = None
        if not warm:
            self.net.backbone.eval()

    def predict(self) -> Callable[[Tensor], Tensor] | None:
        """Classes of embeddings, where the run is about classes; None for retrieval."""
        run = self.run
        return nearest_class(run.loss, self.proxies) if run.task == "classification" else None

    def finite(self) -> bool:
        """Whether every weight is a number: a step may break them after a loss that was one."""
        tensors = [*self.net.state_dict().values(), self.proxies]
        return all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint needs to hold, by name."""
        return {
            **{f"net.{key}": value for key, value in self.net.state_dict().items()},
            "proxies": self.proxies.detach(),
            **{
                f"optimizer.{key}": value
                for key, value in optimizer_tensors(self.optimizer).items()
            },
        }

    def load(self, tensors: Mapping[str, Tensor], scaler: Mapping[str, Any]) -> None:
        """Become what `tensors` told."""
        load_weights(self.net, self.proxies, tensors)
        load_optimizer(self.optimizer, part(tensors, "optimizer."))
        if scaler:
            self.scaler.load_state_dict(dict(scaler))


def make_learner(
    run: Run, net: Embedder, classes: int, steps_per_epoch: int, device: torch.device
) -> Learner:
    """A learner at its start: proxies drawn, network on its device."""
    generator = torch.Generator().manual_seed(step_seed(run.seed, -1))
    net = net.to(device, memory_format=_memory(run))  # type: ignore[call-overload]
    head = ProxyHead(cast(ProxyLoss, run.loss), classes, net.dim, generator=generator).to(device)
    mixed = mixed_type(run, device)
    return Learner(
        run=run,
        net=net,
        proxies=head.proxies,
        optimizer=make_optimizer(run, net, head.proxies),
        scaler=gradient_scaler(device, mixed),
        objective=make_objective(run.loss),
        forward=cast(nn.Module, torch.compile(net)) if run.compile else net,
        mixed=mixed,
        steps_per_epoch=steps_per_epoch,
    )


def load_weights(net: Embedder, proxies: Tensor, tensors: Mapping[str, Tensor]) -> None:
    """Copy the weights of a checkpoint into a network and proxies, wherever these are."""
    net.load_state_dict(part(tensors, "net."))
    with torch.no_grad():
        proxies.copy_(tensors["proxies"])


def part(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without this beginning."""
    return {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}


def step_seed(seed: int, number: int) -> int:
    """A 32-bit seed for one step; torch's generator on the CPU looks at no more bits."""
    return int(np.random.SeedSequence((seed, number + 1)).generate_state(1)[0])


def _memory(run: Run) -> torch.memory_format:
    return torch.channels_last if run.channels_last else torch.contiguous_format
