"""Image files: decoding to RGB whatever the format, and a cache of downscaled images."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import shutil
import stat
import struct
import tempfile
import threading
import warnings
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from proxysynth.data.transforms import resized
from proxysynth.errors import first_line, reason
from proxysynth.files import write_atomically
from proxysynth.formatting import printable
from proxysynth.memory import return_freed_memory, total_memory

# Anything else is refused before a decoder sees it: some of Pillow's formats start other programs.
FORMATS = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".webp", ".gif", ".bmp", ".dib", ".tif"}
    | {".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif"}
)
MAX_PIXELS = 178_956_970  # the largest image that is decoded; Pillow's own default refuses the same
LARGE = 1 << 25  # images of more pixels are decoded one at a time
BAND = 1 << 22  # pixels converted at a time
TOO_LARGE = "at most {:,} pixels are decoded, {}: shrink it first"

# By EXIF orientation. ImageOps.exif_transpose also writes the block again, which fails for many
# damaged ones.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_large = threading.Lock()

PathLike = str | os.PathLike[str]
Source = PathLike | BinaryIO

# MAX_PIXELS decides, and names the file; Pillow would warn earlier, without it. Appended to the
# filters, so that a user who made an error of the warning still gets it.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


class UnreadableImage(ValueError):
    """A file that cannot be decoded, and why."""

    def __init__(self, path: object, reason: str) -> None:
        super().__init__(path, reason)
        self.path = str(path) if isinstance(path, (str, os.PathLike)) else "given as bytes"
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read the image {printable(self.path)}: {self.reason}"


def open_image(
    source: Source | Image.Image, at_least: int | None = None, side: int = 0
) -> Image.Image:
    """The image as upright RGB: transparency on white, 16 bits scaled to 8, its first frame.

    A file and a Pillow image of it give the same pixels.

    Args:
        source: a path or an open file in one of FORMATS, whatever its name; or a Pillow image.
            Anything but a whole image of a reasonable size raises UnreadableImage.
        at_least: decode a JPEG at a half, a quarter or an eighth of its size if both sides keep
            this many pixels. With twice `side`: several times faster, and nearly the same pixels.
        side: the largest short side in pixels; smaller images are not enlarged. 0: any size.
    """
    try:
        with contextlib.ExitStack() as opened:
            if isinstance(source, Image.Image):
                return _decoded(source, side, owned=False)
            if not isinstance(source, (str, os.PathLike)):
                file = source
            elif stat.S_ISREG(os.stat(source).st_mode):
                # Not by Pillow, which may not close an image twice.
                file = opened.enter_context(open(source, "rb"))
            else:  # reading a pipe could block forever
                raise UnreadableImage(source, "it is a folder or a device, not a file")
            try:
                image = Image.open(file, formats=readable_formats())
            except UnidentifiedImageError as error:
                raise UnreadableImage(source, _what_it_is(file)) from error
            if image.width * image.height > MAX_PIXELS:
                size = f"it has {image.width} x {image.height}"
                raise UnreadableImage(source, TOO_LARGE.format(MAX_PIXELS, size))
            if at_least is not None:
                image.draft(None, (at_least, at_least))
            return _decoded(image, side, owned=True)
    except UnreadableImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UnreadableImage(source, TOO_LARGE.format(MAX_PIXELS, "it is larger")) from error
    except OSError as error:
        # errno: the file system's fault (missing, forbidden); none: Pillow's, about the bytes.
        raise UnreadableImage(source, reason(error).rstrip(".").lower()) from error
    except Exception as error:  # a decoder may fail on damaged bytes in any way
        raise UnreadableImage(source, f"it cannot be decoded ({first_line(error)})") from error


def _decoded(image: Image.Image, side: int, owned: bool) -> Image.Image:
    """`owned`: whether the image may be closed as soon as it is no longer needed."""
    # Threads that each decode a large image would need that many times its memory.
    large = image.width * image.height > LARGE
    with _large if large else contextlib.nullcontext():
        image.load()
        turn = None
        with contextlib.suppress(Exception):  # a damaged EXIF block must not cost the image
            turn = UPRIGHT.get(int(image.getexif().get(ExifTags.Base.Orientation, 1)))
        made = to_rgb(image)
        if large and owned and made is not image:
            image.close()  # the caller still refers to it
        if turn is not None:
            made = made.transpose(turn)
            made.info = {}  # the orientation is applied: it must not be applied again
        if side and min(made.size) > side:
            made = resized(made, side)
        if large:
            return_freed_memory()
        return made


def to_rgb(image: Image.Image) -> Image.Image:
    """Any mode as RGB, by bands: a copy of the whole image per step could fill the memory."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    convert = _eight_bits(image) if image.mode.startswith(("I", "F")) else _band_to_rgb
    if image.width * image.height <= BAND:
        return convert(image)
    made = Image.new("RGB", image.size)
    for box in _bands(image):
        made.paste(convert(image.crop(box)), box)
    return made


