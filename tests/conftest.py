"""What many tests need: seeds, and batches that fit a loss."""

from __future__ import annotations

import os

# One thread: the suite runs beside other work, and small tensors gain nothing from two.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
