import pytest

from proxysynth.data import open_data, sources

FOUR = {"ants": 2, "bees": 2, "cats": 2, "dogs": 2}


def test_open_glyphs_by_name():
    splits = open_data("glyphs", train_classes=3, test_classes=2)
    assert len(splits.train) == 48
    assert splits.name == "glyphs"


def test_open_folder(make_folder):
    root = make_folder(FOUR)
    assert len(open_data(root).train) == 4
    assert open_data(str(root), unseen_classes=["ants", "bees"]).query.classes == ("ants", "bees")
    assert open_data(root, order="sorted").query.classes == ("cats", "dogs")


def test_open_folder_with_parts(make_folder):
    root = make_folder({"old/ants": 2, "old/bees": 2, "new/cats": 2, "new/dogs": 2})
    assert open_data(root, train="old", test="new").train.classes == ("ants", "bees")
    with pytest.raises(ValueError, match="seed"):
        open_data(root, train="old", test="new", seed=1)


def test_open_csv(make_folder, tmp_path):
    root = make_folder(FOUR)
    lines = [
        "path,label",
        *(f"{p.parent.name}/{p.name},{p.parent.name}" for p in root.rglob("*.png")),
    ]
    (tmp_path / "all.csv").write_text("\n".join(lines))
    splits = open_data(tmp_path / "all.csv", root=root, unseen_classes=("ants", "dogs"))
    assert splits.query.classes == ("ants", "dogs")


def test_open_benchmark_by_name(monkeypatch):
    made = object()
    monkeypatch.setattr(sources, "open_benchmark", lambda *given, **options: (made, given, options))
    assert open_data("cub200:/some/where", incomplete=True) == (
        made,
        ("cub200", "/some/where"),
        {"incomplete": True},
    )


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("glyph", "'glyphs'"),
        ("no/such/folder", "'no/such/folder'"),
        ("cub20:/data", "'cub20'.*'cub200'"),
        ("cub200", "cub200:ROOT"),
        ("C:\\pictures", "pictures"),
    ],
)
def test_not_found_errors(spec, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_data(spec)
    assert "\n" not in str(caught.value)


def test_unsupported_file_is_rejected(tmp_path):
    (tmp_path / "photo.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="got the file"):
        open_data(tmp_path / "photo.jpg")


def test_misspelled_option_suggests_nearest(make_folder):
    with pytest.raises(ValueError, match="'train_class'.*'train_classes'"):
        open_data("glyphs", train_class=3)
    with pytest.raises(ValueError, match="'unseen_clases'"):
        open_data(make_folder(FOUR), unseen_clases=("ants",))
