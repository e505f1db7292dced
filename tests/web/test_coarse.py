"""A search that looks at few bits first finds what a search in float64 finds."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxysynth.retrieval.similarity import rounded
from proxysynth.web.coarse import Coarse, coarse


def clustered(n: int, d: int, seed: int = 0) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(max(1, n // 20), d))
    x = centres[draw.integers(len(centres), size=n)] + 0.5 * draw.normal(size=(n, d))
    return torch.from_numpy((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))


def slow(x, rows, k, among=None, leave_out=None):
    rows, x = rows.double().numpy(), x.double().numpy()
    cosines = rows @ x / np.linalg.norm(rows, axis=1) / np.linalg.norm(x)
    numbers = range(len(rows)) if among is None else among
    return sorted((i for i in numbers if i != leave_out), key=lambda i: (-cosines[i], i))[:k]


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
@pytest.mark.parametrize(("n", "d", "k"), [(3000, 64, 10), (500, 33, 500), (40, 8, 100), (1, 5, 1)])
def test_it_finds_what_a_slow_search_finds(dtype, n, d, k) -> None:
    rows = clustered(n, d)
    held = Coarse(rows, rounded(rows.clone(), dtype))
    x = clustered(5, d, seed=1)
    x[0] = rows[n // 2]
    leave_out = [n // 2, None, 0, None, None]
    for one, out, (numbers, cosines) in zip(
        x, leave_out, held.nearest(x, k, leave_out=leave_out), strict=True
    ):
        assert numbers.tolist() == slow(one, rows, k, leave_out=out)
        assert np.all(np.diff(cosines) <= 0)
    among = np.arange(0, n, 3)
    for one, (numbers, _) in zip(x, held.nearest(x, k, among=among), strict=True):
        assert numbers.tolist() == slow(one, rows, k, among)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16])
def test_ties_go_to_the_lower_number_even_if_all_are_tied(dtype) -> None:
    rows = clustered(1, 16).repeat(5000, 1)
    held = Coarse(rows, rounded(rows.clone(), dtype))
    (numbers, cosines), (others, _) = held.nearest(rows[:2], 7, leave_out=[None, 2])
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert others.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert cosines == pytest.approx(1)


def test_nothing_is_found_among_nothing() -> None:
    rows = clustered(50, 16)
    held = Coarse(rows, rounded(rows.clone(), torch.int8))
    ((numbers, cosines),) = held.nearest(rows[:1], 3, among=np.empty(0, np.int64))
    assert len(numbers) == len(cosines) == 0


def test_rows_that_are_no_numbers_are_not_held() -> None:
    rows = clustered(50, 64)
    rows[3, 5] = torch.nan
    assert coarse(rows) is None
