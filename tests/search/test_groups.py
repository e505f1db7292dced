"""Near-duplicates against a loop over pairs; clusters and NMI of known groups."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from proxysynth.retrieval.metrics import evaluate, kmeans, mutual_information
from proxysynth.search import groups
from proxysynth.search.groups import duplicates, hdbscan
from retrieval import oracle


def groups_by_loop(x: np.ndarray, threshold: float) -> list[int]:
    """The lowest number that each can be reached from."""
    S = oracle.similarities(x, x)
    group = list(range(len(x)))
    for _ in x:
        for i in range(len(x)):
            for j in range(len(x)):
                if i != j and S[i, j] >= threshold:
                    group[i] = group[j] = min(group[i], group[j])
    return group


@pytest.mark.parametrize("threshold", [-1.0, 0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("block", [8, 2**22])
def test_duplicates_match_a_loop(threshold: float, block: int, monkeypatch) -> None:
    monkeypatch.setattr(groups, "BLOCK", block)
    r = np.random.default_rng(0)
    x = r.normal(size=(12, 4))[r.integers(0, 12, 30)] + 0.2 * r.normal(size=(30, 4))
    group, best = duplicates(x, threshold)
    assert group.tolist() == groups_by_loop(x, threshold)
    S = oracle.similarities(x, x)
    np.fill_diagonal(S, -1)
    top = S.max(1)
    np.testing.assert_allclose(best, np.where(top >= threshold, top, -1), atol=1e-12)


def test_copies_are_duplicates_at_a_threshold_near_one() -> None:
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(0))
    group, best = duplicates(torch.cat([x, 3 * x]), 0.999999)
    assert group.tolist() == [0, 1, 2, 3, 4] * 2
    assert best == pytest.approx(1.0)


def separate(n: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
    y = torch.arange(n) % c
    noise = torch.randn(n, c, generator=torch.Generator().manual_seed(0))
    return 10 * torch.eye(c)[y] + 0.1 * noise, y


def test_separate_clusters_are_found_reproducibly() -> None:
    x, y = separate(200, 20)
    cluster = kmeans(x, 20, seed=3)
    assert mutual_information(y.numpy(), cluster) > 0.9
    assert np.array_equal(cluster, kmeans(x, 20, seed=3))
    assert mutual_information(y.numpy(), hdbscan(x, 5)) == pytest.approx(1.0)


def test_isolated_items_are_in_no_cluster() -> None:
    x, _ = separate(60, 4)
    alone = -torch.ones(1, 4)
    assert hdbscan(torch.cat([x, alone]), 5)[-1] == -1


def test_nmi_uses_one_cluster_per_class() -> None:
    y = torch.tensor([5, 5, 5, -2, -2, -2])
    x = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 7.0]] * 3)
    assert evaluate(x, y, nmi=True)["nmi"] == pytest.approx(1.0)
    with pytest.warns(UserWarning, match="labels are the same"):
        assert evaluate(x, torch.zeros(6, dtype=torch.long), nmi=True)["nmi"] == 1.0


@pytest.mark.parametrize("k", [0, 6, 2.0])
def test_k_out_of_range_is_rejected(k) -> None:
    with pytest.raises(ValueError, match="k must"):
        kmeans(torch.randn(5, 2), k)


def test_invalid_settings_are_rejected() -> None:
    with pytest.raises(ValueError, match="threshold"):
        duplicates(torch.randn(5, 2), 1.5)
    with pytest.raises(ValueError, match="from 2"):
        hdbscan(torch.randn(5, 2), 1)
