"""Memory is kept while a block lasts, and given back after it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from proxysynth.training import allocator
from proxysynth.training.allocator import kept_memory

PIECE = 64 * 2**20

# In a process of its own: whatever the tests have allocated would blur what is seen.
HELD = """
import sys, torch
from proxysynth.training.allocator import kept_memory

def held():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024

def piece():
    torch.ones(%d // 4)
    return held()

piece()
least = held()
with kept_memory():
    inside = piece()
print(inside - least, held() - least)
"""


def held(env: dict[str, str]) -> tuple[int, int]:
    """Bytes more than before: after a large piece was freed, and after the block."""
    code = HELD % PIECE
    run = [sys.executable, "-c", code]
    made = subprocess.run(run, capture_output=True, text=True, check=True, env=env).stdout.split()
    return int(made[0]), int(made[1])


def environment(**more: str) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "LD_PRELOAD"))}
    return {**plain, **more}


needs_glibc = pytest.mark.skipif(allocator._library() is None, reason="another allocator")


@needs_glibc
def test_freed_memory_stays_until_the_block_ends() -> None:
    inside, after = held(environment())
    assert inside > 0.9 * PIECE
    assert after < 0.1 * PIECE


@needs_glibc
def test_an_allocator_that_the_user_chose_is_left_alone() -> None:
    inside, _ = held(environment(MALLOC_MMAP_THRESHOLD_="1000000"))
    assert inside < 0.1 * PIECE


class Recorded:
    def __init__(self) -> None:
        self.calls: list[tuple[int, ...]] = []

    def mallopt(self, parameter: int, value: int) -> None:
        self.calls.append((parameter, value))

    def malloc_trim(self, pad: int) -> None:
        self.calls.append((pad,))


def test_blocks_within_blocks_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorded()
    monkeypatch.setattr(allocator, "_library", lambda: library)
    with kept_memory():
        with kept_memory():
            begun = list(library.calls)
        assert library.calls == begun == list(allocator.KEPT.items())
    assert library.calls == [*begun, *allocator.USUAL.items(), (0,)]


def test_a_machine_that_is_short_of_memory_gets_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorded()
    monkeypatch.setattr(allocator, "_library", lambda: library)
    available = [1e12]
    monkeypatch.setattr(allocator, "_available", lambda: available[0])
    with kept_memory() as look:
        look()
        assert library.calls == list(allocator.KEPT.items())
        available[0] = allocator._held() / 3
        look()
        given_back = [*allocator.KEPT.items(), *allocator.USUAL.items(), (0,)]
        assert library.calls == given_back
        look()
    assert library.calls == given_back  # once
    with kept_memory():  # and the next block starts anew
        assert library.calls == [*given_back, *allocator.KEPT.items()]


@pytest.mark.parametrize(("limit", "left"), [("3000000", 1_000_000), ("max", None)])
def test_a_container_has_less_than_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, left: int | None
) -> None:
    machine = allocator._available()
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text("2000000\n")
    monkeypatch.setattr(allocator, "CONTAINER", tmp_path)
    if left is None:
        assert allocator._available() == pytest.approx(machine, rel=0.5)
    else:
        assert allocator._available() == left


def test_memory_is_given_back_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorded()
    monkeypatch.setattr(allocator, "_library", lambda: library)
    with pytest.raises(RuntimeError), kept_memory():
        raise RuntimeError
    assert library.calls[-1] == (0,)


def test_other_devices_and_other_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recorded()
    monkeypatch.setattr(allocator, "_library", lambda: library)
    with kept_memory(torch.device("cuda")):
        pass
    assert not library.calls
    monkeypatch.undo()
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: object())  # such as musl
    assert allocator._library() is None
