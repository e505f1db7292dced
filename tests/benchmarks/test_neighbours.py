"""The race runs, its methods agree, and it says so when they do not."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from benchmarks import neighbours as bench


def test_methods_agree_and_are_timed() -> None:
    rows = bench.compare(1_200, 16, 5, repeats=1)
    assert [row["method"] for row in rows] == [
        "proxysynth",
        "bare product",
        "blocked topk",
        "faiss flat",
        "AccuracyCalculator",
    ]
    ours, bare, topk, faiss, calculator = rows
    assert ours["times_ours"] == 1.0
    assert all(row["seconds"] > 0 for row in rows)
    assert 0.1 < ours["recall@1"] < 0.9
    assert faiss["recall@8"] == ours["recall@8"]
    assert topk["map@r"] == pytest.approx(ours["map@r"], abs=1e-3)
    assert calculator["map@r"] == pytest.approx(ours["map@r"], abs=1e-3)
    assert "map@r" not in bare


def test_a_difference_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"other gives map@r 0.5.*, proxysynth 0.6"):
        bench.agree("other", {"map@r": 0.5}, {"map@r": 0.6})


def test_measures_of_neighbors_drop_the_query_wherever_it_stands() -> None:
    neighbour = np.array([[1, 0, 2], [0, 1, 2], [0, 2, 1]])  # query 0 behind its copy 1
    labels = np.array([0, 1, 1])
    neighbour = np.vstack([neighbour, [3, 2, 0]])
    measures = bench.measures_of_neighbours(neighbour, np.append(labels, 0))
    # Left: [1, 2], [0, 2], [0, 1], [2, 0]; right ones at: none, 2nd, 2nd, 2nd.
    assert measures["recall@1"] == 0.0
    assert measures["recall@8"] == 0.75
    assert measures["map@r"] == 0.0


def test_memory_is_far_below_the_whole_matrix() -> None:
    row = bench.alone(9_000, 8, 5)
    assert 0 < row["extra_megabytes"] < 100  # the matrix alone would be 309
    assert row["recall@8"] > 0.1


def test_missing_peer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ValueError, match="faiss.*pip install"):
        bench.compare(50, 4, 5, repeats=1)
