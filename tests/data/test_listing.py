from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from proxysynth.data import (
    ClassSplit,
    Listing,
    Splits,
    stratified_subset,
    with_fold,
    with_validation,
)
from proxysynth.data.listing import listing_of_files, require_usable, shuffled_names


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


def test_labels_are_copied_and_read_only():
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


def test_of_classes_relabels_in_given_order():
    listing = files([0, 1, 2, 1, 0], "abc").of_classes(["c", "a"])
    assert listing.names == ("0.jpg", "2.jpg", "4.jpg")
    assert listing.labels.tolist() == [1, 0, 1]
    assert listing.classes == ("c", "a")


def test_without_empty_classes_relabels():
    listing = files([0, 2], "abc").without_empty_classes()
    assert listing.classes == ("a", "c")
    assert listing.labels.tolist() == [0, 1]


def test_fingerprint_depends_only_on_content():
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


def test_fingerprint_is_stable_across_sessions():
    assert files([0, 1, 1], "ab").fingerprint() == "300bb3a80a11"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": np.array([0])}, "2 labels"),
        ({"labels": np.array([0, 2])}, r"labels in \[0, 2\)"),
        ({"labels": np.array([-1, 0])}, "labels"),
        ({"classes": ("a", "a")}, "class names"),
        ({"root": None}, "root or pixels"),
        ({"root": None, "pixels": np.zeros((3, 4, 4), np.uint8)}, "pixels"),
    ],
)
def test_invalid_input_is_rejected(change, words):
    with pytest.raises(ValueError, match=words):
        replace(files([0, 1], "ab"), **change)


def test_listing_of_files_is_sorted():
    listing = listing_of_files(Path("/p"), [("b/2", "b"), ("a/9", "a"), ("b/1", "b")])
    assert listing.names == ("a/9", "b/1", "b/2")
    assert listing.labels.tolist() == [0, 1, 1]
    assert listing.classes == ("a", "b")


def test_shuffled_order_is_stable_when_a_name_is_added():
    names = [f"class {i}" for i in range(50)]
    order = shuffled_names(names, 3)
    assert sorted(order) == sorted(names)
    assert order != shuffled_names(names, 4)
    longer = shuffled_names([*names, "newcomer"], 3)
    assert [name for name in longer if name != "newcomer"] == order


def test_shuffled_names_are_stable_across_sessions():
    assert shuffled_names("abcdef", 0) == list("fdacbe")  # by sha256sum of "0:a", "0:b", ...


def listing(counts, prefix="class"):
    labels = np.repeat(np.arange(len(counts)), counts)
    names = tuple(f"{prefix}{label}/{i}" for i, label in enumerate(labels))
    classes = tuple(f"{prefix}{i}" for i in range(len(counts)))
    return Listing(names, labels, classes, root=Path("/p"))


def test_validation_holds_out_whole_classes():
    splits = Splits(listing([3] * 10), listing([2, 2], "test"))
    held = with_validation(splits, fraction=0.3, seed=1)
    assert len(held.validation.classes) == 3
    assert set(held.validation.classes).isdisjoint(held.train.classes)
    assert {*held.validation.names, *held.train.names} == set(splits.train.names)
    assert held.query is splits.query
    again = with_validation(splits, fraction=0.3, seed=1)
    assert again.validation.classes == held.validation.classes
    assert with_validation(splits, fraction=0.3, seed=2).validation.classes != (
        held.validation.classes
    )


def test_existing_validation_is_kept():
    splits = Splits(listing([3] * 4), listing([2, 2]), validation=listing([2, 2], "own"))
    assert with_validation(splits) is splits


def test_too_few_validation_classes_are_rejected():
    with pytest.raises(ValueError, match="fewer than 2"):
        with_validation(Splits(listing([3] * 3), listing([2, 2])))


