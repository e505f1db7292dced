"""Small pictures as data URIs, from the data that a run names; where it is gone, none."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from proxysynth.data import Listing, UnreadablePicture, open_picture, picture
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Run

SIDE = 128  # pixels; shown at about half of it, for dense screens
LOSSLESS = 64  # up to this side a PNG is smaller than a JPEG and sharper


@dataclass(frozen=True, eq=False)
class Album:
    """The pictures of a listing, by their place in the run's test.

    Attributes:
        listing: the pictures as they are now.
        places: for each picture of the test its index in the listing; None where it is gone.
    """

    listing: Listing
    places: tuple[int | None, ...]

    def thumbnail(self, index: int) -> str | None:
        """One picture as a data URI; None where it is gone or cannot be read."""
        place = self.places[index]
        return None if place is None else thumbnail(self.listing, place)


@dataclass(frozen=True, eq=False)
class Pictures:
    """The pictures of a test, and one sentence if they cannot be shown."""

    query: Album | None
    gallery: Album | None
    missing: str = ""

    def of_query(self, index: int) -> str | None:
        return None if self.query is None else self.query.thumbnail(index)

    def of_gallery(self, index: int) -> str | None:
        return None if self.gallery is None else self.gallery.thumbnail(index)


def open_pictures(run: Run, query: Sequence[str], gallery: Sequence[str] | None) -> Pictures:
    """The test pictures of a run by their names.

    Args:
        run: says where the data is.
        query: the names of the queries as the run saw them.
        gallery: the same of the gallery; None where the queries are their own.
    """
    try:
        splits = open_splits(run)
    except (ValueError, OSError) as error:
        return Pictures(None, None, f"The pictures cannot be shown: {error}.")
    queries = album(splits.query, query)
    if gallery is None:
        there: Album | None = queries
    else:
        there = None if splits.gallery is None else album(splits.gallery, gallery)
    if there is None or all(place is None for place in (*queries.places, *there.places)):
        return Pictures(
            None, None, f"The pictures cannot be shown: {run.data} no longer has those of the test."
        )
    return Pictures(queries, there)


def album(listing: Listing, names: Sequence[str]) -> Album:
    """The pictures of these names: a name finds its picture wherever in the listing it is now."""
    place = {name: index for index, name in enumerate(listing.names)}
    return Album(listing, tuple(place.get(name) for name in names))


def thumbnail(listing: Listing, index: int, side: int = SIDE) -> str | None:
    """One picture, its longer side at most `side`, as a data URI; None where it cannot be read."""
    try:
        if listing.root is None:
            image = picture(listing, index)
        else:
            image = open_picture(listing.path(index), at_least=side)
    except UnreadablePicture:
        return None
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        image.save(file, "PNG", optimize=True)
        kind = "png"
    else:
        image.save(file, "JPEG", quality=82)
        kind = "jpeg"
    return f"data:image/{kind};base64,{base64.b64encode(file.getvalue()).decode()}"
