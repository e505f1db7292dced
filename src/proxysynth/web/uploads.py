"""An uploaded picture: looked at, decoded within bounds, never kept."""

from __future__ import annotations

from typing import BinaryIO

from PIL import Image

from proxysynth.data.pictures import FORMATS, UnreadablePicture
from proxysynth.search.describe_model import PictureEmbedder
from proxysynth.training.load import Picture

from .limits import Limits
from .refusal import Refused


def decode(file: BinaryIO, limits: Limits, embedder: PictureEmbedder) -> Picture:
    """The picture in the file, upright, as the embedder takes it.

    What it is follows from its bytes, never from its name or from what the client calls it.
    """
    check_pixels(file, limits)
    file.seek(0)
    try:
        return embedder.opened(file)
    except UnreadablePicture as error:
        raise Refused(415, f"the file is not a picture that can be read: {error.reason}") from error


def check_pixels(file: BinaryIO, limits: Limits) -> None:
    """Refuse what would be too large once decoded, by its header alone.

    What has no header that can be read is left for `open_picture`, which says what it is.
    """
    file.seek(0)
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    try:
        with Image.open(file, formats=known) as image:
            width, height = image.size
    except Image.DecompressionBombError as error:
        raise Refused(413, _too_many(limits)) from error
    except Exception:  # a damaged header may stumble in any way
        return
    if width * height > limits.pixels:
        raise Refused(413, _too_many(limits, f"it has {width} x {height}"))


def _too_many(limits: Limits, found: str = "it is larger") -> str:
    return f"at most {limits.pixels:,} pixels are decoded, {found}: shrink the picture first"