def _bands(image: Image.Image) -> list[tuple[int, int, int, int]]:
    width, height = image.size
    rows = max(1, BAND // width)
    return [(0, top, width, min(top + rows, height)) for top in range(0, height, rows)]


def _band_to_rgb(image: Image.Image) -> Image.Image:
    if image.has_transparency_data or image.mode in ("La", "RGBa"):
        layer = image.convert("RGBA")
        paper = Image.new("RGBA", layer.size, "white")
        return Image.alpha_composite(paper, layer).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """A function from bands of 16 or 32-bit integers or of floats to RGB: the upper 8 of 16 bits,
    floats in [0, 255] as they are, in [0, 1] times 255. A wider range has no convention and is
    scaled from its minimum to its maximum."""

    def finite(band: Image.Image) -> NDArray[np.float64]:
        return np.nan_to_num(np.asarray(band).astype(np.float64), posinf=0.0, neginf=0.0)

    extremes = [(part.min(), part.max()) for part in map(finite, map(image.crop, _bands(image)))]
    low, high = float(min(e[0] for e in extremes)), float(max(e[1] for e in extremes))
    wide = low < 0 or high > (255 if image.mode == "F" else 65535)

    def convert(band: Image.Image) -> Image.Image:
        values = finite(band)
        if wide:
            values = (values - low) * (255 / max(high - low, 1e-300))  # a constant image is black
        elif image.mode != "F":
            values = np.floor(values / 256)
        elif high <= 1:
            values = values * 255
        return Image.fromarray(np.rint(values).astype(np.uint8)).convert("RGB")

    return convert


@lru_cache(maxsize=1)
def readable_formats() -> tuple[str, ...]:
    """FORMATS as far as this Pillow has them."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _what_it_is(file: BinaryIO) -> str:
    """Why no decoder takes the file: what is most often saved under an image's name."""
    file.seek(0)
    head = file.read(512)
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if not head:
        return "the file is empty"
    if start.startswith((b"<!doctype", b"<html", b"<head", b"<body")):
        return "it is an HTML page, perhaps an error page saved under an image's name"
    if start.startswith((b"<svg", b"<?xml")):
        return "it is an XML or SVG file, which has no pixels"
    if start.startswith(b"version https://git-lfs"):
        return "it is a Git LFS pointer, fetch the file itself"
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"hevc"):
        return "it is a HEIC image, convert it to JPEG first"
    return "it is damaged or not one of " + ", ".join(readable_formats())


# The cache

GIGA = 1 << 30
VERSION = 1  # raised whenever a downscaled image would look different
HEADER = struct.Struct("<4sIII")  # magic, height, width, checksum
MAGIC = b"PSP1"


