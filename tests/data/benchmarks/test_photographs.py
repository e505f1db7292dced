import os

import numpy as np
import pytest
import scipy.io
import torch

from benchmark_imitations import (
    CARS,
    cars196_annotated,
    cars196_folders,
    cars196_halves,
    cub200,
    inshop,
    save_picture,
    sop,
    struct_array,
    tiny_imagenet,
)
from protocol_transforms import CLASSIFICATION
from proxysynth.data import CATALOG, PIXELS, Loader, check_benchmark, open_data, open_image

REAL = os.environ.get("PROXYSYNTH_CUB200")


def test_first_classes_are_for_training(tmp_path, monkeypatch):
    splits = open_data(f"cub200:{cub200(tmp_path, monkeypatch)}")
    assert splits.name == "cub200"
    assert splits.train.classes == ("001.Auk", "002.Booby")
    assert splits.query.classes == ("003.Crow", "004.Dove")
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert splits.query.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert splits.train.names[0] == "images/001.Auk/0.jpg"
    for listing in (splits.train, splits.query):
        for i, name in enumerate(listing.names):
            assert listing.classes[listing.labels[i]] == name.split("/")[1]
            assert open_image(listing.path(i)).size == (48, 36)
    assert splits.remarks() == ()


def test_parent_folder_is_accepted(tmp_path, monkeypatch):
    root = cub200(tmp_path / "CUB_200_2011", monkeypatch)
    assert len(open_data(f"cub200:{tmp_path}").train) == 5
    assert open_data(f"cub200:{tmp_path}").train.root == root


def test_inconsistent_labels_are_rejected(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    labels = root / "image_class_labels.txt"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match="image_class_labels.txt.*image 1"):
        open_data(f"cub200:{root}")
    labels.write_text("1 first\n")
    with pytest.raises(ValueError, match=r"line 1 of .*image_class_labels.txt must"):
        open_data(f"cub200:{root}")
    labels.unlink()
    with pytest.raises(ValueError, match="image_class_labels.txt"):
        open_data(f"cub200:{root}")


@pytest.mark.skipif(not REAL, reason="PROXYSYNTH_CUB200 does not name a copy of the photographs")
def test_real_cub200_split():
    splits = open_data(f"cub200:{REAL}")
    assert (len(splits.train), len(splits.query)) == (5864, 5924)
    assert splits.train.classes[0] == "001.Black_footed_Albatross"
    assert splits.train.classes[-1] == "100.Brown_Pelican"
    assert splits.query.classes[0] == "101.White_Pelican"
    assert splits.query.classes[-1] == "200.Common_Yellowthroat"
    assert min(splits.train.counts()) >= 41
    assert max(splits.query.counts()) <= 60
    draw = np.random.default_rng(0)
    for i in draw.integers(0, 5864, 20):
        assert min(open_image(splits.train.path(int(i))).size) > 50


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="PROXYSYNTH_CUB200 does not name a copy of the photographs")
def test_every_real_cub200_image_is_readable():
    report = check_benchmark("cub200", REAL, workers=2)
    assert report.complete
    assert report.accepted
    assert report.pictures["train"] == (5864, CATALOG["cub200"].pictures["train"])
    assert report.extra == ()


def check_labels(splits):
    assert splits.train.classes == tuple(CARS[:2])
    assert splits.query.classes == tuple(CARS[2:])
    for listing in (splits.train, splits.query):
        assert all(listing.path(i).is_file() for i in range(len(listing)))


@pytest.mark.parametrize("compressed", [False, True])
def test_cars196_with_one_label_file(tmp_path, monkeypatch, compressed):
    root = cars196_annotated(tmp_path, monkeypatch, compressed)
    splits = open_data(f"cars196:{root}")
    check_labels(splits)
    assert splits.train.names == tuple(f"car_ims/{i:06d}.jpg" for i in (1, 3, 6, 7))
    assert splits.train.labels.tolist() == [0, 1, 0, 1]
    assert splits.query.names == tuple(f"car_ims/{i:06d}.jpg" for i in (2, 4, 5, 8, 9))
    assert splits.query.labels.tolist() == [1, 0, 0, 1, 1]


def test_cars196_halves_are_joined(tmp_path, monkeypatch):
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


def test_cars196_nested_halves_and_copied_label_file(tmp_path, monkeypatch):
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
def test_cars196_with_one_folder_per_class(tmp_path, monkeypatch, above):
    root = cars196_folders(tmp_path, monkeypatch, above)
    splits = open_data(f"cars196:{root}")
    check_labels(splits)
    for listing in (splits.train, splits.query):
        for name, label in zip(listing.names, listing.labels, strict=True):
            assert name.split("/")[-2] == listing.classes[label]
    assert splits.train.counts().tolist() == [2 * len(above)] * 2