def test_queries_without_a_positive_are_counted():
    own_gallery = Splits(listing([2, 2]), listing([1, 3, 1], "test"))
    assert own_gallery.without_positive() == 2
    assert any("2 of 5 test images" in remark for remark in own_gallery.remarks())
    apart = Splits(listing([2, 2]), listing([1, 3, 1]), gallery=listing([1, 0, 2]))
    assert apart.without_positive() == 3


def test_classes_in_both_train_and_test_are_reported():
    splits = Splits(listing([2, 2, 2]), listing([2, 2]))
    assert any("All test classes are also trained on" in remark for remark in splits.remarks())
    assert Splits(listing([2, 2]), listing([2, 2], "other")).remarks() == ()


def test_describe_lists_every_part():
    text = Splits(listing([2, 2]), listing([2, 2], "t"), notes=("A note.",)).describe()
    assert text.splitlines() == [
        "train: 4 images of 2 classes",
        "test: 4 images of 2 classes",
        "A note.",
    ]


def test_classes_are_named_if_nothing_is_tested():
    train = listing([2, 2])
    text = Splits(train, train.of_classes(())).describe()
    assert text.startswith(f"train: 4 images of 2 classes ({', '.join(train.classes)})\nNot eval")


def test_fingerprint_distinguishes_the_parts():
    one, two = listing([2, 2]), listing([2, 2], "other")
    prints = {
        Splits(one, two).fingerprint(),
        Splits(two, one).fingerprint(),
        Splits(one, two, gallery=two).fingerprint(),
        Splits(one, two, validation=two).fingerprint(),
    }
    assert len(prints) == 4


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        (Splits(listing([4]), listing([2, 2])), "at least 2 seen classes, got 1"),
        (Splits(listing([2, 2]), listing([1, 1, 1])), "none of the 3 test images"),
    ],
)
def test_unusable_splits_are_rejected(splits, words):
    with pytest.raises(ValueError, match=words):
        require_usable(splits)


def test_splits_without_test_pairs_can_be_trained_on():
    splits = require_usable(Splits(listing([2, 2]), listing([4])))
    assert not splits.testable
    with pytest.raises(ValueError, match="unseen"):
        require_usable(splits, tested=True)


@pytest.mark.parametrize(("count", "seen"), [(2, 2), (3, 3), (4, 2), (5, 3)])
def test_default_split_of_few_classes(count, seen):
    splits = ClassSplit()(class_split_listing(NAMES[:count]))
    assert len(splits.train.classes) == seen
    assert len(splits.query.classes) == count - seen
    assert splits.testable == (count > seen)


def test_with_all_seen_contains_every_image_once():
    base = class_split_listing(NAMES[:8])
    splits = ClassSplit()(base)
    twice = replace(splits, gallery=splits.query)
    made = twice.with_all_seen()
    assert sorted(made.train.names) == sorted(base.names)
    assert made.train.classes == base.classes
    for name, label in zip(made.train.names, made.train.labels, strict=True):
        assert label == base.labels[base.names.index(name)]
    assert len(made.query) == 0
    assert not made.testable
    images = np.zeros((3, 4, 4), np.uint8)
    one, two = (
        Listing(tuple("abc"), np.array([0, 0, 1]), classes, pixels=images + i)
        for i, classes in enumerate((("x", "z"), ("y", "x")))
    )
    made = Splits(one, two).with_all_seen()
    assert made.train.classes == ("x", "y", "z")
    assert made.train.labels.tolist() == [0, 0, 2, 1, 1, 0]
    assert made.train.pixels.max() == 1


def grid(classes: int, each: int) -> Listing:
    return listing([each] * classes)


def test_folds_cover_seen_classes_once():
    splits = Splits(train=grid(10, 3), query=grid(2, 4), name="made")
    held = []
    for fold in range(4):
        made = with_fold(splits, fold, 4)
        assert made.validation is made.query
        assert made.gallery is None
        assert not set(made.train.classes) & set(made.query.classes)
        assert set(made.train.names) | set(made.query.names) == set(splits.train.names)
        held += made.query.classes
    assert held == list(splits.train.classes)  # neighbouring classes, each in one fold


