"""Freed memory stays with the process until the machine runs short."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proxysynth import memory

SIZE = 64 * 2**20

needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator")

# In a process of its own: what other tests allocated would blur the picture.
CODE = f"""
import time, torch
from proxysynth import memory

def resident_after_a_large_tensor():
    torch.ones({SIZE} // 4)
    return memory.resident_memory()

before = resident_after_a_large_tensor()
memory.INTERVAL = 0.01
memory.keep_freed_memory()
kept = resident_after_a_large_tensor()
memory.available_memory = lambda: 0
for _ in range(500):
    time.sleep(0.02)
    if memory.resident_memory() - before < {SIZE} // 10:
        break
print(kept - before, memory.resident_memory() - before)
"""


def resident(**environment: str) -> tuple[int, int]:
    """Bytes more than before: after a large tensor was freed, and when memory has run short."""
    own = ("MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES")
    clean = {k: v for k, v in os.environ.items() if not k.startswith(own)}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True, text=True, check=True, env=clean | environment,
    )  # fmt: skip
    kept, given_back = done.stdout.split()
    return int(kept), int(given_back)


@needs_glibc
def test_freed_memory_is_kept_until_memory_is_low() -> None:
    kept, given_back = resident()
    assert kept > 0.9 * SIZE
    assert given_back < 0.1 * SIZE


@needs_glibc
def test_user_malloc_settings_are_respected() -> None:
    kept, _ = resident(MALLOC_TOP_PAD_="131072")
    assert kept < 0.1 * SIZE


def test_container_limit_is_respected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxysynth.memory.CONTAINER", tmp_path)
    machine = memory.available_memory()
    (tmp_path / "memory.current").write_text("600\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert memory.available_memory() == pytest.approx(machine, rel=0.5)
    (tmp_path / "memory.max").write_text("1000\n")
    assert memory.available_memory() == 400


def test_other_c_libraries_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())  # such as musl
    threads = set(threading.enumerate())
    memory.keep_freed_memory()
    assert set(threading.enumerate()) <= threads  # nothing watches the memory
