"""Names, numbers and durations as people read them."""

import math

import pytest

from proxysynth.formatting import (
    and_join,
    change,
    count,
    distinct_captions,
    duration,
    metric_keys,
    metric_name,
    or_join,
    percent,
    points,
)


def test_metrics_are_in_conventional_order():
    keys = ["map@r", "recall@10", "queries", "recall@2", "r_precision", "recall@1", "precision@1"]
    assert metric_keys(dict.fromkeys(keys, 0.5)) == [
        "recall@1", "recall@2", "recall@10", "r_precision", "map@r",
    ]  # fmt: skip
    assert metric_keys({"precision@1": 0.5, "nmi": 0.4, "map@r": 0.1}) == [
        "precision@1", "map@r", "nmi",
    ]  # fmt: skip
    assert [metric_name(key) for key in ("recall@1", "r_precision", "map@r", "nmi")] == [
        "Recall@1", "R-precision", "MAP@R", "NMI",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"), [(0.9583, "95.8"), (1, "100.0"), (None, "–"), (math.nan, "–")]
)
def test_percent(value, shown):
    assert percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.012, "+1.2"), (-0.012, "−1.2"), (0.0, "0.0"), (-0.0001, "0.0"), (None, "–")],
)
def test_points_are_signed_unless_zero(value, shown):
    assert points(value) == shown


def test_change_matches_the_rounded_numbers():
    before, after = 0.602249, 0.635451  # 60.22 and 63.55; their difference is 3.32
    assert points(after - before, 2) == "+3.32"
    assert points(change(before, after), 2) == "+3.33"


def test_text_formatting():
    assert count(1, "class", "classes") == "1 class"
    assert count(1600, "picture") == "1,600 pictures"
    assert and_join(["a"]) == "a"
    assert and_join(["a", "b", "c"]) == "a, b and c"
    assert or_join(["a", "b", "c"]) == "a, b or c"
    assert (duration(4.04), duration(75), duration(3700)) == ("4.0 s", "1 min 15 s", "1 h 1 min")
    rough = [duration(s, rough=True) for s in (3, 75, 3600, 5000, 10**6)]
    assert rough == ["3 s", "1 min", "1 h 0 min", "1 h 23 min", "12 days"]


def test_shortened_captions_stay_distinct():
    labels = [
        "short", "a" * 40 + "1", "a" * 40 + "2", "1" + "b" * 40, "2" + "b" * 40,
        "c" * 20 + "x" + "c" * 20, "c" * 20 + "y" + "c" * 20, "d" * 50,
    ]  # fmt: skip
    captions = distinct_captions(labels, width=12)
    assert set(captions) == set(labels)
    assert len(set(captions.values())) == len(labels)
    assert captions["short"] == "short"
    assert captions["d" * 50] == "d" * 11 + "…"
    assert captions[labels[1]] == "…" + "a" * 10 + "1"
    assert captions[labels[3]] == "1" + "b" * 10 + "…"
    assert captions[labels[5]] == labels[5]  # nothing shorter tells these two apart
