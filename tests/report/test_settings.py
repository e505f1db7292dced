"""Settings as rows: flat, against defaults, against each other; and the command that gives them."""

import shlex

import pytest

import proxysynth as ps
from proxysynth.report.settings import changed, differing, method, repeat_command, rows
from proxysynth.training.defaults import default_run, run_from_options
from proxysynth.training.run import Run, Split
from proxysynth.values import encode

DEFAULT = encode(default_run())


def test_rows_are_called_as_the_command_line_calls_them():
    told = rows(encode(Run(loss=ps.ProxySynthesis(ps.ProxyAnchor(scale=30.0), alpha=0.5))))
    assert told["loss"] == "ProxyAnchor"
    assert told["loss.scale"] == "30"
    assert told["regularizer"] == "ProxySynthesis"
    assert told["regularizer.alpha"] == "0.5"
    assert told["dim"] == "128"
    assert told["ks"] == "none"
    assert "regularizer.loss" not in told


def test_nothing_is_changed_in_the_default():
    assert changed(DEFAULT, DEFAULT) == {}


def test_changes_are_found_where_they_are():
    run = Run(loss=ps.ProxySynthesis(ps.NormSoftmax(scale=9.0), mu=2.0), lr=0.1, ks=(1, 5))
    assert list(changed(encode(run), DEFAULT)) == ["loss.scale", "regularizer.mu", "lr", "ks"]


def test_another_loss_counts_against_its_own_defaults():
    assert list(changed(encode(Run(loss=ps.NormSoftmax())), DEFAULT)) == ["regularizer"]
    other = encode(Run(loss=ps.ProxySynthesis(ps.ProxyAnchor(margin=0.3))))
    assert list(changed(other, DEFAULT)) == ["loss", "loss.margin"]


def test_only_what_differs_is_listed():
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


def test_the_method_in_words():
    assert method(DEFAULT) == "NormSoftmax with ProxySynthesis"
    assert method(encode(Run(loss=ps.CosFace()))) == "CosFace"


def retyped(command: str) -> tuple[Run, str]:
    """Read a command as the program would."""
    words = shlex.split(command)
    assert words[:2] == ["proxysynth", "train"]
    words = words[2:]
    given = {} if words[0].startswith("--") else {"data": words.pop(0)}
    settings = []
    out = ""
    for flag, value in zip(words[::2], words[1::2], strict=True):
        if flag == "--set":
            settings.append(value)
        elif flag == "--out":
            out = value
        else:
            name = flag.removeprefix("--")
            given[name] = int(value) if name in ("epochs", "seed") else value
    return run_from_options(settings=settings, **given), out


@pytest.mark.parametrize(
    "run",
    [
        default_run(),
        default_run(epochs=5, seed=3, lr=0.02),
        default_run(loss=ps.NormSoftmax(scale=12.5)),
        default_run(loss=ps.ProxySynthesis(ps.ArcFace(), mu=0.5, lam=0.3)),
        default_run("/no such/folder & <more>", seed=1),
        default_run("/photos", backbone="resnet50", pretrained=False),
        default_run("/photos", backbone="conv4", dim=None, clip_norm=1.0),
        default_run(schedule="step", decay_epochs=(10, 20), sampler="m_per_class", batch_size=40),
        default_run("/photos", split=Split(unseen_classes=("a,b", 'c"d', "e f")), ks=(1, 10)),
        default_run("/photos", crop_scale=(0.2, 0.9), weights="my weights.pth", skip_bad=True),
    ],
    ids=lambda run: run.identity,
)
def test_the_command_trains_the_same_run(run):
    command = repeat_command(run, "some where")
    made, out = retyped(command)
    assert made == run
    assert out == "some where"


def test_the_command_says_no_more_than_needed():
    assert repeat_command(default_run(), "x") == "proxysynth train --out x"
    run = default_run("/photos", pretrained=False)
    assert repeat_command(run, "x") == "proxysynth train /photos --set pretrained=false --out x"
    run = default_run(loss=ps.CosFace(), epochs=2)
    assert repeat_command(run, "x") == (
        "proxysynth train --loss cosface --regularizer none --epochs 2 --out x"
    )


def test_a_loss_without_a_name_has_no_command():
    assert repeat_command(default_run(loss=ps.SquaredProxyNCA()), "x") is None
