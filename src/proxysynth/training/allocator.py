"""Memory that is kept from one step to the next.

A step on a CPU asks for the same large pieces as the one before. By default the C library returns
each to the system when it is freed, and every page of the next one is cleared and mapped again: a
third of the time with EfficientNet-Lite0 and batches of 128. While memory is kept, freed pieces
stay with the process. Pieces of different sizes do not fill each other's gaps, so it comes to hold
some 40 % more than it uses at its height; where that would leave the machine short, keeping ends.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

# The parameters of mallopt(3).
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
KEPT = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 64 * 2**20}
"""No piece apart from the heap, and the heap never shortened; it grows in strides."""
USUAL = {MMAP_MAX: 65_536, MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20, TOP_PAD: 2**17}
"""glibc's own values; thresholds that grow by themselves are set to what they grow to at most."""

CPU = torch.device("cpu")
CONTAINER = Path("/sys/fs/cgroup")
SETTINGS = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
)
_lock = threading.Lock()
_keepers = 0
_short = False

Look = Callable[[], None]
"""To be called now and then: gives the kept memory back if the machine is short of it."""


@contextmanager
def kept_memory(device: torch.device = CPU) -> Iterator[Look]:
    """Keep freed memory for the time of the block; several blocks at once are one.

    Does nothing for another device than the CPU, without glibc, or where the environment already
    says how memory is to be allocated.
    """
    library = _library() if device.type == "cpu" else None
    if library is None:
        yield lambda: None
        return
    _change(library, +1)
    try:
        yield lambda: _look(library)
    finally:
        _change(library, -1)


def _change(library: ctypes.CDLL, by: int) -> None:
    global _keepers, _short
    with _lock:
        before, _keepers = _keepers, _keepers + by
        if not before:
            _short = False
            _set(library, KEPT)
        elif not _keepers and not _short:
            _give_back(library)


def _look(library: ctypes.CDLL) -> None:
    global _short
    if _short:
        return
    held, available = _held(), _available()
    if available < held / 2:
        with _lock:
            _short = True
            _give_back(library)


def _give_back(library: ctypes.CDLL) -> None:
    _set(library, USUAL)
    library.malloc_trim(0)


def _set(library: ctypes.CDLL, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        library.mallopt(parameter, value)


def _held() -> int:
    """Bytes of memory that this process has."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:  # a system that does not show it
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _available() -> float:
    """Bytes that can still be had of the machine's memory, or of the container's."""
    found = [math.inf]
    with suppress(OSError, IndexError):
        told = Path("/proc/meminfo").read_text().partition("MemAvailable:")[2]
        found.append(int(told.split(maxsplit=1)[0]) * 1024)
    with suppress(OSError, ValueError):  # no such limit, or the word "max"
        limit, used = (
            int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current")
        )
        found.append(limit - used)
    return min(found)


def _library() -> ctypes.CDLL | None:
    """The C library, if it is glibc and has its allocator to itself."""
    chosen = (os.environ.get(name, "") for name in ("GLIBC_TUNABLES", "LD_PRELOAD"))
    if any("malloc" in value for value in chosen) or any(name in os.environ for name in SETTINGS):
        return None
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version, library.mallopt, library.malloc_trim  # noqa: B018
    except (OSError, AttributeError, TypeError):
        return None
    library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    library.malloc_trim.argtypes = (ctypes.c_size_t,)
    return library
