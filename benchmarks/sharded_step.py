"""One training step with sharded proxies, in separate processes: time, memory, flops, traffic.

A step is complete: images through a small network, embeddings gathered, the loss with Proxy
Synthesis over each process's proxies, the backward pass, the optimizers. Labels are drawn from all
classes; the images are noise, since only the cost matters.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from benchmarks import ROOT
from benchmarks.timing import peak
from proxysynth.distributed import Shards, sharded_loss
from proxysynth.losses import NormSoftmax
from proxysynth.models.backbones import make_embedder
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.optim import RowwiseAdam

LOSS = ProxySynthesis(NormSoftmax())
SIDE = 32
PATIENCE = timedelta(minutes=30)
"""Timeout for waiting for other processes."""


@dataclass(frozen=True)
class Setting:
    """The settings of a measurement; `optimizer` is that of the proxies."""

    classes: int
    processes: int
    batch: int = 256
    dim: int = 256
    optimizer: str = "sgd"
    rounds: int = 3

    @property
    def threads(self) -> int:
        """Threads per process: the cores divided by the processes."""
        return max(1, len(os.sched_getaffinity(0)) // self.processes)


def measure(setting: Setting) -> dict[str, Any]:
    """Median seconds of the parts of a step, total peak memory of all processes, flops, traffic.

    Processes rendezvous through a file and use the loopback interface; if one fails, all are ended.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {
            "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0",
            **os.environ,
            "OMP_NUM_THREADS": str(setting.threads),
        }
        started = [
            subprocess.Popen(
                [sys.executable, "-m", "benchmarks.sharded_step",
                 json.dumps(asdict(setting)), str(rank), str(Path(folder) / "store")],
                cwd=ROOT, env=environment, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )
            for rank in range(setting.processes)
        ]  # fmt: skip
        try:
            results = _wait_for_all(started)
        finally:
            for process in started:
                process.kill()
    return {**results[0], "peak_mb": sum(result["peak_mb"] for result in results)}


def _wait_for_all(started: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """The output of every process; raises as soon as one fails, since others may wait for it."""
    until = time.monotonic() + PATIENCE.total_seconds()
    while any(process.poll() is None for process in started) and time.monotonic() < until:
        if any(process.poll() for process in started):
            break
        time.sleep(0.05)
    failed = [process for process in started if process.poll()]
    if failed:
        errors = failed[0].communicate()[1].strip()
        raise RuntimeError(f"a process of the step failed: {errors[-500:]}")
    if any(process.poll() is None for process in started):
        raise RuntimeError(f"a step took longer than {PATIENCE}: measure fewer classes")
    return [json.loads(process.communicate()[0]) for process in started]


def take_part(setting_json: str, rank: str, store: str) -> None:
    """Run one of the processes and print its measurements as JSON."""
    setting = Setting(**json.loads(setting_json))
    torch.set_num_threads(setting.threads)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=setting.processes,
        timeout=PATIENCE,
    )  # fmt: skip
    print(json.dumps(_Step(setting, int(rank)).measured()))
    dist.barrier()
    dist.destroy_process_group()


class _Step:
    def __init__(self, setting: Setting, rank: int) -> None:
        self.setting = setting
        self.shards = Shards(setting.classes, setting.processes, rank)
        share = Shards(setting.batch, setting.processes, rank).mine
        self.share = slice(share.start, share.stop)
        self.net = make_embedder("conv4", setting.dim, pretrained=False)
        rows, bound = len(self.shards.mine), setting.dim**-0.5
        self.proxies = nn.Parameter(torch.empty(rows, setting.dim).uniform_(-bound, bound))
        self.of_net = torch.optim.Adam(self.net.parameters())
        self.of_proxies = OPTIMIZERS[setting.optimizer](self.proxies)

    def measured(self) -> dict[str, Any]:
        work, traffic = FlopCounterMode(display=False), _Traffic()
        self.take(0, work, traffic)
        taken = [self.take(number) for number in range(1, self.setting.rounds + 1)]
        memory = self.of_proxies.state.get(self.proxies, {}).values()
        held = sum(t.numel() * t.element_size() for t in memory if isinstance(t, Tensor))
        return {
            **{key: statistics.median(step[key] for step in taken) for key in taken[0]},
            "gigaflops": work.get_total_flops() / 1e9,
            "travelled_mb": traffic.bytes / 2**20,
            "state_mb": held / 2**20,
            "peak_mb": peak(),
        }

    def take(self, number: int, *watching: AbstractContextManager[Any]) -> dict[str, float]:
        """Take one step and return the seconds of its parts. All processes draw the same labels.

        `watching`: context managers around the forward and backward pass of the loss.
        """
        draw = torch.Generator().manual_seed(number)
        y = torch.randint(self.setting.classes, (self.setting.batch,), generator=draw)
        images = torch.randn(self.share.stop - self.share.start, 1, SIDE, SIDE)
        clock = _Clock()
        mine = self.net(images)
        x = self._gathered(mine.detach()).requires_grad_()
        clock.tick("network_s")
        with ExitStack() as stack:
            for watch in watching:
                stack.enter_context(watch)
            value = sharded_loss(LOSS, x, y, self.proxies, self.shards, generator=draw)
            value.backward()
        clock.tick("loss_s")
        assert x.grad is not None
        mine.backward(x.grad[self.share])
        for parameter in self.net.parameters():
            if parameter.grad is not None:
                dist.all_reduce(parameter.grad)
        self.of_net.step()
        self.of_net.zero_grad()
        clock.tick("network_s")
        self.of_proxies.step()
        self.of_proxies.zero_grad()
        clock.tick("optimizer_s")
        return {"step_s": sum(clock.seconds.values()), **clock.seconds}

    def _gathered(self, mine: Tensor) -> Tensor:
        whole = mine.new_zeros(self.setting.batch, self.setting.dim)
        whole[self.share] = mine
        dist.all_reduce(whole)
        return whole


OPTIMIZERS: dict[str, Callable[[nn.Parameter], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD([p], lr=1e-2, fused=True),
    "rowwise": lambda p: RowwiseAdam([p], lr=1e-2),
    "adam": lambda p: torch.optim.Adam([p], lr=1e-2, fused=True),
}


class _Clock:
    """Seconds between ticks, added up by name; every tick is a barrier."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._restart()

    def tick(self, name: str) -> None:
        dist.barrier()
        taken = time.perf_counter() - self.last
        self.seconds[name] = self.seconds.get(name, 0.0) + taken
        self._restart()

    def _restart(self) -> None:
        dist.barrier()
        self.last = time.perf_counter()


class _Traffic:
    """Counts the bytes that are all-reduced inside the context."""

    def __init__(self) -> None:
        self.bytes, self._sum = 0, dist.all_reduce

    def __enter__(self) -> None:
        def counted(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
            self.bytes += tensor.numel() * tensor.element_size()
            return self._sum(tensor, *args, **kwargs)

        dist.all_reduce = counted

    def __exit__(self, *_: object) -> None:
        dist.all_reduce = self._sum


if __name__ == "__main__":
    take_part(*sys.argv[1:])
