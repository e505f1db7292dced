from pathlib import Path

import numpy as np
import pytest

from proxysynth.data import ClassSplit, Listing

NAMES = tuple(f"class {i:02}" for i in range(10))


def listing(names=NAMES, each=3):
    labels = np.repeat(np.arange(len(names)), each)
    return Listing(tuple(map(str, range(len(labels)))), labels, names, root=Path("/p"))


def test_half_by_default_without_overlap():
    splits = ClassSplit()(listing())
    assert len(splits.train.classes) == len(splits.query.classes) == 5
    assert {*splits.train.classes, *splits.query.classes} == set(NAMES)
    assert len(splits.train) == len(splits.query) == 15


def test_the_rule_is_fixed_and_the_seed_changes_it():
    assert ClassSplit().classes(NAMES) == ClassSplit().classes(NAMES[::-1])
    chosen = {tuple(ClassSplit(seed=seed).classes(NAMES)[1]) for seed in range(10)}
    assert len(chosen) > 5


def test_fraction_and_sorted_order():
    seen, unseen = ClassSplit(unseen_fraction=0.3, order="sorted").classes(NAMES)
    assert seen == list(NAMES[:7])
    assert unseen == list(NAMES[7:])


def test_explicit_lists():
    seen, unseen = ClassSplit(unseen_classes=NAMES[2:4]).classes(NAMES)
    assert unseen == list(NAMES[2:4])
    assert len(seen) == 8
    seen, unseen = ClassSplit(seen_classes=NAMES[:2]).classes(NAMES)
    assert seen == list(NAMES[:2])
    assert len(unseen) == 8
    both = ClassSplit(seen_classes=NAMES[:2], unseen_classes=NAMES[5:7])(listing())
    assert len(both.train) == len(both.query) == 6


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"unseen_fraction": 0.0}, "between 0 and 1"),
        ({"unseen_fraction": 1.0}, "between 0 and 1"),
        ({"order": "random"}, "'shuffled' or 'sorted'"),
        ({"seen_classes": ("a",), "unseen_classes": ("a",)}, "either seen or unseen"),
    ],
)
def test_faults_of_the_rule(fields, words):
    with pytest.raises(ValueError, match=words):
        ClassSplit(**fields)


def test_faults_of_the_data():
    with pytest.raises(ValueError, match="no class 'class 1' in the data: did you mean"):
        ClassSplit(unseen_classes=("class 1",)).classes(NAMES)
    with pytest.raises(ValueError, match="classes found \\(3\\), 1 would be trained on and 2"):
        ClassSplit()(listing(NAMES[:3]))
    with pytest.raises(ValueError, match="none of the 5 test pictures"):
        ClassSplit()(listing(each=1))
