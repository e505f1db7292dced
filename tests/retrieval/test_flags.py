"""The ones in a matrix of zeros and ones."""

from __future__ import annotations

import pytest
import torch

from proxysynth.retrieval.flags import ones


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0])
def test_all_ones_are_found_in_order(share: float) -> None:
    flags = (torch.rand(40, 64) < share).float()
    row, column = ones(flags)
    expected = flags.nonzero(as_tuple=True)
    assert torch.equal(row, expected[0])
    assert torch.equal(column, expected[1])
    row, column = ones(flags.T)
    assert torch.equal(column, expected[0])
    assert torch.equal(row, expected[1])
