"""Products in few bits: never further off than they say, and never of influence on a result."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxysynth.retrieval import product, rank
from proxysynth.retrieval.rounding import (
    TYPES,
    _seconds,
    multiply,
    rounded,
    slack,
    types_that_pay,
)

WAYS = [TYPES, TYPES[1:], TYPES[2:], (torch.int8, torch.float32)]


def gaussian(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d)


def heavy_tailed(n: int, d: int) -> torch.Tensor:
    return torch.randn(n, d) ** 5


def sparse(n: int, d: int) -> torch.Tensor:
    return torch.relu(torch.randn(n, d) - 1.5) + torch.eye(n, d)


def concentrated(n: int, d: int) -> torch.Tensor:
    return torch.ones(n, d) + 1e-3 * torch.randn(n, d)


def with_an_outlier(n: int, d: int) -> torch.Tensor:
    x = torch.randn(n, d)
    x[n // 2] = torch.eye(d)[0]
    x[n // 3] = 0
    return x


KINDS = [gaussian, heavy_tailed, sparse, concentrated, with_an_outlier]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [3, 64, 700])
def test_no_product_is_off_by_more_than_its_slack(kind, wide, dtype, d: int) -> None:
    x = torch.nn.functional.normalize(kind(96, d).to(wide), dim=1)
    a, b = rounded(x[:48], dtype), rounded(x[48:], dtype)
    S, spare = torch.empty(48, 48), torch.empty(48, 48)
    S = multiply(a, b, S, spare)
    true = x[:48].double() @ x[48:].double().T
    off = (S.double() * a.unit * b.unit - true).abs()
    allowed = slack(a.off, b.off) + a.grain * true.abs() * 1.01
    assert (off <= allowed).all()
    assert (allowed < {torch.int8: 0.4, torch.bfloat16: 0.02, torch.float32: 0.001}[dtype]).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("own", [True, False])
def test_the_type_changes_nothing(monkeypatch, kind, way, own: bool) -> None:
    torch.manual_seed(1)
    y = torch.arange(300) % 50
    x = torch.nn.functional.normalize(kind(50, 40), dim=1)[y]
    x = x + 0.1 * torch.nn.functional.normalize(kind(300, 40), dim=1)
    x[250:] = x[:50]  # copies
    apart = {} if own else {"gallery": x[100:], "gallery_labels": y[100:]}
    queries = slice(None) if own else slice(100)
    expected = rank(x[queries].double(), y[queries], block=64, **apart)
    monkeypatch.setattr(product, "types_that_pay", lambda device, d: way)
    got = rank(x[queries].double(), y[queries], block=64, **apart)
    for name in ("positives", "first", "r_precision", "average_precision"):
        assert torch.equal(getattr(got, name), getattr(expected, name)), name


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("spread", [0.02, 0.15, 3.0])
def test_many_blocks_of_good_and_bad_embeddings(monkeypatch, way, spread: float) -> None:
    monkeypatch.setattr(product, "types_that_pay", lambda device, d: way)
    r = np.random.default_rng(0)
    y = r.permutation(1500) // 6
    x = r.normal(size=(250, 48)) / 48**0.5
    x = x[y] + spread * r.normal(size=(1500, 48))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    S = u @ u.T
    np.fill_diagonal(S, -np.inf)
    right = y[np.argsort(-S, axis=1, kind="stable")[:, :-1]] == y[:, None]
    precision = right[:, :5].cumsum(1) / np.arange(1, 6)
    got = rank(x, y, block=128)
    np.testing.assert_array_equal(got.first, right.argmax(1))
    np.testing.assert_allclose(got.r_precision, right[:, :5].mean(1))
    np.testing.assert_allclose(got.average_precision, (precision * right[:, :5]).mean(1))


def test_shorter_float32_products_are_allowed_for() -> None:
    y = torch.arange(300) % 60
    x = torch.randn(60, 24)[y] + torch.randn(300, 24)
    expected = rank(x, y)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(rank(x, y).first, expected.first)
    finally:
        torch.set_float32_matmul_precision(before)


def test_float32_is_always_the_last_way() -> None:
    assert types_that_pay(torch.device("cpu"), 64)[-1] == torch.float32
    assert types_that_pay(torch.device("cpu"), 3) == (torch.float32,)
    assert types_that_pay(torch.device("meta"), 64) == (torch.float32,)


def test_a_wrong_or_missing_product_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out.fill_(2**15 - 1)

    monkeypatch.setattr(torch, "_int_mm", cut_off)
    assert _seconds(torch.int8, 64) == float("inf")
    monkeypatch.delattr(torch, "_int_mm")
    assert _seconds(torch.int8, 64) == float("inf")
    assert _seconds(torch.float32, 64) < 1


@pytest.mark.parametrize("way", WAYS)
def test_results_too_long_for_their_type(monkeypatch: pytest.MonkeyPatch, way) -> None:
    """Vectors that any type holds exactly, with products that bfloat16 does not."""
    generator = torch.Generator().manual_seed(0)

    def flips(n: int, share: float) -> torch.Tensor:
        return (torch.rand(n, 1024, generator=generator) < share).long()

    y = torch.arange(400) % 80
    x = (flips(1, 0.5) ^ flips(80, 0.02)[y] ^ flips(400, 0.1)) * 2.0 - 1  # of length 32
    S = (x @ x.T).fill_diagonal_(-torch.inf)
    right = y[S.sort(dim=1, descending=True, stable=True).indices[:, :-1]] == y[:, None]
    monkeypatch.setattr(product, "types_that_pay", lambda device, d: way)
    got = rank(x, y)
    assert torch.equal(got.first, right.int().argmax(1))
    torch.testing.assert_close(got.r_precision, right[:, :4].double().mean(1))
