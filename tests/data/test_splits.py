from pathlib import Path

import numpy as np
import pytest

from proxysynth.data import Listing, Splits, spread, with_fold, with_validation
from proxysynth.data.splits import require_usable


def listing(counts, prefix="class"):
    labels = np.repeat(np.arange(len(counts)), counts)
    names = tuple(f"{prefix}{label}/{i}" for i, label in enumerate(labels))
    classes = tuple(f"{prefix}{i}" for i in range(len(counts)))
    return Listing(names, labels, classes, root=Path("/p"))


def test_validation_takes_whole_classes_out_of_training():
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


def test_a_validation_that_came_with_the_data_is_kept():
    splits = Splits(listing([3] * 4), listing([2, 2]), validation=listing([2, 2], "own"))
    assert with_validation(splits) is splits


def test_too_few_classes_to_hold_out():
    with pytest.raises(ValueError, match="leaves fewer than 2 to train on"):
        with_validation(Splits(listing([3] * 3), listing([2, 2])))
    with pytest.raises(ValueError, match="between 0 and 1"):
        with_validation(Splits(listing([3] * 9), listing([2, 2])), fraction=1.0)


def test_queries_without_a_positive_are_counted():
    own_gallery = Splits(listing([2, 2]), listing([1, 3, 1], "test"))
    assert own_gallery.without_positive() == 2
    assert any("2 of 5 test pictures" in remark for remark in own_gallery.remarks())
    apart = Splits(listing([2, 2]), listing([1, 3, 1]), gallery=listing([1, 0, 2]))
    assert apart.without_positive() == 3


def test_classes_both_trained_and_tested_are_named():
    splits = Splits(listing([2, 2, 2]), listing([2, 2]))
    assert any("All test classes are also trained on" in remark for remark in splits.remarks())
    assert Splits(listing([2, 2]), listing([2, 2], "other")).remarks() == ()


def test_describe_names_each_listing():
    text = Splits(listing([2, 2]), listing([2, 2], "t"), notes=("A note.",)).describe()
    assert text.splitlines() == [
        "train: 4 pictures of 2 classes",
        "test: 4 pictures of 2 classes",
        "A note.",
    ]


def test_test_is_the_query_where_there_is_no_gallery():
    splits = Splits(listing([2, 2]), listing([2, 2]))
    assert splits.test is splits.query
    with pytest.raises(ValueError, match="query and gallery apart"):
        _ = Splits(listing([2, 2]), listing([2, 2]), gallery=listing([2, 2])).test


def test_query_and_gallery_share_a_table_of_classes():
    with pytest.raises(ValueError, match="one table of classes"):
        Splits(listing([2, 2]), listing([2, 2]), gallery=listing([2, 2], "other"))


def test_fingerprint_tells_the_parts_apart():
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
        (Splits(listing([2, 2]), listing([4])), "at least 2 unseen classes, got 1"),
        (Splits(listing([2, 2]), listing([1, 1, 1])), "none of the 3 test pictures"),
    ],
)
def test_hopeless_splits_are_refused(splits, words):
    with pytest.raises(ValueError, match=words):
        require_usable(splits)


def grid(classes: int, each: int) -> Listing:
    return listing([each] * classes)


def test_folds_cover_the_seen_classes_once():
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


def test_fewer_classes_than_folds():
    with pytest.raises(ValueError, match="4 folds need at least 2 seen classes each, 8 in all"):
        with_fold(Splits(train=grid(7, 3), query=grid(2, 4)), 0, 4)


def test_spread_takes_as_many_of_each_class():
    listing = grid(4, 10)
    assert np.bincount(listing.labels[spread(listing, 18)]).tolist() in (
        [5, 5, 4, 4], [5, 4, 5, 4], [5, 4, 4, 5], [4, 5, 5, 4], [4, 5, 4, 5], [4, 4, 5, 5],
    )  # fmt: skip
    assert spread(listing, 18).tolist() == spread(listing, 18).tolist()
    assert spread(listing, 18, seed=1).tolist() != spread(listing, 18).tolist()
    assert spread(listing, 99).tolist() == list(range(40))


def test_validation_by_pictures_keeps_every_class():
    made = with_validation(Splits(train=grid(4, 10), query=grid(4, 2)), 0.2, pictures=True)
    assert made.validation is not None
    assert made.train.counts().tolist() == [8] * 4
    assert made.validation.counts().tolist() == [2] * 4
    assert not set(made.train.names) & set(made.validation.names)
