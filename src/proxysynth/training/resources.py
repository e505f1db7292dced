"""What a run uses of a machine: nothing here changes what is learned, up to rounding."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch

from proxysynth.data import default_workers
from proxysynth.distributed.process_group import Ranks
from proxysynth.formatting import count
from proxysynth.values import check_integers


@dataclass(frozen=True)
class Resources:
    """Where and with what a run is trained.

    Args:
        device: "cuda", "cuda:1", "mps" or "cpu"; default: the first of these that is available.
        workers: threads that decode images; default: the number of processors.
        threads: of torch on the CPU; default: unchanged. A run resumed with another number agrees
            with the uninterrupted one only up to rounding.
        cache_disk: bytes of reduced images kept on disk for later runs, 0 for none; default: 20 GB.
        checkpoint_steps: also save a checkpoint every N steps; default: one per epoch.
        tensorboard: also write the metrics for TensorBoard, into the run's folder.
    """

    device: str | None = None
    workers: int | None = None
    threads: int | None = None
    cache_disk: int | None = None
    checkpoint_steps: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        least = {"workers": 0, "threads": 1, "checkpoint_steps": 1}
        given = {name: low for name, low in least.items() if getattr(self, name) is not None}
        check_integers(self, **given)

    @property
    def loader_workers(self) -> int:
        return default_workers() if self.workers is None else self.workers

    def torch_device(self) -> torch.device:
        """The requested device, or the best available one."""
        if self.device is None:
            if torch.cuda.is_available():
                return torch.device("cuda")
            return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.zeros(1, device=device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            best = replace(self, device=None).torch_device()
            raise ValueError(f"device {self.device!r} is not available: choose {best}") from error
        return device


def device_name(device: torch.device) -> str:
    """The device for people: "cuda (NVIDIA A100)", "cpu (2 threads)"."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    if device.type == "cpu":
        return f"cpu ({count(torch.get_num_threads(), 'thread')})"
    return str(device)


def own_resources(resources: Resources, ranks: Ranks) -> Resources:
    """This rank's part of its machine: its ranks share the threads that decode images."""
    if ranks.world == 1 or resources.workers is not None:
        return resources
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    return replace(resources, workers=max(1, resources.loader_workers // here))
