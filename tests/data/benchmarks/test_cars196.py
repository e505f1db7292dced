import numpy as np
import pytest
import scipy.io

from benchmark_imitations import (
    CARS,
    cars196_annotated,
    cars196_folders,
    cars196_halves,
    save_picture,
    struct_array,
)
from proxysynth.data import open_data


def check_labels(splits):
    assert splits.train.classes == tuple(CARS[:2])
    assert splits.test.classes == tuple(CARS[2:])
    for listing in (splits.train, splits.test):
        assert all(listing.path(i).is_file() for i in range(len(listing)))


@pytest.mark.parametrize("compressed", [False, True])
def test_one_label_file(tmp_path, monkeypatch, compressed):
    root = cars196_annotated(tmp_path, monkeypatch, compressed)
    splits = open_data(f"cars196:{root}")
    check_labels(splits)
    assert splits.train.names == tuple(f"car_ims/{i:06d}.jpg" for i in (1, 3, 6, 7))
    assert splits.train.labels.tolist() == [0, 1, 0, 1]
    assert splits.test.names == tuple(f"car_ims/{i:06d}.jpg" for i in (2, 4, 5, 8, 9))
    assert splits.test.labels.tolist() == [1, 0, 0, 1, 1]


def test_two_halves_are_joined(tmp_path, monkeypatch):
    splits = open_data(f"cars196:{cars196_halves(tmp_path, monkeypatch)}")
    check_labels(splits)
    assert splits.train.names == (
        "cars_train/00001.jpg",
        "cars_train/00002.jpg",
        "cars_test/00003.jpg",
        "cars_test/00004.jpg",
        "cars_test/00005.jpg",
    )
    assert splits.train.labels.tolist() == [0, 1, 1, 0, 0]


def test_halves_one_folder_too_deep_and_a_copied_label_file(tmp_path, monkeypatch):
    root = cars196_halves(tmp_path / "stanford_cars", monkeypatch)
    for half in ("cars_train", "cars_test"):
        (root / half).rename(root / "aside")
        (root / half).mkdir()
        (root / "aside").rename(root / half / half)
    labels = root / "cars_test_annos_withlabels.mat"
    labels.rename(root / "cars_test_annos_withlabels (1).mat")
    splits = open_data(f"cars196:{tmp_path}")
    check_labels(splits)
    assert splits.train.names[0] == "cars_train/cars_train/00001.jpg"


@pytest.mark.parametrize("above", [("train", "test"), ("",), ("train",)])
def test_a_folder_per_class(tmp_path, monkeypatch, above):
    root = cars196_folders(tmp_path, monkeypatch, above)
    splits = open_data(f"cars196:{root}")
    check_labels(splits)
    for listing in (splits.train, splits.test):
        for name, label in zip(listing.names, listing.labels, strict=True):
            assert name.split("/")[-2] == listing.classes[label]
    assert splits.train.counts().tolist() == [2 * len(above)] * 2


def test_folders_in_the_archive_that_goes_around(tmp_path, monkeypatch):
    root = cars196_folders(tmp_path / "car_data" / "car_data", monkeypatch)
    assert open_data(f"cars196:{tmp_path}").train.root == root


@pytest.mark.parametrize(
    ("classes", "seen"),
    [
        (["10", "2", "3", "1"], ("1", "2")),
        (["0", "1", "2", "3"], ("0", "1")),
        (["003.Crow Car", "001_Auk", "002 Booby", "004"], ("001_Auk", "002 Booby")),
        (["smart fortwo", "audi TT", "Eagle Talon", "ferrari FF"], ("Eagle Talon", "audi TT")),
    ],
)
def test_class_folders_by_number_or_by_name(tmp_path, monkeypatch, classes, seen):
    root = cars196_folders(tmp_path, monkeypatch, classes=classes)
    splits = open_data(f"cars196:{root}")
    assert splits.train.classes == seen
    assert set(splits.test.classes) == set(classes) - set(seen)


def test_an_incomplete_copy_keeps_the_split(tmp_path, monkeypatch):
    """A class that is missing does not move the border between seen and unseen."""
    root = cars196_folders(tmp_path, monkeypatch, classes=[*CARS, "Audi S4 Sedan 2012"])
    for path in root.rglob("AM General*/*.jpg"):
        path.unlink()
    splits = open_data(f"cars196:{root}", incomplete=True)
    assert splits.train.classes == ("Audi S4 Sedan 2012", "Eagle Talon Hatchback 1998")
    assert splits.test.classes == tuple(CARS[2:])


def test_missing_label_files(tmp_path, monkeypatch):
    root = cars196_halves(tmp_path / "halves", monkeypatch)
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(ValueError, match=r"cars_train but no cars_test_annos_withlabels.mat"):
        open_data(f"cars196:{root}")
    (root / "devkit" / "cars_train_annos.mat").unlink()
    with pytest.raises(ValueError, match=r"cars_train but no devkit/cars_train_annos.mat"):
        open_data(f"cars196:{root}")
    root = cars196_annotated(tmp_path / "one", monkeypatch)
    (root / "cars_annos.mat").unlink()
    with pytest.raises(ValueError, match=r"car_ims but no cars_annos.mat"):
        open_data(f"cars196:{root}")


def test_bad_label_files(tmp_path, monkeypatch):
    root = cars196_annotated(tmp_path, monkeypatch)
    file = root / "cars_annos.mat"
    whole = file.read_bytes()
    for data in (whole[:-100], b"<html>404</html>".ljust(200), b""):
        file.write_bytes(data)
        with pytest.raises(ValueError, match=r"cars_annos.mat is no readable MATLAB 5") as caught:
            open_data(f"cars196:{root}")
        assert "\n" not in str(caught.value)
    for held, words in (
        ({"y": np.arange(3)}, "must hold annotations, got y"),
        ({"annotations": np.arange(3)}, "must hold annotations"),
        ({"annotations": struct_array([{"fname": "a.jpg", "class": 1}])}, "annotation 1 of"),
        (
            {"annotations": struct_array([{"relative_im_path": "../a.jpg", "class": 1}])},
            "must name a picture under its own folder",
        ),
    ):
        scipy.io.savemat(file, held)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"cars196:{root}")
        assert str(file) in str(caught.value)


def test_a_folder_without_cars(tmp_path):
    save_picture(tmp_path / "loose.jpg")
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError) as caught:
            open_data(f"cars196:{root}")
        assert "CARS196" in str(caught.value)
        assert "\n" not in str(caught.value)
