import os

import numpy as np
import pytest

from benchmark_imitations import cub200
from proxysynth.data import CATALOGUE, check_benchmark, open_data, open_picture

REAL = os.environ.get("PROXYSYNTH_CUB200")


def test_the_first_classes_train(tmp_path, monkeypatch):
    splits = open_data(f"cub200:{cub200(tmp_path, monkeypatch)}")
    assert splits.name == "cub200"
    assert splits.train.classes == ("001.Auk", "002.Booby")
    assert splits.test.classes == ("003.Crow", "004.Dove")
    assert splits.train.labels.tolist() == [0, 0, 0, 1, 1]
    assert splits.test.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert splits.train.names[0] == "images/001.Auk/0.jpg"
    for listing in (splits.train, splits.test):
        for i, name in enumerate(listing.names):
            assert listing.classes[listing.labels[i]] == name.split("/")[1]
            assert open_picture(listing.path(i)).size == (48, 36)
    assert splits.remarks() == ()


def test_the_folder_above_will_do(tmp_path, monkeypatch):
    root = cub200(tmp_path / "CUB_200_2011", monkeypatch)
    assert len(open_data(f"cub200:{tmp_path}").train) == 5
    assert open_data(f"cub200:{tmp_path}").train.root == root


def test_labels_that_do_not_fit(tmp_path, monkeypatch):
    root = cub200(tmp_path, monkeypatch)
    labels = root / "image_class_labels.txt"
    labels.write_text("".join(labels.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(ValueError, match=r"image_class_labels.txt has no line for image 1, which"):
        open_data(f"cub200:{root}")
    labels.write_text("1 first\n")
    with pytest.raises(ValueError, match=r"line 1 of .*image_class_labels.txt must have a whole"):
        open_data(f"cub200:{root}")
    labels.unlink()
    with pytest.raises(ValueError, match=r"cannot read .*image_class_labels.txt .no such file"):
        open_data(f"cub200:{root}")


@pytest.mark.skipif(not REAL, reason="PROXYSYNTH_CUB200 does not name a copy of the photographs")
def test_the_real_photographs():
    splits = open_data(f"cub200:{REAL}")
    assert (len(splits.train), len(splits.test)) == (5864, 5924)
    assert splits.train.classes[0] == "001.Black_footed_Albatross"
    assert splits.train.classes[-1] == "100.Brown_Pelican"
    assert splits.test.classes[0] == "101.White_Pelican"
    assert splits.test.classes[-1] == "200.Common_Yellowthroat"
    assert min(splits.train.counts()) >= 41
    assert max(splits.test.counts()) <= 60
    draw = np.random.default_rng(0)
    for i in draw.integers(0, 5864, 20):
        assert min(open_picture(splits.train.path(int(i))).size) > 50


@pytest.mark.slow
@pytest.mark.skipif(not REAL, reason="PROXYSYNTH_CUB200 does not name a copy of the photographs")
def test_every_real_photograph_can_be_read():
    report = check_benchmark("cub200", REAL, workers=2)
    assert report.complete
    assert report.accepted
    assert report.pictures["train"] == (5864, CATALOGUE["cub200"].pictures["train"])
    assert report.extra == ()
