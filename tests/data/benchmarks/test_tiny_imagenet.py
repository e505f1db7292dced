import numpy as np
import pytest

from benchmark_imitations import save_picture, tiny_imagenet
from proxysynth.data import CLASSIFICATION, PIXELS, Loader, open_data

CLASSES = ("n02124075", "n01443537", "n03444034")


def test_validation_pictures_are_the_test(tmp_path, monkeypatch):
    tiny_imagenet(tmp_path / "tiny-imagenet-200", monkeypatch)
    splits = open_data(f"tiny_imagenet:{tmp_path}")
    assert splits.train.classes == splits.test.classes == CLASSES  # in the order of wnids.txt
    assert splits.train.counts().tolist() == [3, 3, 3]
    for name, label in zip(splits.train.names, splits.train.labels, strict=True):
        assert name.split("/")[1] == CLASSES[label]
    assert splits.test.names == tuple(f"val/images/val_{i}.JPEG" for i in range(4))
    assert splits.test.labels.tolist() == [2, 0, 1, 2]


def test_pictures_reach_a_network(tmp_path, monkeypatch):
    splits = open_data(f"tiny_imagenet:{tiny_imagenet(tmp_path, monkeypatch)}")
    pair = CLASSIFICATION["tiny_imagenet"]
    for listing, transform in ((splits.train, pair.train), (splits.test, pair.test)):
        (batch,) = Loader(listing, transform, PIXELS[pair.pixels]).batches([np.arange(4)])
        assert batch.images.shape == (4, 3, 64, 64)
        assert -1 <= batch.images.min() < batch.images.max() <= 1


def test_a_missing_class(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    (root / "train" / CLASSES[1]).rename(tmp_path / "aside")
    with pytest.raises(ValueError, match=f"6 of 9 train.*no .*train/{CLASSES[1]}/images"):
        open_data(f"tiny_imagenet:{root}")
    splits = open_data(f"tiny_imagenet:{root}", incomplete=True)
    assert splits.train.classes == splits.test.classes == CLASSES


def test_bad_label_files(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    file = root / "val" / "val_annotations.txt"
    file.write_text(file.read_text().replace(CLASSES[0], "n00000000"))
    with pytest.raises(ValueError, match="line 2 of .* has class 'n00000000', not one of wnids"):
        open_data(f"tiny_imagenet:{root}")
    file.unlink()
    with pytest.raises(ValueError, match=r"cannot read .*val_annotations.txt"):
        open_data(f"tiny_imagenet:{root}")


def test_more_pictures_than_published(tmp_path, monkeypatch):
    root = tiny_imagenet(tmp_path, monkeypatch)
    save_picture(root / f"train/{CLASSES[0]}/images/mine.jpg")
    for incomplete in (False, True):
        with pytest.raises(ValueError, match="not TinyImageNet as published, it has 10 of 9 train"):
            open_data(f"tiny_imagenet:{root}", incomplete=incomplete)
