import os
import re

import pytest
from PIL import Image

from proxysynth.data import BadPictures, ClassSplit, check_splits, open_folder
from proxysynth.data.folder import parts_of_folder, whole_folder

FOUR = {"ants": 3, "bees": 3, "cats": 3, "dogs": 3}


def test_classes_are_split_in_half(make_folder):
    splits = open_folder(make_folder(FOUR))
    assert sorted((*splits.train.classes, *splits.query.classes)) == sorted(FOUR)
    assert len(splits.train.classes) == len(splits.query.classes) == 2
    assert len(splits.train) == len(splits.test) == 6
    for listing in (splits.train, splits.query):
        for i in range(len(listing)):
            assert listing.path(i).is_file()
            assert listing.names[i].split("/")[0] == listing.classes[listing.labels[i]]


def test_the_rule_can_be_changed(make_folder):
    splits = open_folder(make_folder(FOUR), ClassSplit(unseen_classes=("ants", "dogs")))
    assert splits.query.classes == ("ants", "dogs")


def test_what_is_not_a_picture_is_left_out(make_folder):
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
    splits = open_folder(root)
    names = {*splits.train.names, *splits.query.names}
    assert len(names) == 13
    assert "ants/more/still more/nested.JPG" in names
    assert "empty" not in (*splits.train.classes, *splits.query.classes)
    assert splits.notes == (
        "1 folders hold no picture and are left out: empty.",
        "2 files are no pictures by their name: 1 .txt, 1 .heic.",
    )


def test_links_are_followed_but_not_in_circles(make_folder, tmp_path):
    root = make_folder(FOUR)
    elsewhere = make_folder({"x": 2}, root=tmp_path / "elsewhere")
    os.symlink(elsewhere / "x", root / "elks")
    os.symlink(root, root / "ants" / "all over again")
    splits = open_folder(root)
    assert len(splits.train) + len(splits.query) == 14


def test_a_link_to_itself_is_a_picture_that_cannot_be_read(make_folder):
    root = make_folder(FOUR)
    os.symlink("round.png", root / "ants" / "round.png")
    os.symlink("circle", root / "circle")
    splits = open_folder(root)
    with pytest.raises(BadPictures, match=r"1 of 13 .* \(too many levels of symbolic links\)"):
        check_splits(splits)


def test_train_and_test_folders_are_recognised(make_folder):
    root = make_folder({"train/ants": 2, "train/bees": 3, "test/cats": 2, "test/dogs": 2})
    splits = open_folder(root)
    assert splits.train.classes == ("ants", "bees")
    assert splits.test.classes == ("cats", "dogs")
    assert splits.train.names[0] == "train/ants/0.png"
    assert splits.train.path(0).is_file()
    assert splits.remarks() == ()


def test_query_gallery_and_validation_folders(make_folder):
    root = make_folder(
        {"train/ants": 2, "train/bees": 2, "validation/elks": 2, "validation/foxes": 2}
        | {"query/cats": 1, "gallery/cats": 2, "gallery/dogs": 2, "query/dogs": 1}
        | {"query/gnus": 1, "gallery/hens": 1}
    )
    splits = open_folder(root)
    assert splits.query.classes == splits.gallery.classes == ("cats", "dogs", "gnus", "hens")
    assert splits.query.labels.tolist() == [0, 1, 2]
    assert splits.gallery.labels.tolist() == [0, 0, 1, 1, 3]
    assert splits.validation.classes == ("elks", "foxes")
    assert splits.without_positive() == 1


def test_a_rule_makes_train_and_test_plain_classes(make_folder):
    root = make_folder({"train/a": 2, "test/b": 2})
    with pytest.raises(ValueError, match=r"classes found \(2\)"):
        open_folder(root, ClassSplit())


def test_a_class_called_train_among_others_is_a_class(make_folder):
    splits = open_folder(make_folder({"train": 2, "bus": 2, "tram": 2, "test": 2}))
    assert sorted((*splits.train.classes, *splits.query.classes)) == [
        "bus",
        "test",
        "train",
        "tram",
    ]


def test_validation_may_be_called_val(make_folder):
    parts = {"train": 2, "val": 3, "test": 2}
    root = make_folder({f"{part}/{part}{i}": n for part, n in parts.items() for i in range(2)})
    splits = open_folder(root)
    assert splits.train.classes == ("train0", "train1")
    assert splits.validation.names[0] == "val/val0/0.png"


@pytest.mark.parametrize(
    "parts",
    [("train", "val"), ("train", "test", "extra"), ("train", "test", "val", "validation")],
)
def test_parts_that_do_not_fit_together_are_no_classes(make_folder, parts):
    root = make_folder({f"{part}/{name}": 2 for part in parts for name in "ab"})
    told = "(validation if wanted), got " + ", ".join(sorted(parts))
    with pytest.raises(ValueError, match=re.escape(told) + ".* use --set split.train=DIR"):
        open_folder(root)
    with pytest.raises(ValueError, match=re.escape(told) + ".* give the sub-folder to test on"):
        whole_folder(root)


def test_parts_by_name(make_folder):
    root = make_folder({"old/ants": 2, "old/bees": 2, "new/cats": 2, "new/dogs": 2})
    splits = parts_of_folder(root, {"train": "old", "test": "new"})
    assert splits.train.names[0] == "old/ants/0.png"
    with pytest.raises(ValueError, match="train and test, or for train, query and gallery"):
        parts_of_folder(root, {"train": "old"})
    with pytest.raises(ValueError, match="must lie under"):
        parts_of_folder(root / "old", {"train": ".", "test": "../new"})


def test_nothing_is_written(make_folder):
    root = make_folder(FOUR)
    before = sorted(root.rglob("*"))
    open_folder(root)
    assert sorted(root.rglob("*")) == before


def test_odd_names(make_folder):
    splits = open_folder(make_folder({"a b": 2, "c,d": 2, "ü\n": 2, "'quote": 2}))
    assert len(splits.train) + len(splits.query) == 8
    assert all(splits.train.path(i).is_file() for i in range(4))


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ({}, "got nothing in"),
        ({"ants": 5}, r"classes found \(1\), 1 would be trained on and 0"),
        ({"ants": 5, "bees": 5}, r"classes found \(2\), 1 would be trained on and 1"),
        ({"ants": 1, "bees": 1, "cats": 1, "dogs": 1}, "none of the 2 test pictures"),
    ],
)
def test_hopeless_folders(make_folder, tmp_path, classes, words):
    (tmp_path / "pictures").mkdir()
    with pytest.raises(ValueError, match=words) as caught:
        open_folder(make_folder(classes))
    assert "\n" not in str(caught.value)


def test_other_faults(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        open_folder(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="is a file"):
        open_folder(tmp_path / "file")
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "1.jpg").write_bytes(b"x")
    with pytest.raises(ValueError, match="got 1 pictures directly in"):
        open_folder(loose)
    (tmp_path / "phone" / "shoes").mkdir(parents=True)
    (tmp_path / "phone" / "shoes" / "1.heic").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"only other files .* \(1 \.heic\)"):
        open_folder(tmp_path / "phone")


def test_a_few_classes_of_one_picture_are_remarked(make_folder):
    root = make_folder({"ants": 1, "bees": 3, "cats": 3, "dogs": 3, "elks": 3})
    splits = open_folder(root, ClassSplit(unseen_classes=("ants", "bees", "cats")))
    assert splits.remarks() == (
        "1 of 7 test pictures have no other of their class to find "
        "and are left out of the averages.",
    )
