"""The block follows the device and what is free on it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from proxysynth.regularizers import block_size as module
from proxysynth.regularizers.block_size import UNKNOWN, block_size, free_memory

CPU = torch.device("cpu")


def test_more_rows_make_smaller_blocks_and_little_memory_smaller_ones(monkeypatch) -> None:
    monkeypatch.setattr(module, "free_memory", lambda device: 2**34)
    roomy = [block_size(rows, CPU) for rows in (64, 256, 512, 10_000)]
    assert roomy == sorted(roomy, reverse=True)
    assert roomy[0] > roomy[-1] >= 256
    monkeypatch.setattr(module, "free_memory", lambda device: 2**24)
    tight = block_size(512, CPU)
    assert 16 <= tight < roomy[2]
    assert 4 * tight * 512 * 4 <= 2**24 / 16  # four matrices of it in a sixteenth of what is free
    assert block_size(512, CPU, bytes_each=8) == tight // 2
    monkeypatch.setattr(module, "free_memory", lambda device: 0)
    assert block_size(512, CPU) == 16


def test_what_is_free_is_read_from_the_system(tmp_path: Path, monkeypatch) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 99 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n")
    assert free_memory(CPU, told) == 2048 * 1024
    assert free_memory(CPU, tmp_path / "none") == UNKNOWN
    assert free_memory(torch.device("meta"), told) == UNKNOWN
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (123, 456))
    assert free_memory(torch.device("cuda"), told) == 123


def test_a_block_of_no_rows_cannot_be_asked_for() -> None:
    with pytest.raises(ZeroDivisionError):
        block_size(0, CPU)
