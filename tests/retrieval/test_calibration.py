"""Thresholds against float64 loops over all pairs, and against scikit-learn's ROC curve."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score, roc_curve

from proxysynth.retrieval import calibration
from proxysynth.retrieval.calibration import (
    Calibration,
    calibrate,
    count_pairs,
    unknown_thresholds,
)
from proxysynth.retrieval.knn import as_sets
from retrieval import oracle


def classes(n: int, c: int, seed: int = 0, spread: float = 0.8) -> tuple[np.ndarray, np.ndarray]:
    r = np.random.default_rng(seed)
    y = r.integers(0, c, n)
    return r.normal(size=(c, 6))[y] + spread * r.normal(size=(n, 6)), y


def pairs(x, y, g=None, gy=None) -> tuple[np.ndarray, np.ndarray]:
    """The similarity of every pair, and whether it is of one class."""
    S = oracle.similarities(x, x if g is None else g)
    same = np.asarray(y)[:, None] == (y if gy is None else gy)
    chosen = np.triu(np.ones_like(same), 1) if g is None else np.ones_like(same)
    return S[chosen], same[chosen]


@pytest.mark.parametrize("with_gallery", [False, True])
@pytest.mark.parametrize("block", [2**6, 2**21])
def test_counts_match_a_loop(with_gallery, block, monkeypatch) -> None:
    monkeypatch.setattr(calibration, "BLOCK", block)
    x, y = classes(70, 7)
    g, gy = classes(40, 9, seed=1) if with_gallery else (None, None)
    counts = count_pairs(as_sets(x, y, g, gy))
    s, same = pairs(x, y, g, gy)
    assert counts.same.sum() == same.sum()
    assert counts.different.sum() == (~same).sum()
    for t in (-1.0, -0.25, 0.0, 0.5, 0.71875, 1.0):
        rates = counts.rates(t)
        assert rates["tar"] == pytest.approx((s[same] >= t).mean())
        assert rates["far"] == pytest.approx((s[~same] >= t).mean())
        assert rates["f1"] == pytest.approx(f1_score(same, s >= t, zero_division=0))


def test_threshold_is_the_lowest_within_the_false_accept_rate() -> None:
    x, y = classes(200, 10)
    counts = count_pairs(as_sets(x, y))
    s, same = pairs(x, y)
    for far in (0.3, 0.1, 0.01):
        t = counts.fit(f"far={far}")
        assert (s[~same] >= t).mean() <= far < (s[~same] >= t - 2**-15).mean()


def test_eer_auc_and_f1_match_the_roc_curve() -> None:
    x, y = classes(200, 10)
    counts = count_pairs(as_sets(x, y))
    s, same = pairs(x, y)
    far, tar, thresholds = roc_curve(same, s)
    assert counts.auc == pytest.approx(roc_auc_score(same, s), abs=1e-4)
    at = np.argmin(np.abs(1 - tar - far))
    assert counts.eer == pytest.approx((1 - tar[at] + far[at]) / 2, abs=1e-3)
    best = max(f1_score(same, s >= t) for t in thresholds[1 :: max(1, len(thresholds) // 400)])
    assert counts.rates(counts.fit("f1"))["f1"] >= best - 1e-3


def test_the_best_f1_of_separate_classes_is_in_the_middle() -> None:
    angle = np.deg2rad([0, 10, 90, 100])
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    t = count_pairs(as_sets(x, np.array([0, 0, 1, 1]))).fit("f1")
    assert t == pytest.approx((np.cos(np.deg2rad(10)) + np.cos(np.deg2rad(80))) / 2, abs=1e-3)


def test_rates_below_one_pair_are_not_fitted() -> None:
    x, y = classes(20, 4)
    assert count_pairs(as_sets(x, y)).fit("far=0.0001") is None
    assert "far=0.001" not in calibrate(x, y).thresholds


def test_copies_of_an_image_are_accepted() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0]]).repeat(3, 1)
    counts = count_pairs(as_sets(torch.cat([x, -x]), torch.tensor([0, 0, 0, 1, 1, 1])))
    assert counts.rates(0.9999)["tar"] == 1.0
    assert counts.rates(0.9999)["far"] == 0.0


def test_thresholds_are_fitted_on_held_out_classes() -> None:
    (x, y), (h, hy) = classes(120, 8), classes(120, 8, seed=1, spread=0.3)
    made = calibrate(x, y, held_out=(h, hy))
    assert made.fitted_on == "held_out"
    for target, t in made.thresholds.items():
        assert t == count_pairs(as_sets(h, hy)).fit(target)
        assert made.rates[target] == count_pairs(as_sets(x, y)).rates(t)


def test_without_held_out_classes_each_half_checks_the_other() -> None:
    x, y = classes(120, 8)
    made = calibrate(x, y)
    assert made.fitted_on == "test"
    assert made.threshold("f1") == count_pairs(as_sets(x, y)).fit("f1")
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0)).numpy()
    halves = [
        count_pairs(as_sets(x[np.isin(y, part)], y[np.isin(y, part)]))
        for part in (order[::2], order[1::2])
    ]
    rates = [b.rates(a.fit("f1"))["tar"] for a, b in (halves, halves[::-1])]
    assert made.rates["f1"]["tar"] == pytest.approx(np.mean(rates))


def test_two_classes_are_too_few_to_check_and_one_to_fit() -> None:
    x, y = classes(30, 2)
    assert calibrate(x, y).fitted_on == "unchecked"
    assert calibrate(x, np.zeros(30, dtype=int)) is None


def test_target_is_described_with_its_rate_elsewhere() -> None:
    rates = {target: {"far": 0.0476} for target in ("far=0.01", "f1")}
    fitted = {"thresholds": {"far=0.01": 0.5, "f1": 0.4}, "rates": rates, "eer": 0.1, "auc": 0.9}
    made = Calibration(**fitted, fitted_on="test", curve=[], same=1, different=1)
    assert made.about() == "fitted to 1% false accepts; 4.8% estimated on new classes"
    assert made.about("f1") == "fitted to f1; 4.8% false accepts estimated on new classes"
    assert "on the test classes" in replace(made, fitted_on="held_out").about()
    assert replace(made, fitted_on="unchecked").about() == "fitted to 1% false accepts"


def test_json_round_trip() -> None:
    made = calibrate(*classes(60, 6))
    assert Calibration.from_json(json.loads(json.dumps(asdict(made)))) == made


@pytest.mark.parametrize("change", [{"eer": "x"}, {"auc": float("nan")}, {"fitted_on": "?"},
                                    {"rates": {}}, {"thresholds": 3}, {"more": 1}])  # fmt: skip
def test_invalid_json_is_rejected(change) -> None:
    with pytest.raises(ValueError, match="calibration"):
        Calibration.from_json({**asdict(calibrate(*classes(60, 6))), **change})


@pytest.mark.parametrize("target", ["far=0", "far=2", "far=x", "tar=0.5", "", 3])
def test_invalid_target_is_rejected(target) -> None:
    with pytest.raises(ValueError, match="target"):
        count_pairs(as_sets(*classes(30, 3))).fit(target)


def test_missing_target_lists_the_fitted_ones() -> None:
    with pytest.raises(ValueError, match="far=0.01"):
        calibrate(*classes(60, 6)).threshold("far=0.5")


def test_unknown_threshold_accepts_the_requested_share() -> None:
    s = np.random.default_rng(0).normal(size=1000)
    for name, t in unknown_thresholds(s, (0.1, 0.01)).items():
        assert (s >= t).mean() == pytest.approx(float(name[4:]), abs=1e-3)
    assert unknown_thresholds(s[:5], (0.1,)) == {}
