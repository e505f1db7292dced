"""How much memory there is: of the machine, of its container, and of this process."""

from __future__ import annotations

import ctypes
import math
import os
from contextlib import suppress
from pathlib import Path

CONTAINER = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def available_memory() -> float:
    """Bytes that can still be allocated on this machine or in its container; inf if unknown."""
    found = [math.inf]
    with suppress(OSError, IndexError):
        text = MEMINFO.read_text().partition("MemAvailable:")[2]
        found.append(int(text.split(maxsplit=1)[0]) * 1024)
    with suppress(OSError, ValueError):  # no such limit, or the word "max"
        found.append(_container("memory.max") - _container("memory.current"))
    return min(found)


def total_memory() -> float:
    """Bytes of memory of this machine or its container; inf if unknown."""
    found = [math.inf]
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with suppress(OSError, ValueError):
        found.append(_container("memory.max"))
    return min(found)


def resident_memory() -> int:
    """Bytes of memory that this process holds; 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def return_freed_memory() -> None:
    """Give memory that was freed back to the system, which glibc would keep for later."""
    with suppress(OSError, AttributeError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


def _container(name: str) -> int:
    return int((CONTAINER / name).read_text())
