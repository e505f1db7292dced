"""`proxysynth eval` with each protocol."""

from __future__ import annotations

import json

import pytest
from PIL import Image

from cli.running import run
from proxysynth.protocols import Deformation, EmbeddingDeformation, embeddings_of, own_splits
from proxysynth.training import Run, Split, load, train
from training.tiny_pictures import pictures


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A run on a few glyphs, one on a few photographs, and other photographs, one of them bad."""
    folder = tmp_path_factory.mktemp("eval")
    split = Split(train_classes=6, test_classes=5, faces_per_class=8)
    train(Run(split=split, epochs=1, dim=16, width=0.25, batch_size=16), folder / "glyphs")
    root = pictures(folder / "set", classes=6, each=4)
    photos = Run(data=str(root), epochs=1, dim=8, width=0.25, batch_size=4, image_size=32)
    train(photos, folder / "photos")
    other = pictures(folder / "other", classes=4, each=5)
    (other / "class1" / "broken.png").write_bytes(b"no picture")
    return folder


def test_deformation_as_json_and_sheet(places, capsys, tmp_path) -> None:
    sheet = tmp_path / "sheet.png"
    words = ("eval", places / "glyphs", "--protocol", "deformation", "--seed", "4")
    code, out, err = run(capsys, *words, "--json", "--sheet", sheet)
    assert code == 0
    printed = json.loads(out)
    model = load(places / "glyphs")
    query = own_splits(model).query
    assert (printed["protocol"], printed["seed"], printed["pictures"]) == (
        "deformation",
        4,
        len(query),
    )
    assert printed["metrics"] == Deformation(seed=4)(model, query)
    assert Image.open(sheet).format == "PNG"
    assert str(sheet) in err
    assert list(tmp_path.iterdir()) == [sheet]


def test_deformation_as_a_table(places, capsys) -> None:
    words = ("eval", places / "glyphs", "--protocol", "deformation", "--ks", "1,3")
    code, out, _ = run(capsys, *words, "--opposite-zoom")
    assert code == 0
    assert "undeformed" in out
    assert "zoom out" in out
    assert "R@3" in out


def test_embedding_deformation_on_train_and_test_classes(places, capsys) -> None:
    words = ("eval", places / "glyphs", "--protocol", "embedding_deformation")
    code, out, _ = run(capsys, *words, "--json", "--seed", "2")
    assert code == 0
    printed = json.loads(out)["metrics"]
    assert list(printed) == ["train", "test"]
    assert list(printed["test"]) == [f"{5 * step / 100:.2f}" for step in range(2, 20)]
    model = load(places / "glyphs")
    splits, protocol = own_splits(model), EmbeddingDeformation(seed=2)
    for name, part in (("train", splits.train), ("test", splits.query)):
        expected = protocol(embeddings_of(model, part), part.labels)
        assert list(printed[name].values()) == list(expected.values())
    code, out, _ = run(capsys, *words)
    assert "lam 0.50" in out
    assert "Train" in out


def test_other_data_has_only_test_classes(places, capsys) -> None:
    words = ("eval", places / "photos", places / "set", "--protocol", "embedding_deformation")
    code, out, _ = run(capsys, *words, "--json")
    assert code == 0
    assert list(json.loads(out)["metrics"]) == ["test"]


@pytest.mark.parametrize("protocol", ["conventional", "deformation"])
def test_unreadable_image_is_reported_or_skipped(places, capsys, protocol) -> None:
    words = ("eval", places / "photos", places / "other", "--protocol", protocol, "--json")
    code, out, err = run(capsys, *words)
    assert code == 1
    assert out == ""
    assert "1 of 21 images cannot be read" in err
    assert "broken.png" in err
    assert "--skip-bad" in err
    assert err.count("\n") == 1
    code, out, err = run(capsys, *words, "--skip-bad")
    assert code == 0
    assert json.loads(out)["pictures"] == 20
    assert "broken.png" in err


def test_damaged_test_image_of_a_run_can_be_skipped(places, capsys, tmp_path) -> None:
    root = pictures(tmp_path / "set", classes=6, each=4)
    made = Run(data=str(root), epochs=1, dim=4, width=0.25, batch_size=4, image_size=32)
    train(made, tmp_path / "run")
    bad = own_splits(load(tmp_path / "run")).query.path(0)
    bad.write_bytes(b"no picture any more")
    code, _, err = run(capsys, "eval", tmp_path / "run", "--json")
    assert code == 1
    assert "--skip-bad" in err
    code, out, err = run(capsys, "eval", tmp_path / "run", "--json", "--skip-bad")
    assert code == 0
    assert json.loads(out)["pictures"] == 11
    assert bad.name in err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--sheet", "a.png"], "--sheet"),
        (["--seed", "1"], "--seed"),
        (["--seed", "0"], "--seed"),
        (["--protocol", "deformation", "--nmi"], "--nmi"),
        (["--protocol", "deformation", "--sheet", "no/such/a.png"], "--sheet"),
        (["--protocol", "deformation", "--sheet", "a.jpg"], "--sheet"),
        (["--protocol", "embedding_deformation", "--ks", "1"], "--ks"),
        (["--protocol", "deformation", "--seed", "-1"], "--seed"),
        (["--protocol", "deformed"], "did you mean 'deformation'?"),
        (["--ks", "one"], "--ks"),
        (["no/such/data"], "no/such/data"),
    ],
)
def test_usage_errors_are_one_line(places, capsys, words, expected, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, "eval", places / "glyphs", *words)
    assert code == 2
    assert expected in err
    assert err.count("\n") == 1
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_classes_with_too_few_images_to_mix_are_rejected(places, capsys, tmp_path) -> None:
    few = pictures(tmp_path / "few", classes=4, each=2)
    words = ("eval", places / "photos", few, "--protocol", "embedding_deformation")
    code, _, err = run(capsys, *words)
    assert code == 1
    assert "with 4 images or more, got 0" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--loss", "softmax", "--regularizer", "virtual_softmax",
         "--set", "regularizer.clip=none"],
        ["--regularizer", "input_mixup"],
        ["--regularizer", "manifold_mixup", "--set", "regularizer.stages=0,4"],
    ],
)  # fmt: skip
def test_other_regularizers_train_and_write_a_report(words, capsys, tmp_path) -> None:
    small = ["--set", "split.train_classes=6", "--set", "split.test_classes=6", "--set", "dim=16"]
    out = tmp_path / "run"
    code, printed, _ = run(capsys, "train", "--epochs", "1", "--out", out, "--json", *words, *small)
    assert code == 0
    page = (out / "report.html").read_text()
    kind = {"virtual_softmax": "VirtualSoftmax", "input_mixup": "InputMixup",
            "manifold_mixup": "ManifoldMixup"}  # fmt: skip
    assert f"with {kind[words[words.index('--regularizer') + 1]]}" in page
    code, printed, _ = run(capsys, "eval", out, "--json")
    assert code == 0
    assert (
        json.loads(printed)["metrics"] == json.loads((out / "result.json").read_text())["metrics"]
    )


def test_folder_and_table_of_the_same_images_give_equal_metrics(places, capsys, tmp_path) -> None:
    root = pictures(tmp_path / "three", classes=3, each=4)
    code, out, _ = run(capsys, "eval", places / "photos", root, "--json")
    assert code == 0
    table = tmp_path / "three.csv"
    files = sorted(path for path in root.rglob("*") if path.is_file())
    lines = [f"{path.relative_to(tmp_path)},{path.parent.name}" for path in files]
    table.write_text("\n".join(["path,label", *lines]))
    code, other, _ = run(capsys, "eval", places / "photos", table, "--json")
    assert code == 0
    assert json.loads(out)["metrics"] == json.loads(other)["metrics"]


def test_images_of_one_class_give_a_warning(places, capsys, tmp_path) -> None:
    root = pictures(tmp_path / "alone", classes=1, each=3)
    (root / "class0").rename(root / "alone")
    code, out, err = run(capsys, "eval", places / "photos", root, "--json")
    assert code == 0
    (warning,) = json.loads(out)["warnings"]
    assert "one class (alone)" in warning
    assert warning in err
    assert run(capsys, "eval", places / "glyphs", "--json")[1].endswith('"warnings": []}\n')


def test_classes_seen_in_training_give_a_warning(places, capsys) -> None:
    code, out, err = run(capsys, "eval", places / "photos", places / "set")
    assert code == 0
    assert "3 of 6 classes" in err
    assert "Warning" not in out
