"""Where a number comes from: commit, machine and versions, saved with every result."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path

import torch

from proxysynth import __version__


def provenance() -> dict[str, str]:
    """What a reader needs to judge or repeat a measurement. The commit ends with a + if the
    clone has changes, and is empty outside a clone."""
    commit, cpu = "", platform.processor() or platform.machine()
    with suppress(OSError, subprocess.SubprocessError):
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*"],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10,
        ).stdout.strip()  # fmt: skip
    with suppress(OSError):
        named = re.search(r"^model name\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        cpu = named[1].strip() if named else cpu
    return {
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d"),
        "commit": commit,
        "proxysynth": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "machine": f"{cpu}, {os.cpu_count()} cores",
    }
