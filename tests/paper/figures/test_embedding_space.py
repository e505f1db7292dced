"""What the pictures of the embedding space show, and that four epochs are of one training."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from proxysynth.data import Listing
from proxysynth.paper.figures.embedding_space import (
    PANELS,
    Points,
    Selection,
    nearness,
    points_of,
    project,
    runs_of,
    runs_over_time,
    select,
)
from proxysynth.paper.scale import SCALES
from proxysynth.training.inference import load
from proxysynth.training.loop import train

SMOKE = SCALES["smoke"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(runs_of(SMOKE, "cars196")[0], folder)
    return load(folder)


def test_points_match_their_kinds(model) -> None:
    selection = Selection(classes=3, pictures=5, mu=2.0, lam=0.25)
    points = points_of(model, selection)
    norms = torch.cat([*points.x.values()]).norm(dim=1)
    assert torch.allclose(norms, torch.ones(len(norms)), atol=1e-5)
    many = {kind: len(x) for kind, x in points.x.items()}
    assert many["train"] == many["test"] == 15
    assert many["proxy"] == 3
    assert many["synthetic"] == 30
    assert many["synthetic proxy"] <= 6  # ordered pairs of three classes, each once
    # Every synthetic is a mix of two seen ones of different classes, by trying all of them.
    x, label = points.x["train"].double(), points.label["train"]
    for one in points.x["synthetic"].double():
        mixes = 0.25 * x[:, None] + 0.75 * x[None]
        mixes = mixes / mixes.norm(dim=-1, keepdim=True)
        i, j = divmod(int((mixes @ one).argmax()), len(x))
        assert float(mixes[i, j] @ one) > 1 - 1e-6
        assert label[i] != label[j]


def test_select_uses_large_classes_or_notes_too_few() -> None:
    names, labels = tuple(str(i) for i in range(30)), np.repeat(np.arange(6), 5)
    listing = Listing(names, labels, tuple("abcdef"), pixels=np.zeros((30, 2, 2), np.uint8))
    some, note = select(listing, Selection(classes=4, pictures=3))
    assert (len(some.classes), len(some), note) == (4, 12, "")
    assert some.counts().tolist() == [3] * 4
    few, note = select(listing, Selection(classes=4, above=10))
    assert len(few.classes) == 4
    assert "0 of 6 classes have more than 10 images" in note
    mixed = listing.take([i for i in range(len(listing)) if listing.labels[i] < 2 or i % 5 < 2])
    large, note = select(mixed, Selection(classes=4, above=4))
    assert len(large.classes) == 2
    assert "2 of 6 classes have more than 4 images" in note


def test_project_keeps_clusters_apart() -> None:
    """Three tight clusters: every point's nearest other is of its own cluster."""
    generator = torch.Generator().manual_seed(0)
    middles = torch.eye(6)[:3]
    label = torch.arange(3).repeat_interleave(12)
    x = middles[label] + 0.02 * torch.randn(36, 6, generator=generator)
    x = x / x.norm(dim=1, keepdim=True)
    kinds = ("train", "proxy", "test", "synthetic")
    parts = {kind: x[i::4] for i, kind in enumerate(kinds)}
    labels = {kind: label[i::4].numpy() for i, kind in enumerate(kinds)}
    rows = project(Points(parts, labels, middles))
    assert [row["kind"] for row in rows] == np.repeat(kinds, 9).tolist()  # each once
    assert {k for kinds in PANELS.values() for k in kinds} >= set(kinds)
    at, of = np.array([(r["x"], r["y"]) for r in rows]), np.array([r["label"] for r in rows])
    assert np.abs(at).max() <= 1 + 1e-6
    far = np.linalg.norm(at[:, None] - at[None], axis=-1) + 10 * np.eye(len(at))
    assert (of[far.argmin(axis=1)] == of).all()


def test_nearness_matches_hand_computed_values() -> None:
    parts = {"test": [[0.6, 0.8], [0.8, 0.6]], "train": [[1.0, 0.0]], "synthetic": [[0.8, 0.6]]}
    x = {kind: torch.tensor(vectors) for kind, vectors in parts.items()}
    got = nearness(Points(x, {}, torch.eye(2)))
    expected = {"seen": (1.0, 0.0), "unseen": (0.8, 0.6), "synthetic": (0.8, 0.6)}
    for part, (first, second) in expected.items():
        assert got[f"{part} nearest"] == pytest.approx(first)
        assert got[f"{part} second"] == pytest.approx(second)
    assert got["unseen at synthetic"] == 1.0


@pytest.mark.parametrize("name", ["smoke", "small"])
def test_runs_over_time_are_a_few_steps_and_three_lengths(name: str) -> None:
    first, *runs = (seeds[0] for seeds in runs_over_time(SCALES[name]).values())
    epochs = [run.epochs for run in runs]
    assert len(set(epochs)) == 3
    assert epochs == sorted(epochs)
    assert name == "smoke" or epochs[-1] == runs_of(SCALES[name], "cars196")[0].epochs
    assert {run.schedule for run in (first, *runs)} == {"constant"}
    assert len({replace(run, epochs=1, evaluate_every=1) for run in runs}) == 1
    assert first == replace(
        runs[0],
        epochs=1,
        evaluate_every=1,
        split=replace(runs[0].split, train_pictures=4 * first.split.train_classes),
    )


def test_shorter_run_matches_the_start_of_a_longer_run(tmp_path) -> None:
    _, (short, *_), (longer, *_), _ = runs_over_time(SMOKE).values()
    train(short, tmp_path / "short")
    train(replace(longer, evaluate_every=1), tmp_path / "longer")
    (only,) = _lines(tmp_path / "short")
    assert only == _lines(tmp_path / "longer")[0]


def _lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