def cache_folder() -> Path:
    """`$PROXYSYNTH_CACHE`, else `~/.cache/proxysynth`; it may not exist yet."""
    if named := os.environ.get("PROXYSYNTH_CACHE"):
        return Path(named).expanduser()
    try:
        return Path.home() / ".cache" / "proxysynth"
    except RuntimeError:  # an account without a home
        return Path(tempfile.gettempdir()) / "proxysynth"


def file_state(path: PathLike) -> str:
    """A file's path, modification time and size: one changes whenever the content does."""
    state = [os.path.abspath(path)]
    with contextlib.suppress(OSError, ValueError):  # a missing file, or a name that none can have
        found = os.stat(path)
        state += [str(found.st_mtime_ns), str(found.st_size)]
    return "\0".join(state)


class ImageCache:
    """Downscaled images by path, in memory and on disk. Threads may share one.

    Every epoch, the first one too, sees the downscaled image: results do not depend on what is
    cached. Files are keyed by path, modification time and size, and may be deleted at any time.
    """

    def __init__(
        self,
        side: int = 256,  # the short side in pixels; more keeps detail in small random crops
        memory: float | None = None,  # bytes; default: a quarter of the machine's, at most 8 GB
        disk: int | None = None,  # bytes, at most half of what is free; default: 20 GB
        folder: PathLike | None = None,  # default: `pictures` in `cache_folder()`
    ) -> None:
        self.side = side
        self.folder = Path(folder) if folder is not None else cache_folder() / "pictures"
        if memory is None:
            total = total_memory()
            memory = min(total / 4, 8 * GIGA) if total < math.inf else GIGA
        self._memory_left = memory
        self._disk_limit = 20 * GIGA if disk is None else disk
        self._disk_left: int | None = 0 if disk == 0 else None  # None: not measured yet
        self._held: dict[str, NDArray[np.uint8]] = {}
        self._lock = threading.Lock()

    def image(self, path: PathLike) -> NDArray[np.uint8]:
        """The downscaled image (h, w, 3), read-only."""
        name = os.fspath(path)
        if (held := self._held.get(name)) is not None:
            return held
        file = self._file(name)
        made = self._read(file)
        if made is None:
            made = np.asarray(open_image(name, 2 * self.side or None, self.side))
            self._write(file, made)
        made.setflags(write=False)
        with self._lock:
            if made.nbytes <= self._memory_left and name not in self._held:
                self._memory_left -= made.nbytes
                self._held[name] = made
        return made

    def _file(self, name: str) -> Path:
        text = f"{file_state(name)}\0{self.side}\0{VERSION}\0{PIL.__version__}"
        key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self.folder / key[:2] / f"{key[2:]}.raw"

    def _read(self, path: Path) -> NDArray[np.uint8] | None:
        """An image from disk, or None if there is no intact one."""
        with contextlib.suppress(OSError, struct.error):
            data = path.read_bytes()
            magic, height, width, checksum = HEADER.unpack_from(data)
            body = memoryview(data)[HEADER.size :]
            whole = magic == MAGIC and len(body) == height * width * 3
            if whole and zlib.crc32(body) == checksum:
                return np.frombuffer(body, dtype=np.uint8).reshape(height, width, 3)
        return None

    def _write(self, path: Path, made: NDArray[np.uint8]) -> None:
        with self._lock:
            if self._disk_left is None:
                self._disk_left = 0
                with contextlib.suppress(OSError):
                    self.folder.mkdir(parents=True, exist_ok=True)
                    free = shutil.disk_usage(self.folder).free
                    used = sum(file.stat().st_size for file in self.folder.glob("*/*"))
                    self._disk_left = max(0, min(self._disk_limit - used, free // 2))
            if made.nbytes > self._disk_left:
                return
            self._disk_left -= made.nbytes
        body = np.ascontiguousarray(made).data.cast("B")
        header = HEADER.pack(MAGIC, *made.shape[:2], zlib.crc32(body))
        try:
            write_atomically(path, header + body)
        except OSError:  # full or read-only: do not try again for every image
            with self._lock:
                self._disk_left = 0