def test_too_few_classes_for_folds_are_rejected():
    with pytest.raises(ValueError, match="4 folds need 8"):
        with_fold(Splits(train=grid(7, 3), query=grid(2, 4)), 0, 4)


def test_stratified_subset_is_balanced():
    listing = grid(4, 10)
    assert np.bincount(listing.labels[stratified_subset(listing, 18)]).tolist() in (
        [5, 5, 4, 4], [5, 4, 5, 4], [5, 4, 4, 5], [4, 5, 5, 4], [4, 5, 4, 5], [4, 4, 5, 5],
    )  # fmt: skip
    assert stratified_subset(listing, 18).tolist() == stratified_subset(listing, 18).tolist()
    assert (
        stratified_subset(listing, 18, seed=1).tolist() != stratified_subset(listing, 18).tolist()
    )
    assert stratified_subset(listing, 99).tolist() == list(range(40))


def test_validation_by_images_keeps_every_class():
    made = with_validation(Splits(train=grid(4, 10), query=grid(4, 2)), 0.2, pictures=True)
    assert made.validation is not None
    assert made.train.counts().tolist() == [8] * 4
    assert made.validation.counts().tolist() == [2] * 4
    assert not set(made.train.names) & set(made.validation.names)


NAMES = tuple(f"class {i:02}" for i in range(10))


def class_split_listing(names=NAMES, each=3):
    labels = np.repeat(np.arange(len(names)), each)
    return Listing(tuple(map(str, range(len(labels)))), labels, names, root=Path("/p"))


def test_default_split_is_half_without_overlap():
    splits = ClassSplit()(class_split_listing())
    assert len(splits.train.classes) == len(splits.query.classes) == 5
    assert {*splits.train.classes, *splits.query.classes} == set(NAMES)
    assert len(splits.train) == len(splits.query) == 15


def test_split_is_deterministic_for_a_seed():
    assert ClassSplit().classes(NAMES) == ClassSplit().classes(NAMES[::-1])
    chosen = {tuple(ClassSplit(seed=seed).classes(NAMES)[1]) for seed in range(10)}
    assert len(chosen) > 5


def test_fraction_and_sorted_order():
    seen, unseen = ClassSplit(unseen_fraction=0.3, order="sorted").classes(NAMES)
    assert seen == list(NAMES[:7])
    assert unseen == list(NAMES[7:])


def test_explicit_class_lists():
    seen, unseen = ClassSplit(unseen_classes=NAMES[2:4]).classes(NAMES)
    assert unseen == list(NAMES[2:4])
    assert len(seen) == 8
    seen, unseen = ClassSplit(seen_classes=NAMES[:2]).classes(NAMES)
    assert seen == list(NAMES[:2])
    assert len(unseen) == 8
    both = ClassSplit(seen_classes=NAMES[:2], unseen_classes=NAMES[5:7])(class_split_listing())
    assert len(both.train) == len(both.query) == 6


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"unseen_fraction": -0.1}, "fraction must be"),
        ({"unseen_fraction": 1.0}, "fraction must be"),
        ({"order": "random"}, "order shuffled or sorted.*'random'"),
        ({"seen_classes": ("a",), "unseen_classes": ("a",)}, "either seen or unseen"),
    ],
)
def test_invalid_rule_is_rejected(fields, words):
    with pytest.raises(ValueError, match=words):
        ClassSplit(**fields)


def test_data_not_matching_the_rule_is_rejected():
    with pytest.raises(ValueError, match="'class 1'"):
        ClassSplit(unseen_classes=("class 1",)).classes(NAMES)
    with pytest.raises(ValueError, match="2 seen classes"):
        ClassSplit()(class_split_listing(NAMES[:1]))
    with pytest.raises(ValueError, match="none of the 5 test images"):
        ClassSplit()(class_split_listing(each=1))
