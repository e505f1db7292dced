"""index, search and export as a person or a script meets them."""

from __future__ import annotations

import json
import shutil

import pytest
from PIL import Image

from cli.running import run
from proxysynth.training import Run, train
from training.tiny_pictures import pictures


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and another of other weights."""
    base = tmp_path_factory.mktemp("trained")
    photos = pictures(base / "photos")
    for seed in (0, 1):
        settings = {"epochs": 1, "dim": 8, "width": 0.25, "batch_size": 4, "image_size": 32}
        train(Run(data=str(photos), seed=seed, **settings), base / f"run{seed}")
    return base


@pytest.fixture
def shop(trained, tmp_path, capsys, monkeypatch):
    """A folder with photos/ and shop.index, and we are in it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained / "photos", tmp_path / "photos")
    code, _, err = run(capsys, "index", trained / "run0", "photos", "-o", "shop.index")
    assert code == 0, err
    return tmp_path


def test_index_reports_its_changes(trained, shop, capsys):
    (shop / "photos" / "class0" / "bad.jpg").write_text("text")
    (shop / "photos" / "class0" / "0.png").unlink()
    code, out, err = run(capsys, "index", trained / "run0", "photos", "-o", "shop.index")
    assert code == 0
    assert "29 images (0 embedded, 29 kept, 1 removed, 1 unreadable)" in out
    assert "class0/bad.jpg: it is damaged" in err
    code, out, _ = run(capsys, "index", trained / "run0", "photos", "-o", "shop.index", "--json")
    printed = json.loads(out)
    assert (printed["items"], printed["kept"], printed["written"]) == (29, 29, False)
    assert printed["unreadable"][0]["path"] == "class0/bad.jpg"
    assert printed["model"]["backbone"] == "conv4"


def test_another_model_requires_rebuild(trained, shop, capsys):
    code, _, err = run(capsys, "index", trained / "run1", "photos", "-o", "shop.index")
    assert code == 2
    assert "was made by" in err
    assert "--rebuild" in err
    assert err.count("\n") == 1
    argv = ("index", trained / "run1", "photos", "-o", "shop.index", "--rebuild", "--json")
    code, out, _ = run(capsys, *argv)
    assert code == 0
    assert json.loads(out)["embedded"] == 30


def test_search_as_a_table_and_as_json(shop, capsys):
    code, out, err = run(capsys, "search", "shop.index", "photos/class1/0.png", "-k", "3")
    assert code == 0
    assert err == ""
    assert "similarity" in out
    code, again, _ = run(capsys, "search", "shop.index", "class1/0.png", "-k", "3", "--json")
    printed = json.loads(again)
    assert [hit["path"] in out for hit in printed["hits"]] == [True] * 3
    assert "class1/0.png" not in [hit["path"] for hit in printed["hits"]]
    assert printed["hits"][0]["file"] == str(shop / "photos" / printed["hits"][0]["path"])
    argv = ("search", "shop.index", "class1/0.png", "--label", "class2", "--json")
    code, out, _ = run(capsys, *argv, "--threshold", "-1", "-k", "99")
    assert {hit["label"] for hit in json.loads(out)["hits"]} == {"class2"}
    code, out, _ = run(capsys, *argv[:-1], "--threshold", "1")
    assert code == 0
    assert "No image" in out


def test_file_names_with_markup_are_shown_verbatim(shop, trained, capsys):
    shutil.copy("photos/class1/0.png", "photos/class1/3 [bold]x.png")
    assert run(capsys, "index", trained / "run0", "photos", "-o", "shop.index")[0] == 0
    code, out, _ = run(capsys, "search", "shop.index", "photos/class1/0.png", "-k", "1")
    assert code == 0
    assert "class1/3 [bold]x.png" in out


