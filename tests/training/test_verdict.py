"""Trained against untrained, in one sentence."""

from dataclasses import replace

import pytest

from proxysynth.training import Result

BEFORE = {"recall@1": 0.5, "map@r": 0.2}
BETTER, LOWER = {"recall@1": 0.6, "map@r": 0.3}, {"recall@1": 0.4, "map@r": 0.1}
MIXED = {"recall@1": 0.6, "map@r": 0.1}


def result(metrics, **fields):
    return Result("abc", metrics, BEFORE, 1, 1, "last", "the last epoch", **fields)


def test_verdict_reports_raised_metrics():
    assert result(BETTER).worse == ()
    assert "raised Recall@1 from 50.0 to 60.0 and MAP@R from 20.0 to 30.0" in result(BETTER).verdict


def test_verdict_reports_lowered_metrics():
    mixed, lower = result(MIXED), result(LOWER)
    assert mixed.worse == ("map@r",)
    assert "lowered MAP@R from 20.0 to 10.0" in mixed.verdict
    assert "raised Recall@1 from 50.0 to 60.0" in mixed.verdict
    assert lower.worse == ("recall@1", "map@r")
    assert "lowered Recall@1 from 50.0 to 40.0 and MAP@R from 20.0 to 10.0" in lower.verdict


@pytest.mark.parametrize(
    ("shared", "tested"),
    [(0, "unseen classes"), (3, "seen and unseen classes"), (5, "seen classes")],
)
def test_verdict_names_tested_classes(shared, tested):
    data = {"shared_classes": shared, "query": {"classes": 5}}
    for metrics in (BETTER, LOWER):
        made = result(metrics, data=data)
        assert made.tested == tested
        assert f" {tested}" in made.verdict


def test_few_images_are_named():
    def data(images):
        return {"query": {"classes": 5, "pictures": images}}

    assert "40 images, so one image counts for 2.5 points" in result(BETTER, data=data(40)).verdict
    assert "images" not in result(BETTER, data=data(400)).verdict


def test_no_falling_metric_is_hidden():
    made = replace(result({**BETTER, "recall@8": 0.8}), untrained={**BEFORE, "recall@8": 0.9})
    assert made.worse == ("recall@8",)
    assert "lowered Recall@8 from 90.0 to 80.0" in made.verdict


def test_one_image_is_no_change():
    data = {"query": {"classes": 5, "pictures": 100}}
    before = {**BEFORE, "recall@2": 0.97}
    made = replace(result({**BETTER, "recall@2": 0.96}, data=data), untrained=before)
    assert made.worse == ()
    assert "lowered" not in made.verdict
    assert replace(made, metrics={**BETTER, "recall@2": 0.95}).worse == ("recall@2",)


def test_verdict_suggests_alternatives_when_metrics_drop():
    made = result(LOWER, backbone="efficientnet_lite0")
    assert made.better_backbone == "efficientnet_lite0"
    assert "efficientnet_lite0" in made.verdict
    assert "interpolate=auto" in made.verdict
    assert "efficientnet_lite0" not in result(LOWER).verdict


@pytest.mark.parametrize("metrics", [BETTER, {"recall@1": 0.6, "map@r": 0.1}])
def test_raised_metrics_recommend_the_trained_network(metrics):
    assert result(metrics, backbone="efficientnet_lite0").better_backbone == ""


def test_small_change_counts_as_no_change():
    small = result({"recall@1": 0.496, "map@r": 0.204}, backbone="efficientnet_lite0")
    assert "no metric" in small.verdict
    assert "efficientnet_lite0 alone" in small.verdict
    assert small.better_backbone == ""
    assert small.worse == ()
    assert result({"recall@1": 0.494, "map@r": 0.206}).worse == ("recall@1",)
