import pickle

import numpy as np
import pytest
from PIL import Image

from proxysynth.data import (
    ImageCache,
    Listing,
    UnreadableImages,
    check_splits,
    images as cache_module,
    open_data,
)
from proxysynth.data.check import unreadable_images

SIX = {"ants": 3, "bees": 3, "cats": 3, "dogs": 3, "elks": 1, "foxes": 2}
RULE = {"unseen_classes": ("cats", "dogs", "elks")}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def root(make_folder):
    return make_folder(SIX)


def spoil(root):
    (root / "ants" / "1.png").write_bytes(b"")
    whole = (root / "cats" / "2.png").read_bytes()
    (root / "cats" / "2.png").write_bytes(whole[: len(whole) // 2])
    (root / "elks" / "0.png").write_bytes(b"<html>not found</html>")


def test_readable_splits_are_returned_unchanged(root):
    splits = open_data(root, **RULE)
    assert check_splits(splits) is splits


@pytest.mark.parametrize("workers", [0, 3])
def test_all_unreadable_files_are_reported_with_reason(root, workers):
    spoil(root)
    with pytest.raises(UnreadableImages) as caught:
        check_splits(open_data(root, **RULE), workers=workers)
    text = str(caught.value)
    assert text.startswith("3 of 15 images cannot be read")
    for name, reason in (("ants/1.png", "empty"), ("cats/2.png", "truncated"), ("elks", "HTML")):
        assert name in text
        assert reason in text
    assert "--skip-bad" in text
    assert "\n" not in text
    assert len(caught.value.images) == 3
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


def test_unreadable_files_are_skipped_on_request(root):
    spoil(root)
    splits = check_splits(open_data(root, **RULE), skip_bad=True)
    assert len(splits.train) == 7
    assert splits.query.classes == ("cats", "dogs"), "elks has no image left"
    assert splits.query.labels.tolist() == [0, 0, 1, 1, 1]
    assert splits.notes[-1].startswith("3 of 15 images cannot be read")


def test_skipping_keeps_query_and_gallery_classes_aligned(make_folder):
    root = make_folder(
        {"train/a": 2, "train/b": 2, "query/c": 1, "query/d": 2, "gallery/c": 1, "gallery/d": 2}
    )
    (root / "query" / "c" / "0.png").write_bytes(b"")
    splits = check_splits(open_data(root), skip_bad=True)
    assert splits.query.classes == splits.gallery.classes == ("c", "d")
    assert splits.query.labels.tolist() == [1, 1]


def test_skipping_all_test_pairs_is_an_error(make_folder):
    root = make_folder({"a": 2, "b": 2, "c": 2, "d": 2})
    for name in "cd":
        (root / name / "0.png").write_bytes(b"")
    with pytest.raises(ValueError, match="none of the 2 test images"):
        check_splits(open_data(root, unseen_classes=("c", "d")), skip_bad=True)


def test_long_error_list_is_truncated(make_folder):
    root = make_folder({"a": 14, "b": 2, "c": 2, "d": 2})
    for path in (root / "a").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UnreadableImages, match="and 4 more; fix"):
        check_splits(open_data(root))


def test_progress_counts_all_listings(root):
    steps = []
    check_splits(open_data(root, **RULE), tick=lambda images, note: steps.append(images))
    assert steps == [1] * 15


def test_check_fills_the_cache(root, tmp_path, monkeypatch):
    cache = ImageCache(16, folder=tmp_path / "cache")
    splits = check_splits(open_data(root, **RULE), cache=cache, workers=2)
    monkeypatch.setattr(cache_module, "open_image", None)  # whoever decodes again fails
    for listing in (splits.train, splits.query):
        for i in range(len(listing)):
            assert min(cache.image(listing.path(i)).shape[:2]) == 16


def test_truncated_large_jpeg_is_detected(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) * 9 // 10])
    listing = Listing(("a.jpg",), np.array([0]), ("a",), root=tmp_path)
    ((part, index, error),) = unreadable_images({"train": listing})
    assert (part, index) == ("train", 0)
    assert "truncated" in error.reason


def test_in_memory_pixels_are_not_checked():
    pixels = np.zeros((2, 4, 4), np.uint8)
    listing = Listing(("x", "y"), np.array([0, 1]), ("a", "b"), pixels=pixels)
    assert unreadable_images({"train": listing}) == []


def test_skipped_files_are_listed_individually(make_folder):
    root = make_folder({"a": 15, "b": 2, "c": 2, "d": 2})
    bad = [root / "a" / f"{i}.png" for i in range(12)]
    for path in bad:
        path.write_bytes(b"")
    told = []
    splits = check_splits(open_data(root), skip_bad=True, say=told.append)
    assert len(splits.train) + len(splits.query) == 9
    (lines,) = told
    assert sorted(lines.splitlines()) == sorted(f"{path}: the file is empty" for path in bad)


def test_images_are_rechecked_only_after_a_change(root):
    reads = []

    def check():
        before = len(reads)
        check_splits(open_data(root, **RULE), tick=lambda *_: reads.append(1))
        return len(reads) - before

    assert [check(), check()] == [15, 0]
    spoil(root)
    with pytest.raises(UnreadableImages):
        check()
    with pytest.raises(UnreadableImages):  # what has a fault is not remembered
        check()


def test_unwritable_cache_is_ignored(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "file"))
    splits = open_data(root, **RULE)
    assert check_splits(splits) is splits
