"""Thresholds of a run, and the classes that it predicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from proxysynth.losses import LOSSES
from proxysynth.retrieval.calibration import count_pairs
from proxysynth.retrieval.knn import as_sets
from proxysynth.search.build import build_index
from proxysynth.tensor_files import read_tensors
from proxysynth.training import load, train
from proxysynth.training.inference import nearest_class, nearest_proxy
from proxysynth.training.prepare import open_splits
from proxysynth.training.run_folder import EMBEDDINGS, read_result


def test_thresholds_are_fitted_on_test_pairs(finished):
    made = load(finished).calibration
    kept, _ = read_tensors(finished / EMBEDDINGS)
    pairs = count_pairs(as_sets(kept["query"], kept["query_labels"]))
    assert made.fitted_on == "test"
    assert made.threshold("f1") == pairs.fit("f1")
    assert made.eer == pairs.eer
    assert read_result(finished).to_json()["calibration"]["auc"] == pairs.auc


def test_thresholds_are_fitted_on_held_out_classes(glyph_run, tmp_path):
    run = replace(glyph_run, report_epoch="best", epochs=1)
    train(run, tmp_path / "run")
    assert load(tmp_path / "run").calibration.fitted_on == "held_out"


def test_prediction_is_the_nearest_proxy(finished, glyph_run):
    model, train_set = load(finished), open_splits(glyph_run).train
    pixels = list(train_set.pixels)
    made = model.predict(pixels, threshold=-1)
    x, p = model.embed(pixels).double(), model.proxies.double()
    cosines = torch.nn.functional.normalize(x) @ torch.nn.functional.normalize(p).T
    best = cosines.max(1)
    assert [one.label for one in made] == [model.classes[i] for i in best.indices]
    np.testing.assert_allclose([one.similarity for one in made], best.values, atol=1e-6)


def test_prediction_below_threshold_is_unknown(finished, glyph_run):
    model, query = load(finished), open_splits(glyph_run).query
    made = model.predict(list(query.pixels))
    least = model.calibration.unknown_below()
    assert [one.label is None for one in made] == [one.similarity < least for one in made]
    accepted = np.mean([one.label is not None for one in made])
    assert 0 < accepted <= 0.05
    assert all(one.nearest in model.classes for one in made)
    assert model.predict(list(query.pixels)[:3], threshold=1.0)[0].label is None
    with pytest.raises(ValueError, match="threshold"):
        model.predict(list(query.pixels)[:3], threshold=2.0)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_nearest_proxy_matches_nearest_class(name):
    loss, generator = LOSSES[name](), torch.Generator().manual_seed(0)
    shape = (5, loss.k, 8) if name == "soft_triple" else (5, 8)
    p, x = torch.randn(shape, generator=generator), torch.randn(20, 8, generator=generator)
    label, similarity = nearest_proxy(loss, p, x)
    assert torch.equal(label, nearest_class(loss, p)(x))
    for i in range(20):
        cosines = torch.cosine_similarity(x[i], p[label[i]].view(-1, 8), dim=1)
        assert similarity[i] == pytest.approx(float(cosines.max()), abs=1e-6)


def test_prediction_from_nearest_images_in_index(photo_run, photos, tmp_path):
    train(replace(photo_run, epochs=1), tmp_path / "run")
    model = load(tmp_path / "run")
    index = build_index(model, photos, tmp_path / "shop.index")
    some = [index.path(i) for i in range(0, len(index), 4)]
    one = model.predict(some, index=index, threshold=-1)
    assert [each.label for each in one] == [index.labels[i] for i in range(0, len(index), 4)]
    assert [each.similarity for each in one] == pytest.approx([1.0] * len(some))
    for each, path in zip(model.predict(some, index=index, k=5, threshold=-1), some, strict=True):
        hits = index.search_vectors(model.embed(path), 5)[0]
        votes = {hit.label: 0.0 for hit in hits}
        for hit in hits:
            votes[hit.label] += hit.similarity
        assert votes[each.label] == max(votes.values())
    # Only what is similar enough votes: here the image itself, and never less similar ones.
    sure = model.predict(some, index=index, k=5, threshold=0.99)
    assert all(each.label is not None and each.similarity >= 0.99 for each in sure)
    with pytest.raises(ValueError, match="made by"):
        replace(model, epoch=7).predict(some, index=index)
