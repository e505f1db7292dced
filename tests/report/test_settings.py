"""Settings as rows: flat, against defaults, and against each other."""

import proxysynth as ps
from proxysynth.report.settings import changed, differing, method, rows
from proxysynth.training.defaults import default_run
from proxysynth.training.run import Run
from proxysynth.values import encode

DEFAULT = encode(default_run())


def test_setting_names_match_command_line_options():
    told = rows(encode(Run(loss=ps.ProxySynthesis(ps.ProxyAnchor(scale=30.0), alpha=0.5))))
    assert told["loss"] == "ProxyAnchor"
    assert told["loss.scale"] == "30"
    assert told["regularizer"] == "ProxySynthesis"
    assert told["regularizer.alpha"] == "0.5"
    assert told["dim"] == "128"
    assert told["ks"] == "none"
    assert not {"regularizer.loss", "split"} & told.keys()


def test_default_run_has_no_changed_settings():
    assert changed(DEFAULT, DEFAULT) == {}


def test_changed_settings_are_found_by_path():
    run = Run(loss=ps.ProxySynthesis(ps.NormSoftmax(scale=9.0), mu=2.0), lr=0.1, ks=(1, 5))
    assert list(changed(encode(run), DEFAULT)) == ["loss.scale", "regularizer.mu", "lr", "ks"]


def test_changes_are_relative_to_defaults_of_the_loss():
    assert list(changed(encode(Run(loss=ps.NormSoftmax())), DEFAULT)) == ["regularizer"]
    other = encode(Run(loss=ps.ProxySynthesis(ps.ProxyAnchor(margin=0.3))))
    assert list(changed(other, DEFAULT)) == ["loss", "loss.margin"]


def test_only_differing_settings_are_listed():
    a, b = encode(Run(loss=ps.NormSoftmax())), encode(Run(lr=0.5))
    c = encode(Run(loss=ps.ProxySynthesis(ps.NormSoftmax(), alpha=0.7)))
    assert differing([a, a]) == {}
    assert differing([a, b]) == {
        "regularizer": ("none", "ProxySynthesis"),
        "lr": ("0.001", "0.5"),
    }
    assert differing([a, c]) == {
        "regularizer": ("none", "ProxySynthesis"),
        "regularizer.alpha": ("–", "0.7"),
    }


def test_method_name():
    assert method(DEFAULT) == "NormSoftmax with ProxySynthesis"
    assert method(encode(Run(loss=ps.CosFace()))) == "CosFace"
