"""How many classes are visited at a time."""

from __future__ import annotations

from pathlib import Path

import torch

from proxysynth.regularizers.fused import CACHE, LAUNCH

SHARE = 16
"""A block takes at most one part in so many of the memory that is free."""

UNKNOWN = 2**30
"""Bytes taken to be free where the system does not tell."""

LEAST = 16
"""Classes in the smallest block that is chosen: below, a product is all overhead."""

COPIES = 4
"""Matrices of a block's size that live at once: logits, slopes, and what mixing them needs."""


def block_size(rows: int, device: torch.device, bytes_each: int = 4) -> int:
    """Classes in a block for so many rows of logits (originals and synthetics).

    What the device likes best (a block that stays in a CPU's cache, one that is worth starting a
    kernel for), less where too little memory is free.
    """
    liked = (CACHE if device.type == "cpu" else LAUNCH) // rows * 2
    fits = free_memory(device) // (SHARE * COPIES * rows * bytes_each)
    return max(LEAST, min(max(256, liked), fits))


def free_memory(device: torch.device, meminfo: Path = Path("/proc/meminfo")) -> int:
    """Bytes that may be taken on a device, as far as it tells."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "cpu" and meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return UNKNOWN
