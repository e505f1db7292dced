"""`proxysynth mlrc` as a person or a script meets it."""

from __future__ import annotations

import json

import pytest

from cli.running import run
from proxysynth.cli import main
from training.tiny_pictures import pictures

TINY = [
    "mlrc", "glyphs", "--scale", "smoke", "--threads", "1", "--set", "epochs=1", "--set", "dim=8",
    "--set", "split.train_classes=6", "--set", "split.test_classes=5",
    "--set", "split.faces_per_class=6",
]  # fmt: skip


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The folder of a finished study, and what its command printed as JSON."""
    folder = tmp_path_factory.mktemp("mlrc") / "study"
    printed: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("builtins.print", lambda *words, **_: printed.append(str(words[0])))
        with pytest.raises(SystemExit) as ended:
            main([*TINY, "--trials", "3", "--runs", "2", "--out", str(folder), "--json"])
    assert ended.value.code == 0
    return folder, json.loads(printed[-1])


def test_study_writes_its_files(study):
    folder, printed = study
    names = {path.name for path in folder.iterdir()}
    assert names >= {
        "study.json", "study.db", "result.json", "study.html", "trials", "repetitions",
    }  # fmt: skip
    result = json.loads((folder / "result.json").read_text())
    assert result == {
        name: value for name, value in printed.items() if name not in ("folder", "page")
    }
    assert (result["data"], result["loss"], result["regularizer"]) == (
        "glyphs", "norm_softmax", "none",
    )  # fmt: skip
    assert (result["scale"], result["trials"], result["folds"], result["repetitions"]) == (
        "smoke", 3, 2, 2,
    )  # fmt: skip
    assert set(result["best"]) == {"proxy_lr", "loss.scale"}
    assert result["value"] == max(t["value"] for t in result["search"] if not t["pruned"])
    for kind in ("separated", "concatenated"):
        assert {name: len(v) for name, v in result[kind].items()} == {
            "precision@1": 2, "r_precision": 2, "map@r": 2,
        }  # fmt: skip
        mean = sum(result[kind]["map@r"]) / 2
        assert result["summary"][kind]["map@r"]["mean"] == pytest.approx(mean)
        assert result["summary"][kind]["map@r"]["ci95"] > 0
    assert result["provenance"]["torch"]


def test_repeated_command_shows_the_result_as_tables(study, capsys):
    folder, printed = study
    argv = [*TINY, "--trials", "3", "--runs", "2", "--out", str(folder)]
    code, out, err = run(capsys, *argv)
    assert code == 0
    assert "scale smoke: 3 trials" in out
    assert "2 folds, 2 repetitions" in out
    assert "concatenated (16-dim)" in out
    mean = printed["summary"]["concatenated"]["map@r"]["mean"]
    assert f"{100 * mean:.2f} ±" in out
    assert "Trial" not in err  # nothing was trained
    page = (folder / "study.html").read_text()
    assert "Unseen classes" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_plan_starts_no_training(tmp_path, capsys):
    out = tmp_path / "s"
    code, said, _ = run(capsys, *TINY, "--plan", "--out", str(out))
    assert code == 0
    assert "training runs" in said
    code, said, _ = run(capsys, *TINY, "--trials", "3", "--plan", "--out", str(out), "--json")
    printed = json.loads(said)
    assert (printed["trainings"], printed["done"], printed["finished"]) == (8, 0, False)
    assert printed["seconds"] > 0
    assert not out.exists()


@pytest.mark.parametrize(
    ("scale", "suffix"), [("smoke", "-smoke"), ("small", ""), ("paper", "-paper")]
)
def test_default_folder_includes_the_scale(tmp_path, capsys, monkeypatch, scale, suffix):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxysynth.protocols.estimates.time_steps", lambda *_: 100.0)
    _, said, _ = run(capsys, "mlrc", "glyphs", "--scale", scale, "--plan", "--json")
    assert json.loads(said)["folder"] == f"runs/mlrc/glyphs-norm_softmax-none{suffix}"


def test_plan_of_many_days_suggests_a_smaller_scale(capsys, monkeypatch):
    monkeypatch.setattr("proxysynth.protocols.estimates.time_steps", lambda *_: 1.0)
    _, said, _ = run(capsys, "mlrc", "glyphs", "--scale", "paper", "--plan")
    assert "days" in said
    assert "--scale small" in said


def test_plan_counts_finished_trainings(study, capsys):
    folder, _ = study
    argv = [*TINY, "--trials", "3", "--runs", "2", "--plan", "--out", str(folder), "--json"]
    code, said, _ = run(capsys, *argv)
    printed = json.loads(said)
    assert (code, printed["finished"], printed["seconds"]) == (0, True, 0)
    assert 0 < printed["done"] <= printed["trainings"] == 10
    argv[argv.index("--trials") + 1] = "4"
    printed = json.loads(run(capsys, *argv)[1])
    assert not printed["finished"]
    assert printed["seconds"] > 0
    code, _, err = run(capsys, *argv, "--seed", "1")
    assert code == 2
    assert "holds another study" in err


def test_progress_is_printed_as_lines_without_a_terminal(tmp_path, capsys):
    code, _, err = run(capsys, *TINY, "--trials", "1", "--out", str(tmp_path / "s"), "--json")
    assert code == 0
    lines = err.strip().splitlines()
    assert lines[0].startswith("Trial 1 of 1: MAP@R ")
    assert "best MAP@R" in lines[0]
    assert "left" in lines[0]
    assert lines[1].startswith("Repetition 1 of 1: MAP@R ")


@pytest.mark.parametrize(
    ("argv", "code", "expected"),
    [
        (["--loss", "norm_sofmax"], 2, "did you mean 'norm_softmax'?"),
        (["--loss", "cosface", "--regularizer", "virtual_softmax"], 2, "VirtualSoftmax"),
        (["--trials", "0"], 2, "trials must be an integer >= 1, got 0"),
        (["--set", "proxy_lr=1"], 2, "proxy_lr: the field is searched"),
        (["--set", "loss.scale=1"], 2, "loss.scale: the field is searched"),
        (["--set", "seed=1"], 2, "seed: the field is fixed by the protocol"),
        (["--set", "epoch=1"], 2, "did you mean 'epochs'?"),
        (["--folds", "4"], 1, "4 folds"),
        (["--storage", "sqlite:////nowhere/at/all.db"], 1, "the storage sqlite:////nowhere/at/all"),
        (["--storage", "/nowhere/at/all.log"], 1, "there is no folder /nowhere/at"),
    ],
)
def test_invalid_input_is_a_one_line_error(tmp_path, capsys, argv, code, expected):
    ended, out, err = run(capsys, *TINY, *argv, "--out", str(tmp_path / "s"))
    assert (ended, out) == (code, "")
    assert expected in err
    assert err.count("\n") == 1


def test_folder_of_another_study_is_a_one_line_error(study, capsys):
    folder, _ = study
    ended, out, err = run(capsys, *TINY, "--out", str(folder), "--loss", "cosface")
    assert (ended, out) == (2, "")
    assert "holds another study" in err
    assert err.count("\n") == 1


def test_class_with_one_image_is_a_one_line_error(tmp_path, capsys):
    root = pictures(tmp_path / "set", classes=16, each=2)
    for name in sorted(path.name for path in root.iterdir())[:8:2]:
        (root / name / "1.png").unlink()
    argv = ["mlrc", str(root), "--scale", "smoke", "--out", str(tmp_path / "s")]
    ended, out, err = run(capsys, *argv, "--set", "split.order=sorted")
    assert (ended, out) == (1, "")
    assert "'class0' has 1 image" in err
    assert err.count("\n") == 1


def test_unseen_image_without_positives_is_skipped_and_reported(tmp_path, capsys):
    root = pictures(tmp_path / "set", classes=12, each=2)
    (root / sorted(path.name for path in root.iterdir())[-1] / "1.png").unlink()
    argv = ["mlrc", str(root), "--scale", "smoke", "--trials", "1", "--set", "epochs=1"]
    argv += ["--set", "split.order=sorted", "--threads", "1", "--out", str(tmp_path / "s")]
    ended, out, _ = run(capsys, *argv)
    assert ended == 0
    assert "1 unseen image alone in a class, left out" in " ".join(out.split())
    printed = json.loads((tmp_path / "s" / "result.json").read_text())
    assert printed["queries_without_positive"] == 1


def test_unknown_data_is_rejected_with_a_suggestion(capsys):
    ended, _, err = run(capsys, "mlrc", "glphys")
    assert ended == 2
    assert "did you mean 'glyphs'?" in err