def test_cars196_class_folders_of_unofficial_archive(tmp_path, monkeypatch):
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
def test_cars196_class_folders_by_number_or_name(tmp_path, monkeypatch, classes, seen):
    root = cars196_folders(tmp_path, monkeypatch, classes=classes)
    splits = open_data(f"cars196:{root}")
    assert splits.train.classes == seen
    assert set(splits.query.classes) == set(classes) - set(seen)


def test_incomplete_copy_keeps_the_split(tmp_path, monkeypatch):
    """A class that is missing does not move the border between seen and unseen."""
    root = cars196_folders(tmp_path, monkeypatch, classes=[*CARS, "Audi S4 Sedan 2012"])
    for path in root.rglob("AM General*/*.jpg"):
        path.unlink()
    splits = open_data(f"cars196:{root}", incomplete=True)
    assert splits.train.classes == ("Audi S4 Sedan 2012", "Eagle Talon Hatchback 1998")
    assert splits.query.classes == tuple(CARS[2:])


def test_missing_label_files_are_reported(tmp_path, monkeypatch):
    root = cars196_halves(tmp_path / "halves", monkeypatch)
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(ValueError, match="cars_test_annos_withlabels.mat"):
        open_data(f"cars196:{root}")
    (root / "devkit" / "cars_train_annos.mat").unlink()
    with pytest.raises(ValueError, match=r"devkit/cars_train_annos\.mat"):
        open_data(f"cars196:{root}")
    root = cars196_annotated(tmp_path / "one", monkeypatch)
    (root / "cars_annos.mat").unlink()
    with pytest.raises(ValueError, match=r"no cars_annos\.mat"):
        open_data(f"cars196:{root}")


def test_invalid_cars196_label_files_are_rejected(tmp_path, monkeypatch):
    root = cars196_annotated(tmp_path, monkeypatch)
    file = root / "cars_annos.mat"
    whole = file.read_bytes()
    for data in (whole[:-100], b"<html>404</html>".ljust(200), b""):
        file.write_bytes(data)
        with pytest.raises(ValueError, match="(HTML|cannot be read)") as caught:
            open_data(f"cars196:{root}")
        assert "\n" not in str(caught.value)
    for held, words in (
        ({"y": np.arange(3)}, "must hold annotations"),
        ({"annotations": np.arange(3)}, "must hold annotations"),
        ({"annotations": struct_array([{"fname": "a.jpg", "class": 1}])}, "annotation 1 of"),
        (
            {"annotations": struct_array([{"relative_im_path": "../a.jpg", "class": 1}])},
            "must name an image under its own folder",
        ),
    ):
        scipy.io.savemat(file, held)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"cars196:{root}")
        assert str(file) in str(caught.value)


def test_folder_without_cars196_is_rejected(tmp_path):
    save_picture(tmp_path / "loose.jpg")
    for root in (tmp_path, tmp_path / "none"):
        with pytest.raises(ValueError) as caught:
            open_data(f"cars196:{root}")
        assert "CARS196" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_sop_label_files_define_the_split(tmp_path, monkeypatch):
    splits = open_data(f"sop:{sop(tmp_path / 'Stanford_Online_Products', monkeypatch).parent}")
    assert splits.train.classes == ("1", "2")
    assert splits.query.classes == ("9", "11")  # by number, not by text
    assert splits.train.labels.tolist() == [0, 0, 1]
    assert splits.query.labels.tolist() == [1, 1, 0, 0, 0]
    assert splits.train.names[0] == "bicycle_final/1_1.JPG"
    assert splits.query.names[-1] == "chair_final/9_8.JPG"
    assert all(splits.query.path(i).is_file() for i in range(5))


def test_invalid_sop_label_files_are_rejected(tmp_path, monkeypatch):
    root = sop(tmp_path, monkeypatch)
    file = root / "Ebay_test.txt"
    whole = file.read_text()
    for text, words in (
        (whole.replace("4 11", "4 x"), "line 2 of .*Ebay_test.txt must have an integer"),
        (whole + "9 9 1", "line 7 of .*Ebay_test.txt must have image_id, class_id"),
        ("<html>Not found</html>", "Ebay_test.txt .*must start with a line of image_id"),
        (whole.replace("chair_final", "../../chair"), "must name an image under its own folder"),
        (whole + "9 9 1 bicycle_final/1_1.JPG\n", "names bicycle_final/1_1.JPG 2 times"),
    ):
        file.write_text(text)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"sop:{root}")
        assert "\n" not in str(caught.value)
    file.unlink()
    with pytest.raises(ValueError, match="Ebay_test.txt"):
        open_data(f"sop:{root}")


