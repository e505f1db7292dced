"""Learner: the parameters of a run, the objective it minimizes, and one step of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from proxysynth.data import Batch
from proxysynth.distributed import Shards, data_parallel, sharded_loss
from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.interfaces import Loss, Objective, ProxyLoss
from proxysynth.models.embedder import Embedder
from proxysynth.models.proxy_head import ProxyHead
from proxysynth.regularizers.mixup import InputMixup, ManifoldMixup
from proxysynth.training import optim
from proxysynth.training.checkpoint import part
from proxysynth.training.run import Run

ROWS_DRAWN = 1 << 14  # at a time


class Learner:
    """The network, the proxies and the optimizer of a run.

    Everything drawn in a step depends only on the run's seed and the step's number, so there is no
    random state to save. Each rank has the whole network, and its `rows` of the proxies (None: all
    of them). `network` is `net`, compiled where the run asks for it.
    """

    def __init__(
        self,
        run: Run,
        net: Embedder,
        classes: int,
        steps_per_epoch: int,
        device: torch.device,
        ranks: Ranks = ALONE,
    ) -> None:
        self.run, self.steps_per_epoch, self.ranks = run, steps_per_epoch, ranks
        memory = torch.channels_last if run.channels_last else torch.contiguous_format
        net = net.to(device, memory_format=memory)  # type: ignore[call-overload]
        if ranks.world > 1 and device.type == "cuda" and not net.batch_norm_frozen:
            net = nn.SyncBatchNorm.convert_sync_batchnorm(net)  # torch has none for the CPU
        self.net = net
        self.network = cast(nn.Module, torch.compile(net)) if run.compile else net
        self.mixed = optim.mixed_type(run, device)
        # Scaled gradients may overflow on one rank only, which would then skip the step alone.
        if run.shard_proxies and self.mixed == torch.float16 and ranks.world > 1:
            raise ValueError("sharded proxies do not train in float16: set precision=float32")
        loss: Any = run.loss
        self.rows: range | None = None
        if run.shard_proxies:
            shards = Shards(classes, ranks.world, ranks.rank)
            loss = partial(sharded_loss, run.loss, shards=shards, negatives=run.negatives)
            self.rows = shards.mine
        self.objective = make_objective(loss)
        held = range(classes) if self.rows is None else self.rows
        self.proxies = nn.Parameter(initial_proxies(run, held, net.dim).to(device))
        self.device = self.proxies.device
        replicated = [self.proxies] if self.rows is None else []
        self.shared = [*net.parameters(), *replicated]  # parameters that all ranks hold
        data_parallel.broadcast_weights([*net.state_dict().values(), *replicated], ranks)
        self.optimizers = optim.make_optimizers(run, net, self.proxies)
        # Small gradients would underflow in float16.
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.mixed == torch.float16)

    def step(self, batch: Batch, number: int) -> float:
        """One step of the optimizer; returns the loss before it. If that is not finite, nothing is
        changed."""
        optim.set_rates(self.optimizers, optim.rate_factor(self.run, number, self.steps_per_epoch))
        loss = self._loss(batch, number)
        value = loss.item()
        if not math.isfinite(value):
            return value
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        if self.ranks.world > 1:
            data_parallel.average_gradients(self.shared, self.ranks)
        self._clip_gradients()
        for optimizer in self.optimizers:
            self.scaler.step(optimizer)
        self.scaler.update()
        return value

    def _loss(self, batch: Batch, number: int) -> Tensor:
        """The loss of the whole batch, the same on every rank: the images of `batch` are this
        rank's, its labels those of all ranks."""
        run, ranks, net = self.run, self.ranks, self.network
        # The network draws (dropout) differently on each rank; the loss draws the same on all.
        torch.manual_seed(step_seed(run.seed, number, ranks.rank))
        draws = torch.Generator().manual_seed(step_seed(run.seed, number))
        images = batch.inputs(self.device)
        if not run.channels_last:
            images = images.contiguous()
        labels = batch.labels.to(self.device, non_blocking=True)
        if ranks.world > 1:
            n = len(labels)
            net = cast(nn.Module, data_parallel.WholeBatch(net, n, ranks))
            if isinstance(self.objective, Mixup):  # it mixes images of different ranks
                images = ranks.gather(images, ranks.counts(n))
        with torch.autocast(self.device.type, self.mixed, enabled=self.mixed is not None):
            return self.objective(net, images, labels, self.proxies, generator=draws)

    def _clip_gradients(self) -> None:
        run = self.run
        if run.clip_norm is None and run.clip_value is None:
            return
        for optimizer in self.optimizers:
            self.scaler.unscale_(optimizer)
        parameters = [p for _, p, _ in optim.named_parameters(self.optimizers)]
        if run.clip_value is not None:
            nn.utils.clip_grad_value_(parameters, run.clip_value)
        if run.clip_norm is not None:
            # The norm of the whole gradient, including proxies that other ranks hold.
            norm = nn.utils.get_total_norm([p.grad for p in self.shared if p.grad is not None])
            if self.rows is not None and self.proxies.grad is not None:
                norm = (norm**2 + self.ranks.sum(self.proxies.grad.norm() ** 2)).sqrt()
            nn.utils.clip_grads_with_norm_(parameters, run.clip_norm, norm)

    def begin_epoch(self, epoch: int) -> None:
        """Switch to training mode; in warm-up epochs the backbone stays as it is."""
        self.net.train()
        warmed_up = epoch >= self.run.warmup_epochs
        for name, parameter in self.net.backbone.named_parameters():
            trained = warmed_up and not name.startswith(self.run.freeze)
            parameter.requires_grad_(trained)
            if not trained:
                parameter.grad = None
        for name, module in self.net.backbone.named_modules():
            if not warmed_up or (name and f"{name}.".startswith(self.run.freeze)):
                module.eval()

    def finite(self) -> bool:
        """Whether all weights are finite: a step may break them after a finite loss. The ranks'
        batch-norm statistics are merged first."""
        data_parallel.merge_statistics(self.net, self.ranks)
        tensors = [*self.net.state_dict().values(), self.proxies]
        broken = not all(torch.isfinite(tensor).all() for tensor in tensors)
        return self.ranks.max(broken) == 0

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint; of sharded proxies, this rank's rows."""
        weights = {f"net.{key}": value for key, value in self.net.state_dict().items()}
        state = optim.optimizer_tensors(self.optimizers)
        moments = {f"optimizer.{key}": value for key, value in state.items()}
        return {**weights, "proxies": self.proxies.detach(), **moments}

    def load(self, tensors: Mapping[str, Tensor], scaler: Mapping[str, Any]) -> None:
        """Load what `tensors` returned."""
        self.load_weights(tensors)
        optim.load_optimizers(self.optimizers, part(tensors, "optimizer."))
        if scaler:
            self.scaler.load_state_dict(dict(scaler))

    def load_weights(self, tensors: Mapping[str, Tensor]) -> None:
        self.net.load_state_dict(part(tensors, "net."))
        with torch.no_grad():
            self.proxies.copy_(tensors["proxies"])


