"""Names and figures as people read them."""

import math

import pytest

from proxysynth.report.numbers import count, duration, listed, measures, name, percent, points


def test_measures_stand_in_the_usual_order():
    keys = ["map@r", "recall@10", "queries", "recall@2", "r_precision", "recall@1", "precision@1"]
    assert measures(dict.fromkeys(keys, 0.5)) == [
        "recall@1", "recall@2", "recall@10", "r_precision", "map@r",
    ]  # fmt: skip
    assert measures({"precision@1": 0.5, "nmi": 0.4, "map@r": 0.1}) == [
        "precision@1", "map@r", "nmi",
    ]  # fmt: skip
    assert [name(key) for key in ("recall@1", "r_precision", "map@r", "nmi")] == [
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
def test_points_have_a_sign_unless_they_are_nothing(value, shown):
    assert points(value) == shown


def test_words():
    assert count(1, "class", "classes") == "1 class"
    assert count(1600, "picture") == "1,600 pictures"
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert (duration(4.04), duration(75), duration(3700)) == ("4.0 s", "1 min 15 s", "1 h 1 min")
