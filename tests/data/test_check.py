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


def test_good_images_pass_unchanged(root):
    splits = open_data(root, **RULE)
    assert check_splits(splits) is splits


@pytest.mark.parametrize("workers", [0, 3])
def test_bad_files_are_all_named_with_the_reason(root, workers):
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


def test_they_are_skipped_when_asked(root):
    spoil(root)
    splits = check_splits(open_data(root, **RULE), skip_bad=True)
    assert len(splits.train) == 7
    assert splits.query.classes == ("cats", "dogs"), "elks has no image left"
    assert splits.query.labels.tolist() == [0, 0, 1, 1, 1]
    assert splits.notes[-1].startswith("3 of 15 images cannot be read")


def test_query_and_gallery_keep_one_table(make_folder):
    root = make_folder(
        {"train/a": 2, "train/b": 2, "query/c": 1, "query/d": 2, "gallery/c": 1, "gallery/d": 2}
    )
    (root / "query" / "c" / "0.png").write_bytes(b"")
    splits = check_splits(open_data(root), skip_bad=True)
    assert splits.query.classes == splits.gallery.classes == ("c", "d")
    assert splits.query.labels.tolist() == [1, 1]


def test_nothing_left_is_an_error_even_when_skipping(make_folder):
    root = make_folder({"a": 2, "b": 2, "c": 2, "d": 2})
    for name in "cd":
        (root / name / "0.png").write_bytes(b"")
    with pytest.raises(ValueError, match="none of the 2 test images"):
        check_splits(open_data(root, unseen_classes=("c", "d")), skip_bad=True)


def test_many_bad_files_are_counted_not_all_printed(make_folder):
    root = make_folder({"a": 14, "b": 2, "c": 2, "d": 2})
    for path in (root / "a").iterdir():
        path.write_bytes(b"")
    with pytest.raises(UnreadableImages, match="and 4 more; fix"):
        check_splits(open_data(root))


def test_progress_counts_over_all_listings(root):
    steps = []
    check_splits(open_data(root, **RULE), progress=lambda done, total: steps.append((done, total)))
    assert steps == [(i, 15) for i in range(1, 16)]


def test_a_cache_is_filled_on_the_way(root, tmp_path, monkeypatch):
    cache = ImageCache(16, folder=tmp_path / "cache")
    splits = check_splits(open_data(root, **RULE), cache=cache, workers=2)
    monkeypatch.setattr(cache_module, "open_image", None)  # whoever decodes again fails
    for listing in (splits.train, splits.query):
        for i in range(len(listing)):
            assert min(cache.image(listing.path(i)).shape[:2]) == 16


def test_a_truncated_large_jpeg_is_found_though_decoded_small(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), np.uint8)
    Image.fromarray(noise).save(tmp_path / "a.jpg")
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(whole[: len(whole) * 9 // 10])
    listing = Listing(("a.jpg",), np.array([0]), ("a",), root=tmp_path)
    ((part, index, error),) = unreadable_images({"train": listing})
    assert (part, index) == ("train", 0)
    assert "truncated" in error.reason


def test_pixels_in_memory_need_no_check():
    pixels = np.zeros((2, 4, 4), np.uint8)
    listing = Listing(("x", "y"), np.array([0, 1]), ("a", "b"), pixels=pixels)
    assert unreadable_images({"train": listing}) == []


def test_more_bad_files_than_a_message_names_are_listed_one_by_one(make_folder):
    root = make_folder({"a": 15, "b": 2, "c": 2, "d": 2})
    bad = [root / "a" / f"{i}.png" for i in range(12)]
    for path in bad:
        path.write_bytes(b"")
    told = []
    splits = check_splits(open_data(root), skip_bad=True, say=told.append)
    assert len(splits.train) + len(splits.query) == 9
    (lines,) = told
    assert sorted(lines.splitlines()) == sorted(f"{path}: the file is empty" for path in bad)


def test_images_are_read_once_until_one_changes(root):
    reads = []

    def check():
        before = len(reads)
        check_splits(open_data(root, **RULE), progress=lambda *_: reads.append(1))
        return len(reads) - before

    assert [check(), check()] == [15, 0]
    spoil(root)
    with pytest.raises(UnreadableImages):
        check()
    with pytest.raises(UnreadableImages):  # what has a fault is not remembered
        check()


def test_a_cache_that_cannot_be_written_is_no_fault(root, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("PROXYSYNTH_CACHE", str(tmp_path / "file"))
    splits = open_data(root, **RULE)
    assert check_splits(splits) is splits
