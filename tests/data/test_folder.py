import os
import re

import pytest
from PIL import Image

from proxysynth.data import UnreadableImages, check_splits, open_data
from proxysynth.data.sources import open_test_data

FOUR = {"ants": 3, "bees": 3, "cats": 3, "dogs": 3}


def test_classes_are_split_in_half(make_folder):
    splits = open_data(make_folder(FOUR))
    assert sorted((*splits.train.classes, *splits.query.classes)) == sorted(FOUR)
    assert len(splits.train.classes) == len(splits.query.classes) == 2
    assert len(splits.train) == len(splits.query) == 6
    for listing in (splits.train, splits.query):
        for i in range(len(listing)):
            assert listing.path(i).is_file()
            assert listing.names[i].split("/")[0] == listing.classes[listing.labels[i]]


def test_split_rule_can_be_overridden(make_folder):
    splits = open_data(make_folder(FOUR), unseen_classes=("ants", "dogs"))
    assert splits.query.classes == ("ants", "dogs")


def test_non_image_files_are_ignored(make_folder):
    root = make_folder(FOUR)
    deep = root / "ants" / "more" / "still more"
    deep.mkdir(parents=True)
    Image.new("RGB", (4, 4)).save(deep / "nested.JPG", format="JPEG")
    (root / "ants" / ".hidden.jpg").write_bytes(b"x")
    (root / "ants" / "notes.txt").write_text("x")
    (root / "ants" / "phone.HEIC").write_bytes(b"x")
    (root / ".thumbnails").mkdir()
    (root / ".thumbnails" / "a.jpg").write_bytes(b"x")
    (root / "ants" / "@eaDir").mkdir()
    (root / "ants" / "@eaDir" / "thumb.jpg").write_bytes(b"x")
    (root / "loose.jpg").write_bytes(b"x")
    (root / "empty").mkdir()
    splits = open_data(root)
    names = {*splits.train.names, *splits.query.names}
    assert len(names) == 13
    assert "ants/more/still more/nested.JPG" in names
    assert "empty" not in (*splits.train.classes, *splits.query.classes)
    assert splits.notes == (
        "Ignored (folders without images): empty.",
        "Ignored (images of no class): loose.jpg.",
        "Ignored (not image files): 1 .txt, 1 .heic.",
    )


def test_symlinks_are_followed_without_cycles(make_folder, tmp_path):
    root = make_folder(FOUR)
    elsewhere = make_folder({"x": 2}, root=tmp_path / "elsewhere")
    os.symlink(elsewhere / "x", root / "elks")
    os.symlink(root, root / "ants" / "all over again")
    splits = open_data(root)
    assert len(splits.train) + len(splits.query) == 14


def test_self_referencing_symlink_is_unreadable(make_folder):
    root = make_folder(FOUR)
    os.symlink("round.png", root / "ants" / "round.png")
    os.symlink("circle", root / "circle")
    splits = open_data(root)
    with pytest.raises(UnreadableImages, match=r"1 of 13 .* \(too many levels of symbolic links\)"):
        check_splits(splits)


def test_train_and_test_folders_are_recognized(make_folder):
    root = make_folder({"train/ants": 2, "train/bees": 3, "test/cats": 2, "test/dogs": 2})
    splits = open_data(root)
    assert splits.train.classes == ("ants", "bees")
    assert splits.query.classes == ("cats", "dogs")
    assert splits.train.names[0] == "train/ants/0.png"
    assert splits.train.path(0).is_file()
    assert splits.remarks() == ()


def test_query_gallery_and_validation_folders(make_folder):
    root = make_folder(
        {"train/ants": 2, "train/bees": 2, "validation/elks": 2, "validation/foxes": 2}
        | {"query/cats": 1, "gallery/cats": 2, "gallery/dogs": 2, "query/dogs": 1}
        | {"query/gnus": 1, "gallery/hens": 1}
    )
    splits = open_data(root)
    assert splits.query.classes == splits.gallery.classes == ("cats", "dogs", "gnus", "hens")
    assert splits.query.labels.tolist() == [0, 1, 2]
    assert splits.gallery.labels.tolist() == [0, 0, 1, 1, 3]
    assert splits.validation.classes == ("elks", "foxes")
    assert splits.without_positive() == 1


