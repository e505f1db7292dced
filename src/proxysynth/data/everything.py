"""All pictures of a folder or table as one listing, to test a model that is trained already."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from .folder import LAYOUTS
from .listing import Listing
from .splits import Splits


def to_test_on(spec: str, splits: Splits) -> tuple[Listing, Listing | None]:
    """Query and gallery: the test part of data that has one of its own, else every picture.

    Which classes of a plain folder were unseen by a model is not the folder's to say, so the rule
    that splits classes for training does not apply.
    """
    place = os.path.expanduser(spec)
    if os.path.isdir(place):
        found = {entry.name for entry in os.scandir(place) if entry.is_dir()}
        if found - {"validation"} not in LAYOUTS:
            return joined(splits.train, splits.query), None
    return splits.query, splits.gallery


def joined(a: Listing, b: Listing) -> Listing:
    """Two listings of files under one root, with the classes of both."""
    classes = tuple(sorted({*a.classes, *b.classes}))
    place = {name: number for number, name in enumerate(classes)}
    labels = [
        np.array([place[name] for name in part.classes], dtype=np.int64)[part.labels]
        for part in (a, b)
    ]
    return replace(a, names=(*a.names, *b.names), labels=np.concatenate(labels), classes=classes)
