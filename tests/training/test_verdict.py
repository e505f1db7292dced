from proxysynth.training import Result

BEFORE = {"recall@1": 0.5, "map@r": 0.2}
BETTER, LOWER = {"recall@1": 0.6, "map@r": 0.3}, {"recall@1": 0.4, "map@r": 0.1}
MIXED = {"recall@1": 0.6, "map@r": 0.1}


def result(metrics, **fields):
    return Result("abc", metrics, BEFORE, 1, 1, "last", "the last epoch", **fields)


def test_what_training_raised():
    assert result(BETTER).verdict == (
        "On unseen classes, training raised Recall@1 from 50.0 to 60.0 and MAP@R from 20.0 to 30.0."
    )


def test_what_training_lowered_is_said_plainly():
    assert result(MIXED).verdict.startswith(
        "Training had mixed results on unseen classes: it lowered MAP@R from 20.0 to 10.0, "
        "and raised Recall@1 from 50.0 to 60.0."
    )
    assert result(MIXED).worse == ("map@r",)
    seen = {"shared_classes": 3, "query": {"classes": 3}}
    lower = result(LOWER, data=seen)
    assert "results on seen classes worse: it lowered Recall@1 from 50.0" in lower.verdict
    assert lower.worse == ("recall@1", "map@r")


def test_what_to_do_when_training_did_not_help():
    verdict = result(LOWER, backbone="efficientnet_lite0").verdict
    assert "proxysynth index efficientnet_lite0 FOLDER" in verdict
    assert "interpolate=auto" in verdict
    assert "proxysynth index" not in result(LOWER).verdict
    assert "proxysynth index" not in result(BETTER).verdict


def test_a_small_change_is_none():
    small = result({"recall@1": 0.496, "map@r": 0.204}, backbone="efficientnet_lite0")
    assert "changed no metric on unseen classes by more than 0.5 points" in small.verdict
    assert "proxysynth index efficientnet_lite0 FOLDER" in small.verdict
    assert small.worse == ()
    assert result({"recall@1": 0.494, "map@r": 0.206}).worse == ("recall@1",)
