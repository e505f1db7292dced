"""Similarities of chosen pairs depend on the pair alone."""

from __future__ import annotations

import pytest
import torch

from proxysynth.retrieval.dots import dots


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [1, 7, 64, 513])
def test_chosen_pairs(dtype: torch.dtype, d: int) -> None:
    x, y = torch.randn(9, d, dtype=dtype), torch.randn(13, d, dtype=dtype)
    row, column = torch.tensor([0, 0, 3, 3, 8]), torch.tensor([12, 1, 1, 5, 0])
    expected = (x[row].double() * y[column].double()).sum(1)
    torch.testing.assert_close(dots(x, y, row, column).double(), expected, rtol=1e-5, atol=1e-5)
    none = torch.empty(0, dtype=torch.int64)
    assert dots(x, y, none, none).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 16, 100, 512])
def test_equal_pairs_are_equal_wherever_they_stand(dtype: torch.dtype, d: int) -> None:
    x = torch.randn(1, d, dtype=dtype).expand(37, d).contiguous()
    y = torch.randn(1, d, dtype=dtype).expand(53, d).contiguous()
    row, column = torch.arange(37).repeat_interleave(53), torch.arange(53).repeat(37)
    upright = dots(x, y, row, column)
    row, column = torch.arange(53).repeat_interleave(37), torch.arange(37).repeat(53)
    assert len(torch.cat([upright, dots(y, x, row, column)]).unique()) == 1