def step_seed(seed: int, number: int, rank: int = 0) -> int:
    """A 32-bit seed for one step: torch's generator on the CPU uses no more bits."""
    key = (seed, number + 1, rank) if rank else (seed, number + 1)
    return int(np.random.SeedSequence(key).generate_state(1)[0])


@dataclass(frozen=True)
class Plain:
    """The loss of the images' embeddings; Proxy Synthesis is such a loss."""

    loss: Loss

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        x = net(images)  # if not finite, the loss is not either, and the loop names the images
        return self.loss(x, y, p, generator=generator) if torch.isfinite(x).all() else x.sum()


@dataclass(frozen=True)
class Mixup:
    """The loss of mixed images or hidden features for both of their labels; see `InputMixup` and
    `ManifoldMixup`."""

    loss: InputMixup | ManifoldMixup

    def __call__(
        self,
        net: nn.Module,
        images: Tensor,
        y: Tensor,
        p: Tensor,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        # Wrappers such as DataParallel and WholeBatch hold the network in `module`.
        inside = net if hasattr(net, "stages") else getattr(net, "module", net)
        drawn = self.loss.draw(len(y), len(getattr(inside, "stages", ())), generator)
        if drawn.at == 0:  # works with any network, and a compiled one stays compiled
            x = net(drawn(images))
        else:  # a compiled network would be compiled again for every mixing coefficient
            x = getattr(net, "_orig_mod", net)(images, mix=drawn, at=drawn.at)
        return drawn.score(self.loss.loss, x, y, p) if torch.isfinite(x).all() else x.sum()


def make_objective(loss: Any) -> Objective:
    """The objective of a run with this loss or regularizer."""
    return Mixup(loss) if isinstance(loss, (InputMixup, ManifoldMixup)) else Plain(loss)


def initial_proxies(run: Run, rows: range, dim: int) -> Tensor:
    """The proxies of these classes at the start: the same values however classes are divided."""
    generator, pieces = torch.Generator().manual_seed(step_seed(run.seed, -1)), []
    for start in range(0, rows.stop, ROWS_DRAWN):
        count = min(ROWS_DRAWN, rows.stop - start)
        drawn = ProxyHead(cast(ProxyLoss, run.loss), count, dim, generator=generator).proxies
        # The rows of other ranks are drawn and discarded: the following ones depend on it.
        pieces.append(drawn.detach()[max(0, rows.start - start) :])
    return torch.cat(pieces)
