"""All pictures of a folder or table as one listing, to test a model that is trained already."""

from __future__ import annotations

import os

from .folder import whole_folder
from .listing import Listing
from .open_data import open_data
from .table import whole_table


def to_test_on(spec: str) -> tuple[Listing, Listing | None]:
    """Query and gallery: the test part of data that has one of its own, else every picture.

    Which classes of a plain folder were unseen by a model is not the folder's to say, so the rule
    that splits classes for training does not apply.
    """
    place, whole = os.path.expanduser(spec), None
    if os.path.isdir(place):
        whole = whole_folder(place)
    elif os.path.isfile(place) and place.lower().endswith((".csv", ".txt")):
        whole = whole_table(place)
    if whole is not None:
        return whole, None
    splits = open_data(spec)
    return splits.query, splits.gallery
