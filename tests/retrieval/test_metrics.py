"""`evaluate`: its worked examples, an independent library, its edges and its errors."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

from proxysynth.retrieval import evaluate, rank, summarize
from retrieval.oracle import ranked


def fan(places: list[int], n: int = 40) -> dict[str, float]:
    """One query, n of the gallery ranked by angle, positives at these places, counted from 1."""
    angle = np.linspace(0.01, 1.5, n)
    labels = np.zeros(n, int)
    labels[np.array(places) - 1] = 1
    shuffled = np.random.default_rng(0).permutation(n)
    gallery = np.stack([np.cos(angle), np.sin(angle)], 1)[shuffled]
    query = np.array([[1.0, 0.0]])
    return evaluate(query, np.array([1]), gallery=gallery, gallery_labels=labels[shuffled])


@pytest.mark.parametrize(
    ("right", "r_precision", "map_at_r"),
    [([1], 0.10, 0.10), ([1, 10], 0.20, 0.12), ([1, 2], 0.20, 0.20), (range(1, 11), 1.0, 1.0)],
)
def test_worked_examples_with_ten_positives(right, r_precision: float, map_at_r: float) -> None:
    right = list(right)
    measures = fan(right + list(range(20, 30 - len(right))))
    assert measures["r_precision"] == pytest.approx(r_precision, abs=1e-12)
    assert measures["map@r"] == pytest.approx(map_at_r, abs=1e-12)
    assert measures["recall@1"] == measures["precision@1"] == 1.0


def test_recall_depends_on_the_first_positive_only() -> None:
    measures = fan([5, 6, 30])
    assert [measures[f"recall@{k}"] for k in (1, 2, 4, 8)] == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("own", [True, False])
def test_metrics_match_the_oracle(own: bool) -> None:
    r = np.random.default_rng(0)
    y = r.integers(0, 60, 200)
    x = r.normal(size=(60, 8))[y] + r.normal(size=(200, 8))
    if own:
        measures, rows = evaluate(x, y, ks=(1, 3, 500)), ranked(x, y)
    else:
        measures = evaluate(x[:50], y[:50], gallery=x[50:], gallery_labels=y[50:], ks=(1, 3, 500))
        rows = ranked(x[:50], y[:50], x[50:], y[50:])
    some = rows[rows[:, 0] > 0]
    assert 0 < len(some) < len(rows)
    assert measures == pytest.approx(
        {
            "recall@1": np.mean(some[:, 1] < 1),
            "recall@3": np.mean(some[:, 1] < 3),
            "recall@500": 1.0,
            "precision@1": np.mean(some[:, 1] < 1),
            "r_precision": np.mean(some[:, 2]),
            "map@r": np.mean(some[:, 3]),
            "queries": len(some),
            "queries_without_positive": len(rows) - len(some),
        },
        abs=1e-12,
    )


@pytest.mark.parametrize("own", [True, False])
def test_equal_to_pytorch_metric_learning(own: bool) -> None:
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(0, 90, (700,), generator=generator)
    x = torch.randn(90, 32, generator=generator)[y] + torch.randn(700, 32, generator=generator)
    x = torch.nn.functional.normalize(x, dim=1)
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    peer = AccuracyCalculator(include=include, k="max_bin_count", device=torch.device("cpu"))
    if own:
        theirs, ours = peer.get_accuracy(x, y), evaluate(x, y)
    else:
        theirs = peer.get_accuracy(x[:200], y[:200], x[200:], y[200:])
        ours = evaluate(x[:200], y[:200], gallery=x[200:], gallery_labels=y[200:])
    assert [ours[key] for key in ("precision@1", "r_precision", "map@r")] == pytest.approx(
        [theirs[key] for key in include], abs=1e-6
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precisions(dtype: torch.dtype) -> None:
    y = torch.arange(120) % 12
    x = (torch.randn(12, 16)[y] + torch.randn(120, 16)).to(dtype)
    wide = x.double() if dtype == torch.float64 else x.float()
    assert evaluate(x, y) == evaluate(wide, y)
    assert evaluate(x, y)["map@r"] == pytest.approx(ranked(wide.numpy(), y.numpy())[:, 3].mean())


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.int32, np.uint32, np.uint64])
def test_labels_of_any_integer_type(kind) -> None:
    r = np.random.default_rng(2)
    x, y = r.normal(size=(60, 5)), r.integers(0, 9, 60)
    assert evaluate(x, y.astype(kind)) == evaluate(x, y)


def test_labels_of_any_value() -> None:
    r = np.random.default_rng(2)
    x, y = r.normal(size=(60, 5)), r.integers(0, 3, 60)
    far = np.array([-(2**62), 7, 2**62])
    assert evaluate(x, far[y]) == evaluate(x, y)
    assert evaluate(x, torch.from_numpy(far[y]).to(torch.int64)) == evaluate(x, y)
    top = np.array([0, 2**63, 2**64 - 1], dtype=np.uint64)
    assert evaluate(x, top[y]) == evaluate(x, y)


def test_arrays_of_any_layout() -> None:
    r = np.random.default_rng(2)
    x, y = r.normal(size=(60, 6)).astype(np.float32), r.integers(0, 9, 60)
    expected = evaluate(x, y)
    frozen = x.copy()
    frozen.setflags(write=False)
    views = [np.asfortranarray(x), x[::-1][::-1], x.astype(">f4"), frozen, torch.from_numpy(x)]
    for view in [*views, torch.from_numpy(np.ascontiguousarray(x.T)).T]:
        assert evaluate(view, y) == expected
    assert evaluate(x, list(y)) == expected


def test_mixed_precisions_use_the_wider() -> None:
    r = np.random.default_rng(2)
    x, y = r.normal(size=(60, 6)), r.integers(0, 9, 60)
    low = x[:20].astype(np.float16)
    apart = {"gallery": x[20:], "gallery_labels": y[20:]}
    assert evaluate(low, y[:20], **apart) == evaluate(low.astype(float), y[:20], **apart)


def test_very_long_very_short_and_zero_rows() -> None:
    y = np.arange(40) % 5
    x = np.random.default_rng(4).normal(size=(40, 6)).astype(np.float32)
    expected = evaluate(x, y)
    lengths = np.tile(np.array([1e-30, 1e30, 1.0, 1e-12], dtype=np.float32), 10)[:, None]
    assert evaluate(x * lengths, y) == expected
    # A row of zeros has the similarity 0 to all: the first of the gallery is its nearest.
    gallery, labels = np.eye(3), np.array([4, 5, 6])
    for label, hit in ((4, 1.0), (5, 0.0)):
        zero = evaluate(np.zeros((1, 3)), np.array([label]), gallery=gallery, gallery_labels=labels)
        assert zero["recall@1"] == hit


def test_a_gallery_equal_to_the_queries_includes_them() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 4)), np.arange(20)
    assert evaluate(x, y, gallery=x, gallery_labels=y)["recall@1"] == 1.0


def test_nmi_on_request() -> None:
    y = torch.arange(90) % 3
    x = torch.eye(3)[y] + 0.05 * torch.randn(90, 3)
    assert "nmi" not in evaluate(x, y)
    assert evaluate(x, y, nmi=True)["nmi"] == pytest.approx(1.0)


def test_summarize_reads_a_ranking() -> None:
    x, y = torch.randn(50, 4), torch.arange(50) % 10
    assert summarize(rank(x, y), (1, 5)) == evaluate(x, y, ks=(1, 5))
    assert set(evaluate(x, y, ks=())) & {"recall@1"} == set()


def test_negative_indices_exclude_nothing() -> None:
    x, y = torch.randn(12, 4), torch.arange(12) % 3
    gallery = {"gallery": x, "gallery_labels": y}
    none = summarize(rank(x, y, **gallery, exclude=[[]] * 12))
    assert summarize(rank(x, y, **gallery, exclude=[[-1]] * 12)) == none


X, Y = np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1])
BROKEN = X.copy()
BROKEN[2, 1] = math.nan


@pytest.mark.parametrize(
    ("x", "y", "more", "message"),
    [
        (X[0], Y, {}, r"embeddings must be \(n, d\) .* got \(4,\)"),
        (X[:0], Y[:0], {}, r"at least one row .* got \(0, 4\)"),
        (X[:, :0], Y, {}, r"at least one row and one column, got \(4, 0\)"),
        (X.astype(int), Y, {}, r"embeddings must be floating point, got torch.int64"),
        (X.astype(complex), Y, {}, "embeddings must be a tensor or an array of floats"),
        (X.tolist(), Y, {}, "embeddings must be a tensor or an array .* got list"),
        (BROKEN, Y, {}, "embeddings must be finite, but row 2 "),
        (X - np.inf, Y, {}, "embeddings must be finite, but row 0"),
        (X, Y[:3], {}, r"labels must be \(4,\), one for each row of embeddings, got \(3,\)"),
        (X, Y[:, None], {}, r"labels must be \(4,\)"),
        (X, Y.astype(float), {}, "labels must be integers, got float64"),
        (X, torch.from_numpy(Y).float(), {}, "labels must be integers, got torch.float32"),
        (X, np.array(["a", "a", "b", "b"]), {}, "labels must be integers, got strings"),
        (X, Y > 0, {}, "labels must be integers, got bool"),
        (X, Y, {"ks": 5}, "ks must be a sequence"),
        (X, Y, {"ks": (1, 0)}, "ks must be integers >= 1, got 0"),
        (X, Y, {"ks": (1.5,)}, "ks must be integers >= 1, got 1.5"),
        (X, Y, {"gallery": X}, "gallery_labels"),
        (X, Y, {"gallery_labels": Y}, "gallery"),
        (X, Y, {"gallery": X[:, :2], "gallery_labels": Y}, "gallery must have the 4 dimensions"),
        (X, Y, {"gallery": X, "gallery_labels": Y[:2]}, r"gallery_labels must be \(4,\)"),
        (X, Y, {"gallery": BROKEN, "gallery_labels": Y}, "gallery must be finite, but row 2"),
        (X, Y, {"gallery": X, "gallery_labels": Y, "nmi": True}, "nmi"),
        (X, Y, {"gallery": X, "gallery_labels": Y + 9}, "no query has a positive"),
        (X, np.arange(4), {}, r"no query has a positive in the gallery \(queries: 4\)"),
        (X[:1], Y[:1], {}, "no query has a positive"),
    ],
)
def test_errors(x, y, more: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        evaluate(x, y, **more)
    assert "\n" not in str(caught.value)


def test_numpy_integers_are_accepted_without_warnings() -> None:
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 5
    x.setflags(write=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert evaluate(x, y, ks=np.array([1, 2])) == evaluate(x, y, ks=(1, 2))


@pytest.mark.parametrize("labels", [[3, 3, 3], [1, 1, 2]])
def test_single_label_emits_a_warning(labels: list[int]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        evaluate(torch.eye(3), labels)
    assert len(caught) == (len(set(labels)) == 1)
