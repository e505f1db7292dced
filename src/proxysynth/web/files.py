"""Pictures of the index as the browser gets them: only files it lists, always encoded anew.

A number is all that a request can name, so no path comes from outside. What is sent has been
decoded and encoded again: whatever else a file holds (where it was taken, a page under a picture's
name) stays here.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from PIL import Image

from proxysynth.data.pictures import UnreadablePicture, open_picture

from .limits import Limits
from .refusal import Refused
from .uploads import check_pixels

THUMBNAIL, PICTURE = 320, 1600
"""The longer side in pixels, at most."""

TINY = 128

KEPT = 64 * 2**20
"""Bytes of thumbnails kept in memory."""


def open_listed(root: Path, path: str) -> BinaryIO:
    """The file of the index at `path` below `root`; an error where a link leads out of there."""
    try:
        home = os.path.realpath(root)
        place = os.path.realpath(os.path.join(home, path))
        if os.path.commonpath([home, place]) != home or not os.path.isfile(place):
            raise Refused(404, f"the picture {path} is not in the index's folder any more")
        # The path was resolved above: a link that stands there now was put there since.
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError) as error:
        raise Refused(404, f"the picture {path} cannot be read: index the folder again") from error
    return os.fdopen(handle, "rb")


def encoded(root: Path, path: str, side: int, limits: Limits) -> bytes:
    """The picture as a JPEG whose longer side is at most `side`."""
    with open_listed(root, path) as file:
        check_pixels(file, limits)
        file.seek(0)
        try:
            image = open_picture(file, at_least=2 * side)
        except UnreadablePicture as error:
            reason = f"the picture {path} cannot be shown: {error.reason}"
            raise Refused(404, reason) from error
    image.info.clear()  # comments and profiles would be written along
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    # In a tiny picture every pixel is seen.
    image.save(out, "JPEG", quality=88 if max(image.size) > TINY else 97)
    return out.getvalue()


class Thumbnails:
    """Thumbnails by item, the ones last asked for kept. Threads may share one."""

    def __init__(self, limits: Limits, kept: int = KEPT) -> None:
        self._limits = limits
        self._left = kept
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._lock = Lock()

    def get(self, generation: str, number: int, root: Path, path: str) -> bytes:
        """The thumbnail of an item."""
        key = (generation, number)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        made = encoded(root, path, THUMBNAIL, self._limits)
        with self._lock:
            if key not in self._held:
                self._held[key] = made
                self._left -= len(made)
            while self._left < 0 and self._held:
                self._left += len(self._held.popitem(last=False)[1])
        return made
