import numpy as np
import pytest
import scipy.io
import torch

from benchmark_imitations import (
    CIFAR10,
    CIFAR100,
    SVHN,
    cifar10_binary,
    cifar10_python,
    cifar100_binary,
    cifar100_python,
    python2_pickle,
    svhn,
)
from proxysynth.data import PIXELS, AsIs, Loader, open_data

BATCHES = [f"data_batch_{i}" for i in range(1, 6)]


@pytest.mark.parametrize("make", [cifar10_binary, cifar10_python])
def test_cifar10(tmp_path, monkeypatch, make):
    splits = open_data(f"cifar10:{make(tmp_path, monkeypatch)}")
    assert splits.train.classes == splits.query.classes == ("airplane", "automobile")
    pixels = np.concatenate([CIFAR10[name][0] for name in BATCHES])
    labels = np.concatenate([CIFAR10[name][1] for name in BATCHES])
    assert np.array_equal(splits.train.pixels, pixels)
    assert np.array_equal(splits.train.labels, labels)
    assert np.array_equal(splits.query.pixels, CIFAR10["test_batch"][0])
    assert np.array_equal(splits.query.labels, CIFAR10["test_batch"][1])
    assert splits.train.names[4] == "data_batch_2:0"


@pytest.mark.parametrize("make", [cifar100_binary, cifar100_python])
def test_cifar100(tmp_path, monkeypatch, make):
    splits = open_data(f"cifar100:{make(tmp_path, monkeypatch)}")
    assert splits.train.classes == splits.query.classes == ("apple", "aquarium_fish", "baby")
    for listing, part in ((splits.train, "train"), (splits.query, "test")):
        assert np.array_equal(listing.pixels, CIFAR100[part][0])
        assert np.array_equal(listing.labels, CIFAR100[part][1])


def test_binary_and_python_archives_match(tmp_path, monkeypatch):
    binary = open_data(f"cifar10:{cifar10_binary(tmp_path / 'b', monkeypatch)}")
    python = open_data(f"cifar10:{cifar10_python(tmp_path / 'p', monkeypatch)}")
    assert binary.fingerprint() == python.fingerprint()


def test_color_images_are_normalized(tmp_path, monkeypatch):
    splits = open_data(f"cifar10:{cifar10_binary(tmp_path, monkeypatch)}")
    loader = Loader(splits.train, AsIs(), PIXELS["cifar10"])
    (batch,) = loader.batches([np.array([3, 1])])
    mean, std = np.array([125.3, 123.0, 113.9]), np.array([63.0, 62.1, 66.7])
    wanted = (splits.train.pixels[[3, 1]] - mean) / std
    inputs = batch.inputs(torch.device("cpu")).permute(0, 2, 3, 1)
    assert np.allclose(inputs.numpy(), wanted, atol=1e-5)


def test_parent_folder_and_packed_archive(tmp_path, monkeypatch):
    cifar10_python(tmp_path / "cifar-10-batches-py", monkeypatch)
    assert len(open_data(f"cifar10:{tmp_path}").train) == 20
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "cifar-100-python.tar.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match=r"unpack .*cifar-100-python.tar.gz first"):
        open_data(f"cifar100:{tmp_path / 'new'}")


@pytest.mark.parametrize("make", [cifar10_binary, cifar10_python])
def test_missing_batch_is_reported(tmp_path, monkeypatch, make):
    root = make(tmp_path, monkeypatch)
    next(root.glob("data_batch_3*")).unlink()
    with pytest.raises(ValueError, match=r"16 of 20.*data_batch_3.*incomplete=True"):
        open_data(f"cifar10:{root}")
    splits = open_data(f"cifar10:{root}", incomplete=True)
    assert len(splits.train) == 16
    assert "train: 16 of 20 images" in splits.remarks()[0]


def test_missing_class_names_are_reported(tmp_path, monkeypatch):
    root = cifar10_binary(tmp_path, monkeypatch)
    (root / "batches.meta.txt").write_text("")
    with pytest.raises(ValueError, match="batches.meta.txt"):
        open_data(f"cifar10:{root}")
    root = cifar100_python(tmp_path / "100", monkeypatch)
    (root / "meta").write_bytes(python2_pickle({b"fine_label_names": [1, 2]}))
    with pytest.raises(ValueError, match="meta .*names of classes"):
        open_data(f"cifar100:{root}")


