"""k-means and NMI against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import normalized_mutual_info_score

from proxysynth.retrieval.clustering import clustering_nmi, kmeans, mutual_information


def scatter(x: torch.Tensor, cluster: torch.Tensor) -> float:
    """The sum of squared distances to the mean of the cluster, which k-means makes small."""
    return sum(
        float((x[cluster == c] - x[cluster == c].mean(0)).square().sum()) for c in cluster.unique()
    )


@pytest.mark.parametrize("seed", range(20))
def test_mutual_information_is_scikit_learns(seed: int) -> None:
    r = np.random.default_rng(seed)
    n = int(r.integers(1, 200))
    a = r.integers(0, r.integers(1, 12), n)
    b = np.where(r.random(n) < 0.5, a, r.integers(0, r.integers(1, 12), n))
    got = mutual_information(torch.from_numpy(a), torch.from_numpy(b))
    assert got == pytest.approx(normalized_mutual_info_score(a, b), abs=1e-10)


@pytest.mark.parametrize("k", [1, 5, 40, 200])
def test_clusters_are_about_as_tight_as_scikit_learns(k: int) -> None:
    generator = torch.Generator().manual_seed(k)
    centres = 3 * torch.randn(k, 10, generator=generator)
    x = centres[torch.arange(1000) % k] + torch.randn(1000, 10, generator=generator)
    theirs = KMeans(k, n_init=1, random_state=0).fit(x.numpy()).inertia_
    assert scatter(x, kmeans(x, k)) <= 1.1 * theirs


def test_separate_clusters_are_found_and_a_seed_repeats() -> None:
    y = torch.arange(600) % 100
    x = 10 * torch.eye(100)[y] + 0.1 * torch.randn(600, 100)
    cluster = kmeans(x, 100, seed=3)
    assert mutual_information(y, cluster) == pytest.approx(1.0)
    assert torch.equal(cluster, kmeans(x, 100, seed=3))


def test_each_point_its_own_cluster_and_copies() -> None:
    assert len(kmeans(torch.randn(30, 4), 30).unique()) == 30
    copies = torch.ones(10, 3)
    assert kmeans(copies, 4).shape == (10,)


def test_as_many_clusters_as_classes() -> None:
    y = torch.tensor([5, 5, 5, -2, -2, -2])
    x = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 7.0]] * 3)
    assert clustering_nmi(x, y) == pytest.approx(1.0)
    assert clustering_nmi(x, torch.zeros(6, dtype=torch.long)) == 1.0


@pytest.mark.parametrize("k", [0, 6])
def test_k_out_of_range(k: int) -> None:
    with pytest.raises(ValueError, match="k must be from 1 to the 5 rows"):
        kmeans(torch.randn(5, 2), k)
