import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxysynth.search import search
from proxysynth.search.search import nearest_rows
from search.made_up import vectors


def slowly(query, rows, k, among=None, left_out=()):
    """One cosine after the other in float64; ties by the lower row."""
    scored = []
    for number, row in enumerate(rows.astype(np.float64)):
        if (among is None or number in among) and number not in left_out:
            one = query.astype(np.float64)
            cosine = sum(a * b for a, b in zip(one, row, strict=True))
            scored.append((-cosine / np.sqrt((one @ one) * (row @ row)), number))
    return [number for _, number in sorted(scored)[:k]], [-s for s, _ in sorted(scored)[:k]]


@pytest.mark.parametrize("cells", [1 << 22, 4096])  # all rows at once, or in three blocks
@pytest.mark.parametrize("k", [1, 7, 5000])
def test_as_a_slow_loop_says(cells, k, monkeypatch):
    monkeypatch.setattr(search, "CELLS", cells)
    rows, x = vectors(2500, 6), vectors(3, 6, seed=1)
    among = np.arange(0, 2500, 7)
    left_out = [(7,), (), (0, 14)]
    for only in (None, among):
        found = nearest_rows(
            torch.from_numpy(x), torch.from_numpy(rows), k, among=only, leave_out=left_out
        )
        for query, (numbers, cosines), out in zip(x, found, left_out, strict=True):
            expected = slowly(query, rows, k, only, out)
            assert numbers.tolist() == expected[0]
            np.testing.assert_allclose(cosines, expected[1], atol=1e-12)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(0, 9))
def test_duplicates_come_in_order(n, copies, seed):
    x = torch.from_numpy(vectors(n, 5, seed))
    rows = x.repeat(copies, 1)
    (numbers, cosines) = nearest_rows(x[:1], rows, copies)[0]
    assert numbers.tolist() == [i * n for i in range(copies)]
    np.testing.assert_allclose(cosines, 1)


def test_a_similarity_does_not_depend_on_who_else_asks():
    rows, x = torch.from_numpy(vectors(3000, 33)), torch.from_numpy(vectors(40, 33, seed=2))
    together = nearest_rows(x, rows, 9)
    for i in range(len(x)):
        alone = nearest_rows(x[i : i + 1], rows, 9)[0]
        np.testing.assert_array_equal(alone[0], together[i][0])
        np.testing.assert_array_equal(alone[1], together[i][1])


def test_more_queries_than_share_a_product(monkeypatch):
    monkeypatch.setattr(search, "QUERIES", 4)
    rows, x = torch.from_numpy(vectors(50, 5)), torch.from_numpy(vectors(10, 5, seed=3))
    found = nearest_rows(x, rows, 3, leave_out=[(i,) for i in range(10)])
    for i, (numbers, _) in enumerate(found):
        assert numbers.tolist() == slowly(x[i].numpy(), rows.numpy(), 3, left_out=(i,))[0]


def test_rows_of_zeros_and_of_nan_do_no_harm():
    rows = torch.from_numpy(vectors(5, 4))
    rows[1], rows[3] = 0, torch.nan
    (numbers, cosines) = nearest_rows(rows[:1], rows, 5)[0]
    assert 3 not in numbers
    assert numbers[0] == 0
    assert cosines[numbers == 1] == 0
    assert np.isfinite(cosines).all()