def test_split_rule_treats_train_and_test_as_classes(make_folder):
    root = make_folder({"train/a": 2, "test/b": 2})
    assert open_data(root, seed=0).train.classes == ("test", "train")


def test_class_named_train_among_others_is_a_class(make_folder):
    splits = open_data(make_folder({"train": 2, "bus": 2, "tram": 2, "test": 2}))
    assert sorted((*splits.train.classes, *splits.query.classes)) == [
        "bus",
        "test",
        "train",
        "tram",
    ]


def test_val_is_an_alias_of_validation(make_folder):
    parts = {"train": 2, "val": 3, "test": 2}
    root = make_folder({f"{part}/{part}{i}": n for part, n in parts.items() for i in range(2)})
    splits = open_data(root)
    assert splits.train.classes == ("train0", "train1")
    assert splits.validation.names[0] == "val/val0/0.png"


@pytest.mark.parametrize(
    "parts",
    [("train", "val"), ("train", "test", "extra"), ("train", "test", "val", "validation")],
)
def test_inconsistent_split_folders_are_rejected(make_folder, parts):
    root = make_folder({f"{part}/{name}": 2 for part in parts for name in "ab"})
    told = "validation), got " + ", ".join(sorted(parts))
    with pytest.raises(ValueError, match=re.escape(told) + ".* use --set split.train=DIR"):
        open_data(root)
    with pytest.raises(ValueError, match=re.escape(told) + ".* give the sub-folder to test on"):
        open_test_data(root)


def test_split_folders_by_name(make_folder):
    root = make_folder({"old/ants": 2, "old/bees": 2, "new/cats": 2, "new/dogs": 2})
    splits = open_data(root, train="old", test="new")
    assert splits.train.names[0] == "old/ants/0.png"
    with pytest.raises(ValueError, match="train and test"):
        open_data(root, train="old")
    with pytest.raises(ValueError, match="must lie under"):
        open_data(root / "old", train=".", test="../new")


def test_open_data_writes_nothing(make_folder):
    root = make_folder(FOUR)
    before = sorted(root.rglob("*"))
    open_data(root)
    assert sorted(root.rglob("*")) == before


def test_unusual_class_names_are_accepted(make_folder):
    splits = open_data(make_folder({"a b": 2, "c,d": 2, "ü\n": 2, "'quote": 2}))
    assert len(splits.train) + len(splits.query) == 8
    assert all(splits.train.path(i).is_file() for i in range(4))


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({}, "got nothing in"),
        ({"ants": 5}, "at least 2 seen classes, got 1"),
        ({"ants": 1, "bees": 1, "cats": 1, "dogs": 1}, "none of the 2 test images"),
    ],
)
def test_unusable_folders_are_rejected(make_folder, tmp_path, classes, words):
    (tmp_path / "pictures").mkdir()
    with pytest.raises(ValueError, match=words) as caught:
        open_data(make_folder(classes))
    assert "\n" not in str(caught.value)


def test_folders_with_loose_or_unsupported_files_are_rejected(tmp_path):
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "1.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="images directly in"):
        open_data(loose)
    (tmp_path / "phone" / "shoes").mkdir(parents=True)
    (tmp_path / "phone" / "shoes" / "1.heic").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"only other files .* \(1 \.heic\)"):
        open_data(tmp_path / "phone")


def test_single_image_classes_are_reported(make_folder):
    root = make_folder({"ants": 1, "bees": 3, "cats": 3, "dogs": 3, "elks": 3})
    splits = open_data(root, unseen_classes=("ants", "bees", "cats"))
    assert splits.remarks() == (
        "1 of 7 test images have no other image of their class to find "
        "and are excluded from the averages.",
    )


