"""The sampled classes: those of the batch and a fraction of the others, however divided."""

from __future__ import annotations

import numpy as np
import torch

from proxysynth.distributed import Shards, sampled_classes


def test_sampled_classes_include_labels_for_any_world_size() -> None:
    y = torch.tensor([3, 998, 3, 500])
    whole = sampled_classes(range(1000), y, 0.2, seed=5)
    assert torch.equal(whole, whole.unique())
    assert set(y.tolist()) <= set(whole.tolist())
    for world in (2, 3, 7):
        parts = [sampled_classes(Shards(1000, world, r).mine, y, 0.2, 5) for r in range(world)]
        assert torch.equal(torch.cat(parts), whole)


def test_classes_are_sampled_at_the_given_fraction() -> None:
    steps, none = 4000, torch.tensor([0])
    counts = np.zeros(50)
    together = 0
    for seed in range(steps):
        picked = sampled_classes(range(1, 51), none, 0.3, seed * 7919).numpy() - 1
        counts[picked] += 1
        together += 10 in picked and 11 in picked
    # Five standard deviations of a count of independent draws.
    assert np.abs(counts - 0.3 * steps).max() < 5 * (steps * 0.3 * 0.7) ** 0.5
    assert abs(together - 0.09 * steps) < 5 * (steps * 0.09 * 0.91) ** 0.5
    seeds = {tuple(sampled_classes(range(200), none, 0.5, seed).tolist()) for seed in range(20)}
    assert len(seeds) == 20
