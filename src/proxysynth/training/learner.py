"""Learner: what learns in a run, and one step of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from proxysynth.data import Batch, Loader
from proxysynth.distributed import Shards
from proxysynth.distributed.data_parallel import (
    WholeBatch,
    average_gradients,
    begin_alike,
    few_pictures,
    merge_statistics,
    with_shared_statistics,
)
from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.interfaces import Objective
from proxysynth.models.embedder import Embedder
from proxysynth.training.embed import Tested, measure, nearest_class
from proxysynth.training.objective import Mixup, make_objective
from proxysynth.training.optimizer import (
    Steps,
    load_optimizer,
    make_optimizer,
    optimizer_tensors,
    set_rates,
)
from proxysynth.training.precision import gradient_scaler, mixed_type, mixing
from proxysynth.training.run import Run
from proxysynth.training.schedule import rate_factor
from proxysynth.training.sharded_proxies import (
    ShardedLoss,
    first_proxies,
    make_shards,
    whole_norm,
)


@dataclass
class Learner:
    """The network, the proxies and the optimizer of a run.

    Everything drawn in a step depends on the run's seed and the step's number alone, so there is no
    state of random numbers to keep. Among several ranks each has the whole network, and all of the
    proxies or, with `shards`, its rows of them.
    """

    run: Run
    net: Embedder
    proxies: nn.Parameter
    optimizer: Steps
    scaler: torch.amp.GradScaler
    objective: Objective
    forward: nn.Module
    mixed: torch.dtype | None
    steps_per_epoch: int
    ranks: Ranks = ALONE
    shards: Shards | None = None

    @property
    def device(self) -> torch.device:
        return self.proxies.device

    def step(self, batch: Batch, number: int) -> float:
        """One step of the optimizer; returns the loss before it.

        Args:
            batch: its images are this rank's, its labels those of all ranks.
        """
        run = self.run
        # What the network draws (dropout) is each rank's own; what the loss draws, the same on all.
        torch.manual_seed(step_seed(run.seed, number, self.ranks.rank))
        draws = torch.Generator().manual_seed(step_seed(run.seed, number))
        set_rates(self.optimizer, rate_factor(run, number, self.steps_per_epoch))
        images = batch.images.to(self.device, non_blocking=True)
        if not run.channels_last:
            images = images.contiguous()
        labels = batch.labels.to(self.device, non_blocking=True)
        with mixing(self.device, self.mixed):
            value = self._value(images, labels, draws)
        loss = value.item()
        if not np.isfinite(loss):
            return loss
        self.optimizer.zero_grad()
        self.scaler.scale(value).backward()
        # The proxies' is the same on all ranks but for rounding; afterwards, in every bit.
        shared = [] if self.shards is not None else [self.proxies]
        average_gradients([*self.net.parameters(), *shared], self.ranks)
        if run.clip_norm is not None or run.clip_value is not None:
            self.scaler.unscale_(cast(torch.optim.Optimizer, self.optimizer))
            self._clip()
        self.scaler.step(cast(torch.optim.Optimizer, self.optimizer))
        self.scaler.update()
        return loss

    def _value(self, images: Tensor, labels: Tensor, draws: torch.Generator) -> Tensor:
        """The loss of the whole batch, the same on every rank."""
        if self.ranks.world == 1:
            return self.objective(self.forward, images, labels, self.proxies, generator=draws)
        n, own = len(labels), len(images)
        if isinstance(self.objective, Mixup):  # it mixes pictures of different ranks
            images = self.ranks.rows(images, n)
        net = cast(nn.Module, WholeBatch(self.forward, self.net.stages, n, self.ranks))
        with few_pictures(self.net, own, self.ranks):
            return self.objective(net, images, labels, self.proxies, generator=draws)

    def _clip(self) -> None:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if self.run.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, self.run.clip_value)
        if self.run.clip_norm is not None:
            norm = whole_norm(parameters, self.proxies, self.shards is not None, self.ranks)
            nn.utils.clip_grads_with_norm_(parameters, self.run.clip_norm, norm)

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

    def measure(self, query: Loader, gallery: Loader | None, ks: tuple[int, ...]) -> Tested:
        """How well the network retrieves and, where the run is about classes, classifies."""
        run, predict = self.run, None
        if run.task == "classification":
            predict = nearest_class(run.loss, self.proxies)
        return measure(self.net, query, gallery, ks=ks, predict=predict, ranks=self.ranks)

    def finite(self) -> bool:
        """Whether every weight is a number: a step may break them after a loss that was one.

        Statistics of batch norm become one for all ranks before.
        """
        merge_statistics(self.net, self.ranks)
        tensors = [*self.net.state_dict().values(), self.proxies]
        fine = all(bool(torch.isfinite(t).all()) for t in tensors if t.is_floating_point())
        return self.ranks.all(fine)

    @property
    def rows(self) -> range | None:
        """Which proxies these are, where each rank holds a part."""
        return None if self.shards is None else self.shards.mine

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint needs to hold, by name; of sharded proxies, this rank's rows."""
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
    run: Run,
    net: Embedder,
    classes: int,
    steps_per_epoch: int,
    device: torch.device,
    ranks: Ranks = ALONE,
) -> Learner:
    """A learner at its start: proxies drawn, network on its device."""
    generator = torch.Generator().manual_seed(step_seed(run.seed, -1))
    net = net.to(device, memory_format=_memory(run))  # type: ignore[call-overload]
    net = with_shared_statistics(net, ranks, device)
    mixed = mixed_type(run, device)
    shards = make_shards(run, classes, ranks, mixed)
    proxies = first_proxies(run, classes, net.dim, shards, generator)
    proxies = nn.Parameter(proxies.detach().to(device))
    loss = run.loss if shards is None else ShardedLoss(run.loss, shards, run.negatives)
    begin_alike([*net.state_dict().values(), *([proxies] if shards is None else [])], ranks)
    return Learner(
        run=run,
        net=net,
        proxies=proxies,
        optimizer=make_optimizer(run, net, proxies),
        scaler=gradient_scaler(device, mixed),
        objective=make_objective(loss),
        forward=cast(nn.Module, torch.compile(net)) if run.compile else net,
        mixed=mixed,
        steps_per_epoch=steps_per_epoch,
        ranks=ranks,
        shards=shards,
    )


def load_weights(net: Embedder, proxies: Tensor, tensors: Mapping[str, Tensor]) -> None:
    """Copy the weights of a checkpoint into a network and proxies, wherever these are."""
    net.load_state_dict(part(tensors, "net."))
    with torch.no_grad():
        proxies.copy_(tensors["proxies"])


def part(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    """The tensors whose names begin so, without this beginning."""
    return {key.removeprefix(start): t for key, t in tensors.items() if key.startswith(start)}


def step_seed(seed: int, number: int, rank: int = 0) -> int:
    """A 32-bit seed for one step; torch's generator on the CPU looks at no more bits."""
    key = (seed, number + 1, rank) if rank else (seed, number + 1)
    return int(np.random.SeedSequence(key).generate_state(1)[0])


def _memory(run: Run) -> torch.memory_format:
    return torch.channels_last if run.channels_last else torch.contiguous_format
