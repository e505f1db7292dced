"""Images in and out: uploads decoded within limits, images of the index always re-encoded.

An upload is never stored. A request names an image of the index by its number, so no path comes
from outside, and what is sent has been decoded and encoded again: whatever else a file holds (the
place where it was taken, an HTML page under the name of an image) is not sent.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import BinaryIO

from PIL import Image

from proxysynth.data.images import UnreadableImage, open_image, readable_formats
from proxysynth.memory import return_freed_memory
from proxysynth.web.guard import Limits, Refused

THUMBNAIL, LARGE = 320, 1600  # pixels of the longer side, at most
BIG = 4_000_000  # pixels of an image whose memory is returned to the system at once


def decode_upload(file: BinaryIO, limits: Limits, side: int) -> Image.Image:
    """The uploaded image, upright, its short side at most `side`, if that is not 0.

    Its format follows from its bytes, never from its name or the content type of the request.
    """
    pixels = check_pixels(file, limits)
    try:
        return open_image(file, side=side)
    except UnreadableImage as error:
        raise Refused(415, f"the file is not an image that can be read: {error.reason}") from error
    finally:
        release_memory(pixels)


def release_memory(pixels: int) -> None:
    """Return freed memory to the system after a large image."""
    if pixels >= BIG:
        return_freed_memory()


def check_pixels(file: BinaryIO, limits: Limits) -> int:
    """The number of pixels by the header alone; an error if there are too many to decode.

    0 for a file without a readable header: `open_image` will say what it is.
    """
    file.seek(0)
    too_many = f"at most {limits.pixels:,} pixels are decoded"
    try:
        with Image.open(file, formats=readable_formats()) as image:
            width, height = image.size
    except Image.DecompressionBombError as error:
        raise Refused(413, f"{too_many}, it has more: shrink the image first") from error
    except Exception:  # a damaged header may raise anything
        width = height = 0
    finally:
        file.seek(0)
    if width * height > limits.pixels:
        raise Refused(413, f"{too_many}, it has {width} x {height}: shrink the image first")
    return width * height


def open_listed(root: Path, path: str) -> BinaryIO:
    """The file at `path` below `root`; an error if a link leads out of it."""
    try:
        home = os.path.realpath(root)
        place = os.path.realpath(os.path.join(home, path))
        if os.path.commonpath([home, place]) != home or not os.path.isfile(place):
            raise Refused(404, f"the image {path} is no longer in the folder of the index")
        # The path is resolved: if it is a link now, somebody has just put it there.
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except (OSError, ValueError) as error:
        raise Refused(404, f"the image {path} cannot be read: index the folder again") from error
    return os.fdopen(handle, "rb")


def encoded_image(root: Path, path: str, side: int, limits: Limits) -> bytes:
    """The image as a JPEG whose longer side is at most `side`."""
    with open_listed(root, path) as file:
        pixels = check_pixels(file, limits)
        try:
            image = open_image(file, at_least=2 * side)
        except UnreadableImage as error:
            raise Refused(404, f"the image {path} cannot be shown: {error.reason}") from error
    image.info.clear()  # otherwise comments and profiles would be written
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=92)
    del image
    release_memory(pixels)
    return out.getvalue()
