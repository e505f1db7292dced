"""Settings from a file, and a run's settings as a file."""

from __future__ import annotations

import json
import typing
from pathlib import Path

import pytest

import proxysynth as ps
from proxysynth.cli import main
from proxysynth.cli.config import field_help, to_toml
from proxysynth.training import Run, Split
from proxysynth.training.defaults import default_run, run_from_options
from proxysynth.values import encode


def run_of(*argv: str) -> Run:
    """The run that the command trains with these options; it is not trained here."""
    runs = []

    def train(run: Run, *_: object, **__: object) -> None:
        runs.append(run)
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("proxysynth.cli.train.train", train)
        with pytest.raises(SystemExit):
            main(["train", *argv])
    (run,) = runs
    return run


@pytest.mark.parametrize(
    "run",
    [
        Run(),
        Run(loss=ps.ArcFace(m2=0.2), dim=None, decay_epochs=(3, 5), schedule="step"),
        run_from_options(loss="softmax", regularizer="virtual_softmax", settings=["split.seed=3"]),
    ],
)
def test_toml_config_round_trip(run: Run, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(to_toml(run))
    assert run_of("--config", str(tmp_path / "run.toml")) == run


@pytest.mark.parametrize(
    "run",
    [
        default_run(),
        default_run(epochs=5, extended=(2,), seed=3),
        default_run("/no such/folder & <more>", loss=ps.ProxySynthesis(ps.ArcFace(), lam=0.3)),
        default_run("/photos", backbone="conv4", dim=None, clip_norm=1.0, skip_bad=True),
        default_run("/photos", split=Split(unseen_classes=("a,b", 'c"d', "e f")), ks=(1, 10)),
        default_run("/photos", crop_scale=(0.2, 0.9), weights="my weights.pth"),
        default_run("/photos", init="/runs/first"),
        default_run(task="classification", loss=ps.Softmax()),
    ],
    ids=lambda run: run.identity,
)
def test_run_json_config_round_trip(run: Run, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("proxysynth.cli.train.check_exists", lambda data: None)
    (tmp_path / "run.json").write_text(json.dumps({"format": 1, "run": encode(run)}))
    assert run_of("--config", str(tmp_path / "run.json")) == run


def test_run_json_config_can_be_overridden(tmp_path: Path) -> None:
    run = Run(loss=ps.ProxySynthesis(ps.CosFace(), mu=2.0), epochs=7)
    file = tmp_path / "run.json"
    file.write_text(json.dumps({"format": 1, "run": encode(run)}))
    assert run_of("--config", str(file)) == run_of("--config", str(tmp_path)) == run
    changed = run_of("--config", str(file), "--epochs", "3", "--set", "regularizer.mu=1")
    assert changed == Run(loss=ps.ProxySynthesis(ps.CosFace()), epochs=3)


def test_loss_and_regularizer_can_be_set() -> None:
    given = run_of("--set", "loss=arcface", "--set", "loss.m2=0.2", "--set", "regularizer=none")
    assert given == Run(loss=ps.ArcFace(m2=0.2))


def test_options_override_the_config(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('regularizer = "none"\nepochs = 5\n[loss]\nname = "cosface"\nm3 = 0.3\n')
    assert run_of("--config", str(file)) == Run(loss=ps.CosFace(m3=0.3), epochs=5)
    assert run_of("--config", str(file), "--seed", "1", "--loss", "norm_softmax") == Run(
        loss=ps.NormSoftmax(), epochs=5, seed=1
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epochs = ", "run.toml"),
        ("epohcs = 3", "did you mean 'epochs'?"),
        ('loss = "arcfase"', "did you mean 'arcface'?"),
        ("[loss]\nsclae = 3.0", "did you mean 'scale'?"),
        ("epochs = 1.5", "epochs must be an integer"),
    ],
)
def test_invalid_config_is_a_usage_error(text: str, expected: str, tmp_path: Path, capsys) -> None:
    (tmp_path / "run.toml").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main(["train", "--config", str(tmp_path / "run.toml")])
    assert ended.value.code == 2
    assert expected in capsys.readouterr().err


def test_show_config_as_json_and_as_toml(capsys) -> None:
    for extra, expected in (["--json"], '"epochs": 4'), ([], "\nepochs = 4\n"):
        with pytest.raises(SystemExit) as ended:
            main(["train", "--epochs", "4", "--show-config", *extra])
        assert ended.value.code == 0
        assert expected in capsys.readouterr().out


def test_printed_settings_call_none_what_the_file_calls_it() -> None:
    text = to_toml(Run())
    assert "None" not in text
    assert '"none": the size used in testing' in text


@pytest.mark.parametrize("kind", [Run, Split])
def test_every_field_has_unique_help(kind: type) -> None:
    about = field_help(kind)
    assert set(kind.__dataclass_fields__) <= set(about)
    assert len(set(about.values())) == len(about)


@pytest.mark.parametrize(
    "kind", [Run, Split, *ps.LOSSES.values(), *filter(None, ps.REGULARIZERS.values())]
)
def test_help_lists_all_choices(kind: type) -> None:
    about = field_help(kind)
    for name, hint in typing.get_type_hints(kind).items():
        for option in (hint, *typing.get_args(hint)):
            if typing.get_origin(option) is typing.Literal:
                assert all(f'"{choice}"' in about[name] for choice in typing.get_args(option)), name
