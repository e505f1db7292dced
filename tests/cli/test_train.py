"""`proxysynth train` from its words to its report."""

from __future__ import annotations

import json
import shutil

import pytest

from cli.running import run
from training.tiny_pictures import pictures


@pytest.fixture
def words(tmp_path, monkeypatch):
    root = pictures(tmp_path / "set", classes=6, each=4)
    sets = ["image_size=32", "width=0.25", "dim=8", "batch_size=4"]
    return ["train", root, "--from-scratch", "--backbone", "conv4", "--epochs", 1,
            *(word for text in sets for word in ("--set", text))]  # fmt: skip


def test_finished_run_keeps_its_report(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    report = place / "report.html"
    before = report.read_bytes()
    shutil.rmtree(tmp_path / "set")  # the pictures could not be shown any more
    code, out, _ = run(capsys, "train", "--resume", "--out", place, "--json")
    assert code == 0
    assert json.loads(out)["report"] == str(report)
    assert report.read_bytes() == before


def test_missing_report_is_written_on_resume(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    (place / "report.html").unlink()
    assert run(capsys, "train", "--resume", "--out", place)[0] == 0
    assert (place / "report.html").is_file()


def test_every_unreadable_image_is_reported_with_its_reason(words, capsys, tmp_path) -> None:
    bad = [tmp_path / "set" / "class0" / f"bad{i}.png" for i in range(12)]
    for path in bad:
        path.write_bytes(b"")
    code, out, err = run(capsys, *words, "--out", tmp_path / "run")
    assert (code, out) == (1, "")
    assert all(f"{path}: the file is empty\n" in err for path in bad)
    code, _, err = run(capsys, *words, "--out", tmp_path / "run", "--skip-bad")
    assert code == 0
    assert all(f"{path}: the file is empty\n" in err for path in bad)


def test_failed_run_leaves_no_folder(words, capsys, tmp_path) -> None:
    (tmp_path / "set" / "class0" / "bad.png").write_bytes(b"")
    assert run(capsys, *words, "--out", tmp_path / "run")[0] == 1
    assert not (tmp_path / "run").exists()


def test_missing_files_of_a_csv_explain_the_root(words, capsys, tmp_path) -> None:
    lines = [f"other/{label}/{i}.png,{label}" for label in "abcd" for i in range(2)]
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["path,label", *lines]))
    code, _, err = run(capsys, "train", table, *words[2:], "--out", tmp_path / "run")
    assert code == 1
    assert "split.root" in err
    assert "--skip-bad" not in err


@pytest.mark.parametrize("root", [None, "set"])
def test_next_step_of_a_csv_names_no_folder(words, capsys, tmp_path, root) -> None:
    files = sorted((tmp_path / "set").glob("*/*.png"))
    start = tmp_path / (root or "")
    lines = [f"{path.relative_to(start)},{path.parent.name}" for path in files]
    table = tmp_path / "list.csv"
    table.write_text("\n".join(["path,label", *lines]))
    given = ["--set", f"split.root={start}"] if root else []
    code, out, _ = run(capsys, "train", table, *words[2:], *given, "--out", tmp_path / "run")
    assert code == 0
    assert f"Next: proxysynth index {tmp_path / 'run'} FOLDER -o run.index, where" in out


@pytest.mark.parametrize("option", [("--epochs", 0), ("--seed", -1)])
def test_wrong_number_names_its_option(capsys, option) -> None:
    code, _, err = run(capsys, "train", *option)
    assert code == 2
    assert f"{option[0]} must be" in err


def test_resume_with_skip_bad_is_rejected_as_a_different_run(words, capsys, tmp_path):
    assert run(capsys, *words, "--out", tmp_path / "run")[0] == 0
    code, out, err = run(capsys, "train", "--resume", "--skip-bad", "--out", tmp_path / "run")
    assert (code, out) == (2, "")
    assert "skip_bad False there, True here" in err


def test_empty_data_argument_is_rejected(capsys) -> None:
    code, out, err = run(capsys, "train", "")
    assert (code, out) == (2, "")
    assert "there is no folder or CSV ''" in err


