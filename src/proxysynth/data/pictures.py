"""One picture from a file to RGB, whatever its format, mode, depth, transparency or rotation."""

from __future__ import annotations

import os
import stat
import warnings
from functools import lru_cache
from typing import BinaryIO

import numpy as np
from PIL import Image, UnidentifiedImageError

# What may be decoded. Anything else is refused before a decoder sees it: some of Pillow's formats
# start other programs.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif"}
    | {".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"}
)
# The largest picture that is decoded, in pixels; Pillow's own default refuses the same.
MAX_PIXELS = 178_956_970

_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


Source = str | os.PathLike[str] | BinaryIO


# MAX_PIXELS decides, by the name of the file; Pillow would warn earlier, without it. Last in the
# list, so that whoever has made an error of the warning still has it.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


class UnreadablePicture(ValueError):
    """A file that gives no picture, and why."""

    def __init__(self, path: Source, reason: str) -> None:
        super().__init__(path, reason)
        self.path = str(path) if isinstance(path, (str, os.PathLike)) else "given as bytes"
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read the picture {self.path}: {self.reason}"


def open_picture(source: Source, at_least: int | None = None) -> Image.Image:
    """The picture as upright RGB: transparency on white, 16 bits scaled to 8, its first frame.

    Args:
        source: a file in one of FORMATS, whatever its name ends in, by path or opened.
        at_least: a JPEG may be decoded smaller, as long as both sides keep this many pixels.

    Raises:
        UnreadablePicture: for anything that is not a whole picture of a sensible size.
    """
    try:
        if isinstance(source, (str, os.PathLike)) and not stat.S_ISREG(os.stat(source).st_mode):
            # Reading a pipe could wait for ever.
            raise UnreadablePicture(source, "it is a folder or a device, not a file")
        with Image.open(source, formats=_formats()) as image:
            if image.width * image.height > MAX_PIXELS:
                raise UnreadablePicture(source, _too_large(image.size))
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            image.load()
            return _upright(to_rgb(image), _orientation(image))
    except UnreadablePicture:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadablePicture(source, _too_large(None)) from error
    except UnidentifiedImageError as error:
        raise UnreadablePicture(source, _what_it_is(source)) from error
    except MemoryError as error:
        raise UnreadablePicture(source, "it does not fit into memory") from error
    except OSError as error:
        # errno: the file system's fault (missing, forbidden); none: Pillow's, about the bytes.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise UnreadablePicture(source, reason.rstrip(".").lower()) from error
    except Exception as error:  # a decoder may stumble over damaged bytes in any way
        raise UnreadablePicture(source, f"it cannot be decoded ({error})") from error


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.has_transparency_data or image.mode in ("La", "RGBa"):
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> np.ndarray:
    """Integers of 16 or 32 bits, and floats, as grey uint8.

    Sixteen bits are the usual case: their upper eight. Floats in [0, 1] are stretched to 255, in
    [0, 255] kept; anything wider has no agreed range and is stretched from its least to its most.
    """
    values = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    if low < 0 or high > (255 if image.mode == "F" else 65535):
        values = (values - low) * (255 / max(high - low, 1e-300))  # one value alone is black
    elif image.mode != "F":
        values = np.floor(values / 256)
    elif high <= 1:
        values = values * 255
    return np.rint(values).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(_EXIF_ORIENTATION, 1))
    except Exception:  # a damaged EXIF block must not cost the picture
        return 1


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    turn = _UPRIGHT.get(orientation)
    return image if turn is None else image.transpose(turn)


@lru_cache(maxsize=1)
def _formats() -> tuple[str, ...]:
    """FORMATS as far as this Pillow has them."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _too_large(size: tuple[int, int] | None) -> str:
    found = "it is larger" if size is None else f"it has {size[0]} x {size[1]}"
    return f"at most {MAX_PIXELS:,} pixels are decoded, {found}: shrink it first"


def _what_it_is(source: Source) -> str:
    """Why no decoder took the file: what people most often find under a picture's name."""
    if isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            head = file.read(512)
    else:
        source.seek(0)
        head = source.read(512)
    if not head:
        return "the file is empty"
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<body")):
        return "it is an HTML page, perhaps an error page saved under a picture's name"
    if start.startswith((b"<svg", b"<?xml")):
        return "it is an XML or SVG file, which has no pixels"
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, fetch the file itself"
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"hevc"):
        return "it is a HEIC picture, convert it to JPEG first"
    return "it is damaged or not one of " + ", ".join(_formats())
