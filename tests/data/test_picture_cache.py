import errno
import os
import threading

import numpy as np
import pytest
from PIL import Image

from proxysynth.data import PictureCache, UnreadablePicture, picture_cache as module
from proxysynth.data.picture_cache import shrunken


@pytest.fixture
def photo(tmp_path):
    """A smooth picture of 900 x 600: a large one for a cache of 64."""
    coarse = Image.fromarray(np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8))
    path = tmp_path / "photo.jpg"
    coarse.resize((900, 600), Image.Resampling.BICUBIC).save(path, quality=95)
    return path


@pytest.fixture
def decoded(monkeypatch):
    """Which files were really decoded."""
    seen = []

    def counting(path, side):
        seen.append(str(path))
        return shrunken(path, side)

    monkeypatch.setattr(module, "shrunken", counting)
    return seen


def test_the_short_side_is_shrunk_and_never_enlarged(photo, tmp_path):
    assert shrunken(photo, 64).shape == (64, 96, 3)
    Image.new("RGB", (30, 50)).save(tmp_path / "small.png")
    assert shrunken(tmp_path / "small.png", 64).shape == (50, 30, 3)


def test_decoding_smaller_cannot_be_seen(photo):
    with Image.open(photo) as image:
        exact = np.asarray(image.resize((96, 64), Image.Resampling.BILINEAR), dtype=np.float64)
    assert np.abs(shrunken(photo, 64) - exact).mean() < 1.5


def test_shrinking_is_what_evaluation_does_where_nothing_is_decoded_smaller(photo):
    with Image.open(photo) as image:
        exact = np.asarray(image.resize((600, 400), Image.Resampling.BILINEAR))
    assert np.array_equal(shrunken(photo, 400), exact)


@pytest.mark.parametrize("memory", [0, 1 << 20])
@pytest.mark.parametrize("disk", [0, 1 << 20])
def test_all_states_of_the_cache_give_the_same_picture(photo, tmp_path, memory, disk, decoded):
    expected = shrunken(photo, 64)
    for _ in range(2):  # two runs over one folder
        cache = PictureCache(64, memory, disk, tmp_path / "cache")
        for _ in range(3):
            assert np.array_equal(cache.picture(photo), expected)
    assert len(decoded) == {(0, 0): 6, (0, 1): 1, (1, 0): 2, (1, 1): 1}[memory > 0, disk > 0]


def test_a_changed_photograph_is_decoded_again(tmp_path, decoded):
    photo = tmp_path / "photo.bmp"
    for times, colour in enumerate(((255, 0, 0), (0, 0, 255)), start=1):
        Image.new("RGB", (90, 60), colour).save(photo)  # a file of the same size
        os.utime(photo, ns=(times, times))
        made = PictureCache(64, folder=tmp_path / "cache").picture(photo)
        assert len(decoded) == times
        assert made[0, 0].tolist() == list(colour)


def test_sides_do_not_mix(photo, tmp_path):
    for side in (64, 32):
        made = PictureCache(side, folder=tmp_path / "cache").picture(photo)
        assert min(made.shape[:2]) == side


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "foreign"])
def test_a_damaged_file_is_made_again(photo, tmp_path, damage, decoded):
    expected = PictureCache(64, folder=tmp_path / "cache").picture(photo)
    (file,) = (tmp_path / "cache").rglob("*.raw")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[100] ^= 1
    changed = {"cut": whole[:-1], "empty": b"", "flipped": bytes(flipped), "foreign": b"x" * 99}
    file.write_bytes(changed[damage])
    assert np.array_equal(PictureCache(64, folder=tmp_path / "cache").picture(photo), expected)
    assert len(decoded) == 2
    assert file.read_bytes() == whole


def test_budgets_are_kept(make_folder, tmp_path, decoded):
    paths = sorted(make_folder({"x": 6}, size=(20, 10)).rglob("*.png"))  # 600 bytes each
    cache = PictureCache(64, memory=1300, disk=2000, folder=tmp_path / "cache")
    for _ in range(2):
        for path in paths:
            cache.picture(path)
    assert len(cache._held) == 2
    assert len(list((tmp_path / "cache").rglob("*.raw"))) == 3
    assert len(decoded) == 6 + 3  # the second round finds two in memory, one on disk
    assert PictureCache(64, disk=2000, folder=tmp_path / "cache").picture(paths[-1]).shape
    assert len(list((tmp_path / "cache").rglob("*.raw"))) == 3, "what is there counts"


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_does_no_harm(photo, tmp_path, monkeypatch, fault):
    expected = shrunken(photo, 64)

    def fail(*_, **__):
        raise OSError(fault, os.strerror(fault))

    monkeypatch.setattr(os, "replace", fail)
    cache = PictureCache(64, memory=0, folder=tmp_path / "cache")
    for _ in range(2):
        assert np.array_equal(cache.picture(photo), expected)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_made_does_no_harm(photo, tmp_path):
    (tmp_path / "file").write_text("in the way")
    cache = PictureCache(64, memory=0, folder=tmp_path / "file" / "cache")
    assert np.array_equal(cache.picture(photo), shrunken(photo, 64))


def test_pictures_are_read_only(photo, tmp_path):
    cache = PictureCache(64, folder=tmp_path / "cache")
    with pytest.raises(ValueError, match="read-only"):
        cache.picture(photo)[0, 0, 0] = 1


def test_threads_share_one_cache(make_folder, tmp_path):
    paths = sorted(make_folder({"x": 20}).rglob("*.png"))
    expected = {path: shrunken(path, 16) for path in paths}
    cache = PictureCache(16, memory=9000, folder=tmp_path / "cache")
    wrong = []

    def read(seed):
        for i in np.random.default_rng(seed).integers(0, 20, 60):
            if not np.array_equal(cache.picture(paths[i]), expected[paths[i]]):
                wrong.append(paths[i])

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert sum(held.nbytes for held in cache._held.values()) <= 9000


def test_faults_are_named(tmp_path):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        PictureCache(0)
    with pytest.raises(UnreadablePicture, match="no such file"):
        PictureCache(folder=tmp_path).picture(tmp_path / "missing.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"<html>")
    with pytest.raises(UnreadablePicture, match="HTML page"):
        PictureCache(folder=tmp_path).picture(tmp_path / "bad.jpg")


def test_a_name_that_no_file_can_have(tmp_path):
    with pytest.raises(UnreadablePicture, match="null"):
        PictureCache(folder=tmp_path).picture("a\0b.png")
