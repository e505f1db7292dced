"""Mixed precision: in which type a device multiplies, and the scaling of gradients it needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from proxysynth.training.run import Run


def mixed_type(run: Run, device: torch.device) -> torch.dtype | None:
    """The type of products in training; None for plain float32.

    "auto" asks the device: bfloat16 on a GPU that has it, float16 on an older one, float32
    elsewhere, where nothing would be gained.
    """
    if run.precision == "bfloat16":
        return torch.bfloat16
    if run.precision == "auto" and device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return None


def mixing(device: torch.device, kind: torch.dtype | None) -> AbstractContextManager[object]:
    return nullcontext() if kind is None else torch.autocast(device.type, kind)


def gradient_scaler(device: torch.device, kind: torch.dtype | None) -> torch.amp.GradScaler:
    """float16 ends at 65,504 and its small gradients fade to 0, so they are scaled; for every other
    type this scaler does nothing."""
    return torch.amp.GradScaler(device.type, enabled=kind == torch.float16)