TABLE_FOUR = {"ants": 2, "bees": 2, "cats": 2, "dogs": 2}


@pytest.fixture
def root(make_folder):
    return make_folder(TABLE_FOUR)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def rows(root):
    found = sorted(root.rglob("*.png"))
    return [f"{p.relative_to(root).as_posix()},{p.parent.name}" for p in found]


def test_table_with_path_and_label(root):
    splits = open_data(write(root / "all.csv", "path,label", *rows(root)))
    assert sorted((*splits.train.classes, *splits.query.classes)) == sorted(TABLE_FOUR)
    assert all(splits.train.path(i).is_file() for i in range(len(splits.train)))


def test_table_labels_override_folder_names(root):
    lines = [f"{row.split(',')[0]},{i % 4}" for i, row in enumerate(rows(root))]
    splits = open_data(write(root / "all.csv", "path,label", *lines), unseen_classes=("0", "1"))
    assert splits.query.classes == ("0", "1")


def test_table_with_split_column(root):
    part = {"ants": "train", "bees": "Train", "cats": "test", "dogs": " test"}
    lines = [f"{row},{part[row.split(',')[1]]}" for row in rows(root)]
    splits = open_data(write(root / "all.csv", "path,label,split", *lines))
    assert splits.train.classes == ("ants", "bees")
    assert splits.query.classes == ("cats", "dogs")


def test_table_with_query_gallery_and_validation(root):
    lines = [
        *("ants/0.png,a,train", "bees/0.png,b,train", "ants/1.png,v,validation"),
        *("cats/0.png,c,query", "cats/1.png,c,gallery", "dogs/0.png,d,gallery"),
    ]
    splits = open_data(write(root / "all.csv", "path,label,split", *lines))
    assert splits.query.classes == splits.gallery.classes == ("c", "d")
    assert len(splits.gallery) == 2
    assert splits.validation.classes == ("v",)


def test_table_with_bom_quotes_blank_lines_and_absolute_paths(root, tmp_path):
    lines = rows(root)
    lines[0] = f'"{root / lines[0].split(",")[0]}","ants"'
    text = "\ufeffPath, Label\r\n" + "\r\n\r\n".join(lines)
    (tmp_path / "elsewhere.csv").write_text(text, encoding="utf-8")
    splits = open_data(tmp_path / "elsewhere.csv", root=root)
    assert len(splits.train) + len(splits.query) == 8
    assert splits.train.root == root


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([""], "path,label"),
        (["file,class", "a,b"], "file,class"),
        (["path,label"], "none"),
        (["path,label", "a.jpg"], "line 2 .* 2 columns"),
        (["path,label", "a.jpg,"], "line 2 .* label"),
        (["path,label", "../a.jpg,x"], "line 2 .* '../a.jpg'"),
        (["path,label", "/etc/a.jpg,x"], "line 2 .* '/etc/a.jpg'"),
        (["path,label", "a/../../a.jpg,x"], "line 2 .* 'a/../../a.jpg'"),
        (["path,label", ",x"], "line 2 .* ''"),
        (["path,label", "a.jpg,x", "./a.jpg,y"], "line 3 .* a.jpg again"),
        (["path,label,split", "a.jpg,x,both"], "line 2 .* 'both'"),
        (["path,label,split", "a.jpg,x,train"], "got train"),
    ],
)
def test_invalid_input_is_rejected(root, lines, words):
    with pytest.raises(ValueError, match=words) as caught:
        open_data(write(root / "all.csv", *lines))
    assert "\n" not in str(caught.value)


def test_path_outside_root_suggests_an_available_fix(root):
    table = write(root / "all.csv", "path,label", "../a.jpg,x")
    with pytest.raises(ValueError, match=r"--set split\.root=DIR"):
        open_data(table)
    with pytest.raises(ValueError, match="put the CSV") as caught:
        open_test_data(table)
    assert "--set" not in str(caught.value)


