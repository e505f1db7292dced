import numpy as np
import pytest
import scipy.io

from benchmark_imitations import SVHN, svhn
from proxysynth.data import open_data


def test_ten_is_the_digit_0(tmp_path, monkeypatch):
    splits = open_data(f"svhn:{svhn(tmp_path, monkeypatch)}")
    assert splits.train.classes == splits.test.classes == tuple("0123456789")
    for listing, part in ((splits.train, "train"), (splits.test, "test")):
        assert np.array_equal(listing.pixels, SVHN[part][0])
        assert np.array_equal(listing.labels, SVHN[part][1])
    raw = scipy.io.loadmat(tmp_path / "train_32x32.mat")
    at = int(np.flatnonzero(raw["y"][:, 0] == 10)[0])
    assert splits.train.labels[at] == 0
    assert np.array_equal(splits.train.pixels[at], raw["X"][:, :, :, at])


def test_a_missing_file(tmp_path, monkeypatch):
    root = svhn(tmp_path, monkeypatch)
    (root / "test_32x32.mat").unlink()
    with pytest.raises(ValueError, match=r"0 of 11 test pictures.*test_32x32.mat"):
        open_data(f"svhn:{root}")
    with pytest.raises(ValueError, match="testing needs pictures"):
        open_data(f"svhn:{root}", incomplete=True)


def test_damaged_files(tmp_path, monkeypatch):
    root = svhn(tmp_path, monkeypatch)
    file = root / "train_32x32.mat"
    file.write_bytes(file.read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"train_32x32.mat is no readable MATLAB 5 file") as caught:
        open_data(f"svhn:{root}", incomplete=True)
    assert "\n" not in str(caught.value)
    good = np.zeros((32, 32, 3, 2), np.uint8)
    for held, words in (
        ({"X": good}, "must hold X and y, got X"),
        ({"X": good, "y": np.ones((3, 1), np.uint8)}, r"must be uint8 \(32, 32, 3, 3\)"),
        ({"X": good.astype(float), "y": np.ones((2, 1), np.uint8)}, "must be uint8"),
        ({"X": good, "y": np.array([[1], [11]], np.uint8)}, "must lie in 1..10, got 1 to 11"),
    ):
        scipy.io.savemat(file, held)
        with pytest.raises(ValueError, match=words) as caught:
            open_data(f"svhn:{root}")
        assert str(file) in str(caught.value)
