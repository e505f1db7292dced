"""What a run uses of a machine: nothing of it changes what is learnt, up to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from proxysynth.data import default_workers


@dataclass(frozen=True)
class Resources:
    """Where and with what a run is trained.

    Args:
        device: "cuda", "cuda:1", "mps" or "cpu"; None takes the first of these that is there.
        workers: threads that decode pictures; None for as many as there are processors.
        threads: of torch on the CPU; None leaves them as they are. A run resumed with another
            number agrees with the unbroken one up to rounding only.
        cache_disk: bytes of shrunken pictures kept on disk for later runs; None for 20 GB at most,
            0 for none.
        checkpoint_steps: also keep a checkpoint every so many steps, for epochs that take hours;
            None keeps one per epoch.
        tensorboard: also write the metrics for TensorBoard, into the run's folder.
    """

    device: str | None = None
    workers: int | None = None
    threads: int | None = None
    cache_disk: int | None = None
    checkpoint_steps: int | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name, least in (("workers", 0), ("threads", 1), ("checkpoint_steps", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise ValueError(f"{name} must be a whole number from {least} on, got {value!r}")

    @property
    def loader_workers(self) -> int:
        return default_workers() if self.workers is None else self.workers

    def torch_device(self) -> torch.device:
        """The device that was asked for, or the best there is."""
        if self.device is None:
            if torch.cuda.is_available():
                return torch.device("cuda")
            return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
        try:
            device = torch.device(self.device)
            torch.zeros(1, device=device).item()
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            raise ValueError(
                f"the device {self.device!r} cannot be used here: choose cuda, mps or cpu, "
                "or leave the choice to the program"
            ) from error
        return device


def device_name(device: torch.device) -> str:
    """The device for people: "cuda (NVIDIA A100)", "cpu (2 threads)"."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    if device.type == "cpu":
        threads = torch.get_num_threads()
        return f"cpu ({threads} thread{'s' if threads > 1 else ''})"
    return str(device)
