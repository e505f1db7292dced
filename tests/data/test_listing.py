from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proxysynth.data import Listing
from proxysynth.data.listing import listing_of_files, shuffled_names


def files(labels, classes):
    names = tuple(f"{i}.jpg" for i in range(len(labels)))
    return Listing(names, np.array(labels), tuple(classes), root=Path("/pictures"))


def pixels(labels, classes, seed=0):
    made = np.random.default_rng(seed).integers(0, 256, (len(labels), 4, 5), np.uint8)
    names = tuple(map(str, range(len(labels))))
    return Listing(names, np.array(labels), tuple(classes), pixels=made)


def test_paths_and_counts():
    listing = files([0, 2, 2], "abc")
    assert len(listing) == 3
    assert listing.path(1) == Path("/pictures/1.jpg")
    assert listing.counts().tolist() == [1, 0, 2]
    assert listing.labels.dtype == np.int64


def test_labels_cannot_be_changed_behind_the_listing():
    given = np.array([0, 1])
    listing = Listing(("x", "y"), given, ("a", "b"), root=Path("/p"))
    given[0] = 1
    assert listing.labels.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        listing.labels[0] = 1


def test_take_keeps_order_and_classes():
    taken = pixels([0, 1, 2, 1], "abc").take([3, 0])
    assert taken.names == ("3", "0")
    assert taken.labels.tolist() == [1, 0]
    assert taken.classes == ("a", "b", "c")
    assert np.array_equal(taken.pixels, pixels([0, 1, 2, 1], "abc").pixels[[3, 0]])


def test_of_classes_numbers_them_as_given():
    listing = files([0, 1, 2, 1, 0], "abc").of_classes(["c", "a"])
    assert listing.names == ("0.jpg", "2.jpg", "4.jpg")
    assert listing.labels.tolist() == [1, 0, 1]
    assert listing.classes == ("c", "a")


def test_without_empty_classes_closes_the_gap():
    listing = files([0, 2], "abc").without_empty_classes()
    assert listing.classes == ("a", "c")
    assert listing.labels.tolist() == [0, 1]


def test_fingerprint_sees_every_part_and_nothing_else():
    one = pixels([0, 1], "ab")
    other_pixels = one.pixels.copy()
    other_pixels[1, 2, 3] ^= 1
    others = [
        replace(one, names=("0", "2")),
        replace(one, labels=np.array([1, 0])),
        replace(one, classes=("a", "c")),
        replace(one, pixels=other_pixels),
        replace(one, pixels=one.pixels.reshape(2, 5, 4)),
    ]
    prints = {listing.fingerprint() for listing in (one, *others)}
    assert len(prints) == 6
    assert one.fingerprint() == pixels([0, 1], "ab").fingerprint()
    here, there = files([0, 1], "ab"), replace(files([0, 1], "ab"), root=Path("/moved"))
    assert here.fingerprint() == there.fingerprint()


def test_fingerprint_is_the_same_in_every_session():
    assert files([0, 1, 1], "ab").fingerprint() == "300bb3a80a11"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0])}, "one label per picture"),
        ({"labels": np.array([0, 2])}, r"\[0, 2\)"),
        ({"labels": np.array([-1, 0])}, "number the classes from 0"),
        ({"classes": ("a", "a")}, "own name"),
        ({"root": None}, "either files under a root or pixels"),
        ({"root": None, "pixels": np.zeros((2, 4))}, "uint8"),
        ({"root": None, "pixels": np.zeros((2, 4, 4, 4), np.uint8)}, "uint8 of shape"),
    ],
)
def test_faults_are_named(change, words):
    with pytest.raises(ValueError, match=words):
        replace(files([0, 1], "ab"), **change)


def test_an_unknown_class_gets_a_hint():
    with pytest.raises(ValueError, match="did you mean 'boots'"):
        files([0, 1], ("boots", "hats")).of_classes(["boot"])


def test_pixels_have_no_path():
    with pytest.raises(ValueError, match="no file"):
        pixels([0, 1], "ab").path(0)


def test_listing_of_files_sorts():
    listing = listing_of_files(Path("/p"), [("b/2", "b"), ("a/9", "a"), ("b/1", "b")])
    assert listing.names == ("a/9", "b/1", "b/2")
    assert listing.labels.tolist() == [0, 1, 1]
    assert listing.classes == ("a", "b")


def test_shuffled_names_keep_their_order_when_one_joins():
    names = [f"class {i}" for i in range(50)]
    order = shuffled_names(names, 3)
    assert sorted(order) == sorted(names)
    assert order != shuffled_names(names, 4)
    longer = shuffled_names([*names, "newcomer"], 3)
    assert [name for name in longer if name != "newcomer"] == order


def test_shuffled_names_are_the_same_in_every_session():
    assert shuffled_names("abcdef", 0) == list("fdacbe")  # by sha256sum of "0:a", "0:b", ...
