"""What the benchmarks share: threads, sides that alternate, processes of their own, peak memory."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from benchmarks import ROOT


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run the block with this number of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def timed(function: Callable[..., Any], *arguments: Any) -> float:
    """The seconds that a call takes."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def alternate(sides: Mapping[str, Callable[[int], Any]], rounds: range) -> dict[str, list[float]]:
    """The seconds of each side in each round; the sides are called in turn with its number."""
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in rounds:
        for name, side in sides.items():
            taken[name].append(timed(side, number))
    return taken


def in_own_process(module: str, *arguments: str) -> dict[str, Any]:
    """The JSON that `python -m benchmarks.MODULE` prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        raise RuntimeError(
            f"the measurement of {module} {arguments[0]} failed: {done.stderr.strip()[-500:]}"
        )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def peak() -> float:
    """The peak resident size so far, in megabytes."""
    import resource  # Unix only

    status = Path("/proc/self/status")
    if status.exists():  # getrusage would include the parent's memory
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return float(line.split()[1]) / 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (2**20 if sys.platform == "darwin" else 2**10)


def reset_peak() -> float:
    """Reset the peak to the current size, where the system supports it, and return it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak()