@pytest.mark.parametrize(("labels", "above"), [("", ""), ("Eval", "Img"), ("Eval", "")])
def test_query_and_gallery(tmp_path, monkeypatch, labels, above):
    splits = open_data(f"inshop:{inshop(tmp_path, monkeypatch, labels, above)}")
    assert splits.train.classes == ("id_00000002", "id_00000003")
    assert splits.train.labels.tolist() == [0, 0, 1]
    assert splits.gallery is not None
    assert (
        splits.query.classes == splits.gallery.classes == tuple(f"id_0000000{i}" for i in (5, 7, 9))
    )
    assert splits.query.labels.tolist() == [1, 0, 2]
    assert splits.gallery.labels.tolist() == [1, 0, 0, 2]
    assert splits.without_positive() == 0
    start = f"{above}/img/" if above else "img/"
    for listing in (splits.train, splits.query, splits.gallery):
        for i, name in enumerate(listing.names):
            assert name.startswith(start)
            assert listing.classes[listing.labels[i]] in name
            assert listing.path(i).is_file()


def test_missing_gallery_image_is_reported(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch)
    gone = "img/MEN/Denim/id_00000007/01_2_side.jpg"
    (root / gone).unlink()
    with pytest.raises(ValueError, match=f"lacks .*{gone}"):
        open_data(f"inshop:{root}")
    splits = open_data(f"inshop:{root}", incomplete=True)
    assert splits.gallery is not None
    assert len(splits.gallery) == 3
    assert splits.query.classes == splits.gallery.classes
    assert splits.without_positive() == 1


def test_invalid_inshop_label_files_are_rejected(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch)
    file = root / "list_eval_partition.txt"
    whole = file.read_text()
    file.write_text(whole.replace("gallery", "galery", 1))
    with pytest.raises(ValueError, match="line 7 of"):
        open_data(f"inshop:{root}")
    file.write_text(whole.partition("\n")[0])
    with pytest.raises(ValueError, match="image_name"):
        open_data(f"inshop:{root}")


def test_packed_images_are_reported(tmp_path, monkeypatch):
    root = inshop(tmp_path, monkeypatch, "Eval", "Img")
    (root / "Img" / "img").rename(tmp_path / "elsewhere")
    (root / "Img" / "img.zip").write_bytes(b"PK")
    with pytest.raises(ValueError, match="unpack .*img.zip first") as caught:
        open_data(f"inshop:{root}")
    assert "\n" not in str(caught.value)


CLASSES = ("n02124075", "n01443537", "n03444034")


def test_tiny_imagenet_tests_on_validation_images(tmp_path, monkeypatch):
    tiny_imagenet(tmp_path / "tiny-imagenet-200", monkeypatch)
    splits = open_data(f"tiny_imagenet:{tmp_path}")
    assert splits.train.classes == splits.query.classes == CLASSES  # in the order of wnids.txt
    assert splits.train.counts().tolist() == [3, 3, 3]
    for name, label in zip(splits.train.names, splits.train.labels, strict=True):
        assert name.split("/")[1] == CLASSES[label]
    assert splits.query.names == tuple(f"val/images/val_{i}.JPEG" for i in range(4))
    assert splits.query.labels.tolist() == [2, 0, 1, 2]


def test_tiny_imagenet_images_are_normalized(tmp_path, monkeypatch):
    splits = open_data(f"tiny_imagenet:{tiny_imagenet(tmp_path, monkeypatch)}")
    pair = CLASSIFICATION["tiny_imagenet"]
    for listing, transform in ((splits.train, pair.train), (splits.query, pair.test)):
        (batch,) = Loader(listing, transform, PIXELS[pair.pixels]).batches([np.arange(4)])
        assert batch.images.shape == (4, 3, 64, 64)
        inputs = batch.inputs(torch.device("cpu"))
        assert -1 <= inputs.min() < inputs.max() <= 1


def test_missing_class_is_reported(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    (root / "train" / CLASSES[1]).rename(tmp_path / "aside")
    with pytest.raises(ValueError, match=f"6 of 9.*train/{CLASSES[1]}/images"):
        open_data(f"tiny_imagenet:{root}")
    splits = open_data(f"tiny_imagenet:{root}", incomplete=True)
    assert splits.train.classes == splits.query.classes == CLASSES


def test_invalid_tiny_imagenet_label_files_are_rejected(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    file = root / "val" / "val_annotations.txt"
    file.write_text(file.read_text().replace(CLASSES[0], "n00000000"))
    with pytest.raises(ValueError, match="line 2 of .*'n00000000'"):
        open_data(f"tiny_imagenet:{root}")
    file.unlink()
    with pytest.raises(ValueError, match="val_annotations.txt"):
        open_data(f"tiny_imagenet:{root}")


def test_more_images_than_published_are_rejected(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    save_picture(root / f"train/{CLASSES[0]}/images/mine.jpg")
    for incomplete in (False, True):
        with pytest.raises(ValueError, match="train: 10 of 9"):
            open_data(f"tiny_imagenet:{root}", incomplete=incomplete)