def test_paths_are_not_cut_in_a_narrow_terminal(trained, shop, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    long = f"photos/class1/{'long name ' * 6}.png"
    shutil.copy("photos/class1/0.png", long)
    assert run(capsys, "index", trained / "run0", "photos", "-o", "shop.index")[0] == 0
    code, out, _ = run(capsys, "search", "shop.index", "photos/class1/0.png", "-k", "3")
    assert code == 0
    assert long.removeprefix("photos/") in out
    code, out, _ = run(capsys, "predict", trained / "run0", long)
    assert code == 0
    assert long in out


def test_search_by_several_images(shop, capsys):
    Image.new("RGB", (64, 64), "red").save(shop / "new.png")
    argv = ("search", "shop.index", "new.png", "class0/1.png", "--json")
    code, out, _ = run(capsys, *argv)
    assert code == 0
    assert len(json.loads(out)["hits"]) == 10


def test_contact_sheet_is_written_and_opened_if_there_is_a_display(shop, capsys, monkeypatch):
    import webbrowser

    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    monkeypatch.setattr("sys.platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    code, _, err = run(capsys, "search", "shop.index", "class0/1.png", "--open")
    assert code == 0
    assert "neighbors.html" in err
    assert shown == []
    monkeypatch.setenv("DISPLAY", ":0")
    argv = ("search", "shop.index", "class0/1.png", "--open", "-o", "sheet.html", "--json")
    code, out, _ = run(capsys, *argv)
    assert json.loads(out)["sheet"] == "sheet.html"
    assert shown == [(shop / "sheet.html").as_uri()]
    _, out, _ = run(capsys, "search", "shop.index", "class0/1.png", "class0/2.png")
    assert out.startswith("Query: the mean of 2 images\n")
    assert "data:image/png" in (shop / "sheet.html").read_text()
    assert "data:image/png" in (shop / "neighbors.html").read_text()


def test_approximate_search_reports_its_recall(trained, shop, capsys):
    pytest.importorskip("faiss")
    code, out, err = run(capsys, "search", "shop.index", "class0/1.png", "--approximate", "--json")
    assert code == 0
    assert "compared with exact search: recall@1" in err
    assert json.loads(out)["approximate"]["recall@10"] >= 0.98
    argv = ("index", trained / "run0", "photos", "-o", "shop.index", "--approximate", "--json")
    code, out, err = run(capsys, *argv)
    assert json.loads(out)["approximate"]["recall@1"] > 0
    assert "Making" not in err  # the search has made it, and nothing has changed


def test_moved_run_needs_the_run_option(trained, shop, capsys):
    shutil.copytree(trained / "run0", shop / "here")
    code, _, err = run(capsys, "index", "here", "photos", "-o", "b.index")
    assert code == 0, err
    (shop / "here").rename(shop / "there")
    Image.new("RGB", (64, 64), "red").save(shop / "new.png")
    code, _, err = run(capsys, "search", "b.index", "new.png")
    assert code == 2
    assert f"not at {shop / 'here'}" in err.split("--run")[0]
    code, _, err = run(capsys, "search", "b.index", "new.png", "--run", "there")
    assert code == 0
    code, _, err = run(capsys, "search", "b.index", "new.png", "--run", trained / "run1")
    assert code == 2
    assert "was made by" in err


def test_export_to_onnx_and_torch(trained, shop, capsys):
    pytest.importorskip("onnxruntime")
    code, out, _ = run(capsys, "export", trained / "run0", "--to", "onnx", "-o", "m.onnx", "--json")
    assert code == 0
    printed = json.loads(out)
    assert printed["difference"] < 1e-5
    assert printed["preprocessing"]["center_crop"] == 32
    assert (shop / "m.onnx").stat().st_size > 1000
    code, out, _ = run(capsys, "export", trained / "run0", "--to", "torch", "-o", "m.pt2")
    assert code == 0
    assert "conv4, (n, 1, 32, 32) -> (n, 8)" in out


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["index", "RUN", "gone", "-o", "x.index"], "does not exist"),
        (["index", "gone", "photos", "-o", "x.index"], "gone does not exist"),
        (["index", "efficientnet_lite9", "photos", "-o", "x"], "choose one of efficientnet_lite0"),
        (["index", "RUN", "photos", "-o", "photos"], "is a folder"),
        (["index", "RUN", "photos", "-o", "photos/class0/0.png"], "not an index"),
        (["index", "RUN", "photos"], "the following arguments are required: -o"),
        (["search", "gone.index", "a.jpg"], "there is no index gone.index"),
        (["search", "photos/class0/0.png", "a.jpg"], "not an index"),
        (["search", "shop.index", "gone.jpg"], "gone.jpg: no such file"),
        (["search", "shop.index", "text.jpg"], "text.jpg: it is damaged or not one of JPEG"),
        (["search", "shop.index", "class0/0.png", "-k", "0"], "k must be an integer >= 1"),
        (["search", "shop.index", "class0/0.png", "-k", "few"], "int value: 'few'"),
        (
            ["search", "shop.index", "class0/0.png", "--threshold", "2"],
            "threshold must be a cosine",
        ),
        (["search", "shop.index", "class0/0.png", "--label", "clas0"], "did you mean 'class0'"),
        (
            ["search", "shop.index"],
            "required: IMAGE; expected INDEX (an index), then IMAGE (query images",
        ),
        (["export", "gone", "--to", "onnx", "-o", "x"], "gone does not exist"),
        (["index", "shop.index", "photos", "-o", "x.index"], "shop.index is a file"),
        (["search", "photos", "photos/class0/0.png"], "proxysynth index RUN photos -o"),
        (["search", "RUN", "photos/class0/0.png"], "run0 FOLDER -o"),
        (["search", "shop.index", "photos"], "must be an image file"),
        (["predict", "shop.index", "photos"], "proxysynth predict RUN --index shop.index"),
        (["predict", "RUN", "photos", "-k", "5"], "--index"),
        (["index", "photos", "RUN", "-o", "x.index"], "the run comes first"),
        (["predict", "photos", "RUN"], "the run comes first"),
        (["eval", "photos", "RUN"], "the run comes first"),
        (["predict", "RUN", "photos", "--threshold", "foo"], "or none, got 'foo'"),
        (["search", "photos", "shop.index"], "the index comes first"),
        (["search", "photos/class0/0.png", "shop.index"], "the index comes first"),
        (
            ["export", "shop.index", "--to", "onnx", "-o", "x"],
            "an index can be exported to parquet, npy or faiss",
        ),
        (["eval", "shop.index"], "proxysynth eval shop.index FOLDER"),
        (["export", "RUN", "-o", "x"], "arguments are required: --to; see"),
        (["export", "RUN", "--to", "tflite", "-o", "x"], "choice 'tflite'"),
        (["export", "RUN", "--to", "torch", "-o", "photos"], "is a folder"),
        (["export", "RUN", "--to", "torch", "-o", "no/x"], "there is no folder"),
    ],
)
def test_mistakes_are_one_line_errors(trained, shop, capsys, argv, expected):
    (shop / "text.jpg").write_text("hello")
    before = sorted(path.name for path in shop.iterdir())
    argv = [str(trained / "run0") if word == "RUN" else word for word in argv]
    code, out, err = run(capsys, *argv)
    assert code == 2
    assert out == ""
    assert expected in err
    assert err.count("\n") == 1
    assert sorted(path.name for path in shop.iterdir()) == before


def test_unwritable_index_is_a_one_line_error(trained, shop, capsys):
    (shop / "file").touch()
    code, _, err = run(capsys, "index", trained / "run0", "photos", "-o", "file/x.index")
    assert code == 1
    assert "cannot write" in err
    assert err.count("\n") == 1
