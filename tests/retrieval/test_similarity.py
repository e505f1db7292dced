"""Similarities of chosen pairs depend on the pair alone; fast products are as exact as they say."""

from __future__ import annotations

import pytest
import torch

from proxysynth.retrieval.similarity import (
    TYPES,
    Block,
    dots,
    error_bound,
    fast_types,
    multiply,
    nonzero,
    product_seconds,
    rounded,
)
from retrieval.clouds import CLOUDS


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


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 1.0])
@pytest.mark.parametrize("size", [(40, 64), (3, 7)])
def test_nonzero_is_in_memory_order(size, share: float) -> None:
    flags = torch.rand(size) < share
    expected = flags.nonzero(as_tuple=True)
    for got, other in zip(nonzero(flags), expected, strict=True):
        assert torch.equal(got, other)
    column, row = nonzero(flags.T)
    assert torch.equal(row, expected[0])
    assert torch.equal(column, expected[1])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("d", [3, 64, 700])
def test_no_product_is_off_by_more_than_its_bound(kind, dtype, d: int) -> None:
    x = torch.nn.functional.normalize(kind(96, d), dim=1)
    a, b = rounded(x[:48], dtype), rounded(x[48:], dtype)
    S, spare = torch.empty(48, 48), torch.empty(48, 48)
    S = multiply(a, b, S, spare)
    true = x[:48].double() @ x[48:].double().T
    off = (S.double() * a.unit * b.unit - true).abs()
    allowed = error_bound(a.error, b.error) + a.grain * true.abs() * 1.01
    assert (off <= allowed).all()
    assert (allowed < {torch.int8: 0.4, torch.bfloat16: 0.02, torch.float32: 0.001}[dtype]).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", CLOUDS)
def test_thresholds_of_a_block_are_safe(kind, dtype) -> None:
    x = torch.nn.functional.normalize(kind(96, 64), dim=1)
    a, b = rounded(x[:48], dtype), rounded(x[48:], dtype)
    block = Block.of(a, b, torch.empty(48, 48), torch.empty(48, 48))
    true = x[:48].double() @ x[48:].double().T
    t = true[:, :1].float()
    assert block.reaching(t)[true >= t].all()
    assert (true > t)[block.above(t)].all()
    for j in range(48):
        lower = block.S.lt(block.equaling(block.S[:, j])[:, None])
        assert (true < true[:, j : j + 1])[lower].all()
        higher = block.S.gt(block.surpassing(block.S[:, j])[:, None])
        assert (true > true[:, j : j + 1])[higher].all()


def test_float32_is_always_the_last_way() -> None:
    assert fast_types(torch.device("cpu"), 64)[-1] == torch.float32
    assert fast_types(torch.device("cpu"), 3) == (torch.float32,)
    assert fast_types(torch.device("meta"), 64) == (torch.float32,)


def test_a_wrong_or_missing_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.fill_(2**15 - 1)

    monkeypatch.setattr(torch, "_int_mm", cut_off)
    assert product_seconds(torch.int8, 64) == float("inf")
    monkeypatch.delattr(torch, "_int_mm")
    assert product_seconds(torch.int8, 64) == float("inf")
    assert product_seconds(torch.float32, 64) < 1