def test_train_with_all_classes(words, capsys, tmp_path) -> None:
    place = tmp_path / "shop"
    code, out, _ = run(capsys, *words, "--all-classes", "--out", place, "--json")
    assert code == 0
    printed = json.loads(out)
    evaluated = json.loads((place / "evaluated" / "result.json").read_text())
    assert printed["metrics"] == evaluated["metrics"]
    page = (place / "report.html").read_text()
    assert "trained on all 6 classes (24 images)" in page
    assert "--all-classes" in page
    assert (place / "evaluated" / "report.html").is_file()
    # A kill between the two trainings, or before the report.
    for name in ("run.json", "result.json", "model.safetensors", "report.html", "metrics.jsonl"):
        (place / name).unlink()
    shutil.rmtree(place / "checkpoint")
    code, out, _ = run(capsys, "train", "--resume", "--out", place, "--json")
    assert code == 0
    again = json.loads(out)
    assert again["checksums"]["model.safetensors"] == printed["checksums"]["model.safetensors"]
    assert (place / "report.html").read_text().count("trained on all 6 classes") == 1
    # More epochs, of both.
    code, out, _ = run(capsys, "train", "--resume", "--out", place, "--epochs", 2, "--json")
    assert code == 0
    assert json.loads(out)["epoch"] == 2
    assert json.loads((place / "evaluated" / "result.json").read_text())["epoch"] == 2
    assert run(capsys, "train", "--resume", "--out", place, "--epochs", 1)[0] == 0
    # Nothing is left to evaluate it on.
    code, _, err = run(capsys, "eval", place)
    assert code == 2
    assert "evaluated" in err


def test_init_continues_from_an_earlier_run(words, capsys, tmp_path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert run(capsys, *words, "--loss", "cosface", "--out", first)[0] == 0
    pictures(tmp_path / "new", classes=8, each=4)
    argv = ["train", tmp_path / "new", "--init", first, "--out", second, "--json"]
    assert run(capsys, *argv)[0] == 0
    made = json.loads((second / "run.json").read_text())["run"]
    assert made["init"] == str(first)
    assert made["loss"]["loss"]["kind"] == "CosFace"
    assert (made["dim"], made["width"], made["epochs"]) == (8, 0.25, 1)
    # The model without an embedding layer is continued without one.
    third, fourth = tmp_path / "third", tmp_path / "fourth"
    assert run(capsys, *words, "--set", "interpolate=0.5", "--out", third)[0] == 0
    page = (third / "report.html").read_text()
    assert "Interpolation" in page
    assert "a = 0.5" in page
    assert run(capsys, "train", "--init", third, "--out", fourth)[0] == 0
    assert json.loads((fourth / "run.json").read_text())["run"]["dim"] is None
    code, _, err = run(capsys, "train", "--init", tmp_path / "nowhere")
    assert code == 2
    assert f"{tmp_path / 'nowhere'} does not exist" in err


def test_init_does_not_run_untrusted_code(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    config = json.loads((place / "run.json").read_text())
    config["run"]["backbone"] = "antigravity:make"
    config.pop("crc32", None)
    (place / "run.json").write_text(json.dumps(config))
    code, _, err = run(capsys, "train", "--init", place, "--out", tmp_path / "next")
    assert code == 2
    assert "antigravity" in err
    assert not (tmp_path / "next").exists()


def test_two_classes_are_trained_without_evaluation(words, capsys, tmp_path) -> None:
    for name in ("class2", "class3", "class4", "class5"):
        shutil.rmtree(tmp_path / "set" / name)
    code, out, err = run(capsys, *words, "--out", tmp_path / "run")
    assert code == 0
    assert (out + err).count("Not evaluated") == 1
    assert "Not evaluated" in (tmp_path / "run" / "report.html").read_text()


def test_resume_with_more_epochs(words, capsys, tmp_path) -> None:
    place = tmp_path / "run"
    assert run(capsys, *words, "--out", place)[0] == 0
    longer = [*words, "--epochs", 2, "--out", place]
    assert run(capsys, *longer)[0] == 2  # only when it is asked for
    assert run(capsys, *longer, "--resume")[0] == 0
    assert run(capsys, "train", "--resume", "--out", place, "--epochs", 1)[0] == 0  # as it was
    made = json.loads((place / "run.json").read_text())["run"]
    assert (made["epochs"], made["extended"]) == (2, [1])
    assert run(capsys, *longer, "--resume")[0] == 0
    # Options that are given must be those of the recorded run; others need not be given again.
    assert run(capsys, "train", "--resume", "--out", place, "--loss", "norm_softmax")[0] == 0
    for option in (["--seed", 1], ["--loss", "cosface"], ["--set", "lr=1"]):
        code, _, err = run(capsys, "train", "--resume", "--out", place, *option)
        assert code == 2
        assert "holds another run" in err


def test_a_folder_without_classes_is_wrong_usage(tmp_path, capsys) -> None:
    (tmp_path / "1.png").write_bytes(b"x")
    code, _, err = run(capsys, "train", tmp_path, "--out", tmp_path / "run")
    assert code == 2, err
