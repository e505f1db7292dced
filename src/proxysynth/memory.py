"""How much memory there is, and whether freed memory stays with the process.

A training step on the CPU allocates the same large tensors as the one before. By default glibc
returns each of them to the system when it is freed, so every page is cleared and mapped again: a
third of the time with EfficientNet-Lite0 and batches of 128. Keeping them costs some 40% more
memory at the peak, so they are given back as soon as the machine runs short.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import time
from contextlib import suppress
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")

# Parameters of mallopt(3).
TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD, MMAP_MAX = -1, -2, -3, -4
KEEP = {MMAP_MAX: 0, TRIM_THRESHOLD: -1, TOP_PAD: 64 * 2**20}
DEFAULT = {MMAP_MAX: 65_536, MMAP_THRESHOLD: 32 * 2**20, TRIM_THRESHOLD: 64 * 2**20, TOP_PAD: 2**17}
OWN_SETTINGS = ("TRIM_THRESHOLD_", "TOP_PAD_", "MMAP_THRESHOLD_", "MMAP_MAX_")
INTERVAL = 2.0  # seconds between two looks at the memory available


def available_memory() -> float:
    """Bytes that can still be allocated on this machine or in its container; inf if unknown."""
    machine = math.inf
    with suppress(OSError, IndexError):
        text = MEMINFO.read_text().partition("MemAvailable:")[2]
        machine = int(text.split(maxsplit=1)[0]) * 1024
    return min(machine, _container("memory.max", math.inf) - _container("memory.current", 0))


def total_memory() -> float:
    """Bytes of memory of this machine or its container; inf if unknown."""
    machine = math.inf
    with suppress(OSError, ValueError, AttributeError):
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, _container("memory.max", math.inf))


def resident_memory() -> int:
    """Bytes of memory that this process holds; 0 if unknown."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def return_freed_memory() -> None:
    """Give memory that was freed back to the system, which glibc would keep for later."""
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def keep_freed_memory() -> None:
    """Let malloc keep what is freed until memory runs short. Does nothing without glibc. Your own
    malloc settings are respected."""
    library = _glibc()
    if library is None:
        return
    for parameter, value in KEEP.items():
        library.mallopt(parameter, value)

    def watch() -> None:
        while available_memory() >= resident_memory() / 2:
            time.sleep(INTERVAL)
        for parameter, value in DEFAULT.items():
            library.mallopt(parameter, value)
        library.malloc_trim(0)

    threading.Thread(target=watch, daemon=True).start()


def _glibc() -> ctypes.CDLL | None:
    """The C library, if it is glibc and nobody has configured its malloc."""
    values = (os.environ.get(name, "") for name in ("GLIBC_TUNABLES", "LD_PRELOAD"))
    configured = any(f"MALLOC_{name}" in os.environ for name in OWN_SETTINGS)
    if configured or any("malloc" in value for value in values):
        return None
    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  musl has none
        library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
        library.malloc_trim.argtypes = (ctypes.c_size_t,)
        return library
    return None


def _container(name: str, otherwise: float) -> float:
    with suppress(OSError, ValueError):  # no such limit, or the word "max"
        return int((CONTAINER / name).read_text())
    return otherwise
