"""Where a number comes from: commit, machine and versions, saved with every result."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import torch

from proxysynth import __version__


def provenance() -> dict[str, str]:
    """What a reader needs to judge or repeat a measurement."""
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit(),
        "proxysynth": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{cpu()}, {os.cpu_count()} cores",
    }


def commit() -> str:
    """The commit of the checkout, with a + if it has changes; "" outside a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"],
            cwd=here, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()


def cpu() -> str:
    """The name of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
