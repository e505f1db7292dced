"""P@1, R-precision and MAP@R by worked examples with R = 10, and the joined embeddings."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import proxysynth as ps
from proxysynth.protocols.mlrc.study import concatenate

R = 10


@pytest.mark.parametrize(
    ("correct", "r_precision", "map_at_r"),
    [
        ([1], 0.10, 0.10),
        ([1, 10], 0.20, 0.12),
        ([1, 2], 0.20, 0.20),
        (list(range(1, 11)), 1.0, 1.0),
    ],
)
def test_metrics_match_worked_examples(correct, r_precision, map_at_r):
    ranks = range(1, 3 * R + 1)
    angles = torch.tensor([0.01 * rank for rank in ranks], dtype=torch.float64)
    gallery = torch.stack((angles.cos(), angles.sin()), dim=1)
    rest = iter(range(R - len(correct)))  # the other positives come after the tenth
    labels = [0 if r in correct or (r > R and next(rest, None) is not None) else 1 for r in ranks]
    assert labels.count(0) == R
    found = ps.evaluate(
        torch.tensor([[1.0, 0.0]], dtype=torch.float64),
        torch.tensor([0]),
        gallery=gallery,
        gallery_labels=torch.tensor(labels),
        ks=(1,),
    )
    assert found["precision@1"] == 1.0
    assert found["r_precision"] == pytest.approx(r_precision, abs=1e-12)
    assert found["map@r"] == pytest.approx(map_at_r, abs=1e-12)


def test_concatenated_embeddings_are_normalized_before_and_after():
    draw = np.random.default_rng(0)
    models = [draw.normal(size=(7, d)) * scale for d, scale in ((3, 1.0), (5, 100.0), (3, 0.01))]
    joined = concatenate([torch.from_numpy(x) for x in models]).numpy()
    assert joined.shape == (7, 11)
    for row in range(7):
        slow: list[float] = []
        for x in models:
            length = math.sqrt(sum(v * v for v in x[row]))
            slow += [v / length for v in x[row]]
        length = math.sqrt(sum(v * v for v in slow))
        assert joined[row] == pytest.approx([v / length for v in slow], abs=1e-12)
    # The mean of the models' cosines: no model outweighs another by its lengths.
    cosines = [(x @ x.T) / np.outer(*[np.linalg.norm(x, axis=1)] * 2) for x in models]
    assert joined @ joined.T == pytest.approx(np.mean(cosines, axis=0), abs=1e-12)