@pytest.mark.parametrize("incomplete", [False, True])
def test_damaged_files_are_rejected(tmp_path, monkeypatch, incomplete):
    root = cifar10_binary(tmp_path / "b", monkeypatch)
    file = root / "data_batch_2.bin"
    whole = file.read_bytes()
    for data, words in (
        (whole[:-5], r"data_batch_2.bin cannot be read .* 12287 into shape .3073"),
        (b"\x07" + whole[1:], r"data_batch_2.bin .*labels must be below 2, got 7"),
        (b"<html>", r"cannot reshape"),
    ):
        file.write_bytes(data)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"cifar10:{root}", incomplete=incomplete)
        assert str(file) in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ({b"labels": [0]}, r"test .*must hold data and fine_labels, got labels"),
        (
            {b"data": np.zeros((2, 3072), np.uint8), b"fine_labels": [1]},
            r"\(2, 3072\) for 1 labels",
        ),
        ({b"data": np.zeros((2, 10), np.uint8), b"fine_labels": [1, 1]}, r"shape \(2, 10\)"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [b"1"]}, r"must hold data and"),
    ],
)
def test_damaged_pickles_are_rejected(tmp_path, monkeypatch, held, words):
    root = cifar100_python(tmp_path, monkeypatch)
    (root / "test").write_bytes(python2_pickle(held))
    with pytest.raises(ValueError, match=words):
        open_data(f"cifar100:{root}")


def test_malicious_pickle_is_not_executed(tmp_path, monkeypatch):
    root = cifar10_python(tmp_path / "copy", monkeypatch)
    trap = tmp_path / "trap"
    call = f"cos\nmkdir\n(S'{trap}'\ntR."
    (root / "data_batch_1").write_bytes(call.encode())
    with pytest.raises(ValueError, match=r"data_batch_1 .*os.mkdir"):
        open_data(f"cifar10:{root}")
    assert not trap.exists()


def test_svhn_label_ten_is_digit_zero(tmp_path, monkeypatch):
    splits = open_data(f"svhn:{svhn(tmp_path, monkeypatch)}")
    assert splits.train.classes == splits.query.classes == tuple("0123456789")
    for listing, part in ((splits.train, "train"), (splits.query, "test")):
        assert np.array_equal(listing.pixels, SVHN[part][0])
        assert np.array_equal(listing.labels, SVHN[part][1])
    raw = scipy.io.loadmat(tmp_path / "train_32x32.mat")
    at = int(np.flatnonzero(raw["y"][:, 0] == 10)[0])
    assert splits.train.labels[at] == 0
    assert np.array_equal(splits.train.pixels[at], raw["X"][:, :, :, at])


def test_missing_svhn_file_is_reported(tmp_path, monkeypatch):
    root = svhn(tmp_path, monkeypatch)
    (root / "test_32x32.mat").unlink()
    with pytest.raises(ValueError, match=r"test: 0 of 11 images.*test_32x32.mat"):
        open_data(f"svhn:{root}")
    with pytest.raises(ValueError, match="has no test images"):
        open_data(f"svhn:{root}", incomplete=True)


def test_damaged_svhn_files_are_rejected(tmp_path, monkeypatch):
    root = svhn(tmp_path, monkeypatch)
    file = root / "train_32x32.mat"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"train_32x32.mat cannot be read") as caught:
        open_data(f"svhn:{root}", incomplete=True)
    assert "\n" not in str(caught.value)
    good = np.zeros((32, 32, 3, 2), np.uint8)
    for held, words in (
        ({"X": good}, "must hold X and y, got X"),
        ({"X": good, "y": np.ones((3, 1), np.uint8)}, r"must be uint8 \(32, 32, 3, 3\)"),
        ({"X": good.astype(float), "y": np.ones((2, 1), np.uint8)}, "must be uint8"),
        ({"X": good, "y": np.array([[1], [11]], np.uint8)}, "labels must be below 10, got 11"),
    ):
        scipy.io.savemat(file, held)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"svhn:{root}")
        assert str(file) in str(caught.value)
