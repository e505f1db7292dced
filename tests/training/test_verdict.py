from proxysynth.training.run_folder import made_worse, training_changed

BEFORE = {"recall@1": 0.5, "map@r": 0.2}


def test_what_training_raised():
    assert training_changed({"recall@1": 0.6, "map@r": 0.3}, BEFORE) == (
        "On unseen classes, training raised Recall@1 from 50.0 to 60.0 and MAP@R from 20.0 to 30.0."
    )


def test_what_training_lowered_is_said_plainly():
    mixed = {"recall@1": 0.6, "map@r": 0.1}
    assert training_changed(mixed, BEFORE).startswith(
        "Training had mixed results on unseen classes: it lowered MAP@R from 20.0 to 10.0, "
        "and raised Recall@1 from 50.0 to 60.0."
    )
    assert made_worse(mixed, BEFORE) == ("map@r",)
    lower = {"recall@1": 0.4, "map@r": 0.1}
    told = training_changed(lower, BEFORE, "seen classes")
    assert "results on seen classes worse: it lowered Recall@1 from 50.0" in told
    assert made_worse(lower, BEFORE) == ("recall@1", "map@r")


def test_what_to_do_when_training_did_not_help():
    lower = {"recall@1": 0.4, "map@r": 0.1}
    told = training_changed(lower, BEFORE, backbone="efficientnet_lite0")
    assert "proxysynth index efficientnet_lite0 FOLDER" in told
    assert "interpolate=auto" in told
    assert "proxysynth index" not in training_changed(lower, BEFORE)
    assert "proxysynth index" not in training_changed({"recall@1": 0.6, "map@r": 0.3}, BEFORE)


def test_a_small_change_is_none():
    small = {"recall@1": 0.496, "map@r": 0.204}
    told = training_changed(small, BEFORE, backbone="efficientnet_lite0")
    assert "changed no metric on unseen classes by more than 0.5 points" in told
    assert "proxysynth index efficientnet_lite0 FOLDER" in told
    assert made_worse(small, BEFORE) == ()
    assert made_worse({"recall@1": 0.494, "map@r": 0.206}, BEFORE) == ("recall@1",)