def test_invalid_tables_are_rejected(root):
    with pytest.raises(ValueError, match="no folder or CSV"):
        open_data(root / "missing.csv")
    (root / "all.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(ValueError, match="all.csv.*save the file as UTF-8"):
        open_data(root / "all.csv")
    write(root / "all.csv", "path;label", "a;x", "b;y")
    with pytest.raises(ValueError, match="got path;label: separate columns with commas"):
        open_data(root / "all.csv")
    write(root / "all.csv", "path,label,split", "a,x,train", "b,y,train", "c,z,test")
    with pytest.raises(ValueError, match="column split"):
        open_data(root / "all.csv", seed=0)


def test_missing_root_is_rejected(root):
    table = write(root / "table.csv", "path,label", *rows(root))
    with pytest.raises(ValueError, match=r"elsewhere.*split\.root"):
        open_data(table, root=root / "elsewhere")


@pytest.mark.parametrize("names", [("Train", "Test"), ("TRAIN", "Query", "gallery", "Val")])
def test_split_names_are_case_insensitive(make_folder, names):
    classes = {"a": 2, "b": 2}
    root = make_folder({f"{name}/{label}": n for name in names for label, n in classes.items()})
    splits = open_data(root)
    assert splits.train.classes == splits.query.classes == ("a", "b")
    assert (splits.gallery is None) == (len(names) == 2)
    assert (splits.validation is None) == (len(names) == 2)
    query, gallery = open_test_data(root)
    assert query.names == splits.query.names
    assert (gallery is None) == (len(names) == 2)


def test_split_names_differing_only_in_case_are_rejected(make_folder):
    root = make_folder({"train/a": 2, "Train/b": 2, "test/c": 2})
    for open_it in (open_data, open_test_data):
        with pytest.raises(ValueError, match="Train, test, train"):
            open_it(root)


def test_query_and_gallery_folders_need_no_train_for_testing(make_folder):
    root = make_folder({"query/a": 2, "query/b": 1, "gallery/a": 1, "gallery/c": 2})
    query, gallery = open_test_data(root)
    assert query.classes == gallery.classes == ("a", "b", "c")
    assert query.labels.tolist() == [0, 0, 1]
    assert gallery.labels.tolist() == [0, 2, 2]
    with pytest.raises(ValueError, match="train"):
        open_data(root)
    (root / "query" / "loose.png").write_bytes((root / "query" / "b" / "0.png").read_bytes())
    assert len(open_test_data(root)[0]) == 3


def test_query_and_gallery_without_classes_are_rejected(make_folder):
    with pytest.raises(ValueError, match="images directly in"):
        open_test_data(make_folder({"query": 2, "gallery": 2}))


def test_single_test_folder(make_folder, tmp_path):
    query, gallery = open_test_data(make_folder({"test/a": 2, "test/b": 2}))
    assert (query.classes, gallery) == (("a", "b"), None)
    (tmp_path / "one" / "test").mkdir(parents=True)
    source = next(path for path in tmp_path.rglob("0.png"))
    (tmp_path / "one" / "test" / "0.png").write_bytes(source.read_bytes())
    assert open_test_data(tmp_path / "one")[0].classes == ("test",)


def test_query_and_gallery_table_needs_no_train_for_testing(make_folder):
    root = make_folder({"a": 2, "b": 2})
    lines = ["path,label,split", "a/0.png,a,query", "b/0.png,b,gallery", "a/1.png,a,gallery"]
    (root / "all.csv").write_text("\n".join(lines))
    query, gallery = open_test_data(root / "all.csv")
    assert (len(query), len(gallery)) == (1, 2)
    (root / "all.csv").write_text("\n".join(lines[:2]))
    with pytest.raises(ValueError, match="query and gallery"):
        open_test_data(root / "all.csv")
