"""The ones in a matrix of zeros and ones."""

from __future__ import annotations

import pytest
import torch

from proxysynth.retrieval.flags import count, ones


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize("size", [(40, 64), (24, 8), (3, 640)])
def test_all_ones_are_found_in_order(size, dtype: torch.dtype, share: float) -> None:
    flags = (torch.rand(size) < share).to(dtype)
    row, column = ones(flags, count(flags))
    expected = flags.nonzero(as_tuple=True)
    assert torch.equal(row, expected[0])
    assert torch.equal(column, expected[1])
    row, column = ones(flags.T, count(flags.T))
    assert torch.equal(column, expected[0])
    assert torch.equal(row, expected[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_ones_are_counted(dtype: torch.dtype) -> None:
    flags = (torch.rand(40, 64) < 0.3).to(dtype)
    assert int(count(flags).sum()) == int(flags.sum())
