"""Shrunken pictures, in memory and on disk: a 20-megapixel photograph is decoded once, not daily.

With a cache, every epoch sees the shrunken picture, the first one too. So what a run learns does
not depend on what happened to be cached. A file on disk is one picture's raw bytes, found by the
photograph's path, time and size; deleting the folder costs nothing but time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import struct
import threading
import zlib
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray

from .cache_folder import cache_folder, keep
from .pictures import UnreadablePicture, open_picture
from .transforms import resized

GIGA = 1 << 30
VERSION = 1  # raised whenever a shrunken picture would look different
HEADER = struct.Struct("<4sIII")  # magic, height, width, checksum
MAGIC = b"PSP1"


def shrunken(path: str | os.PathLike[str], side: int) -> NDArray[np.uint8]:
    """The picture (h, w, 3) with its short side at most `side`; never enlarged.

    A JPEG much larger than that is decoded at a half, a quarter or an eighth of its size, but never
    below twice `side`, where the difference cannot be seen.
    """
    image = open_picture(path, at_least=2 * side)
    return np.asarray(resized(image, side) if min(image.size) > side else image)


class PictureCache:
    """Shrunken pictures by path. Threads may share one.

    Args:
        side: the short side in pixels. For crops of 224 the default of 256 is what evaluation
            resizes to anyway; take more to keep finer detail in small random crops.
        memory: bytes of pictures kept in memory; by default a quarter of what the machine has, at
            most 8 GB. What comes first stays.
        disk: bytes that the folder may hold, kept for later runs; by default 20 GB, at most half
            of what is free. 0 keeps nothing.
        folder: where; by default the package's cache folder.
    """

    def __init__(
        self,
        side: int = 256,
        memory: int | None = None,
        disk: int | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if side < 1:
            raise ValueError(f"the side of a cached picture must be at least 1, got {side}")
        self.side = side
        self.folder = Path(folder) if folder is not None else cache_folder() / "pictures"
        self._memory_left = _memory_budget() if memory is None else memory
        self._disk_asked = disk
        self._disk_left: int | None = 0 if disk == 0 else None  # None: not measured yet
        self._held: dict[str, NDArray[np.uint8]] = {}
        self._lock = threading.Lock()

    def picture(self, path: str | os.PathLike[str]) -> NDArray[np.uint8]:
        """The shrunken picture (h, w, 3), read-only."""
        name = os.fspath(path)
        held = self._held.get(name)
        if held is not None:
            return held
        kept_at = self._place(name)
        made = self._read(kept_at)
        if made is None:
            made = shrunken(name, self.side)
            self._write(kept_at, made)
        made.setflags(write=False)
        with self._lock:
            if made.nbytes <= self._memory_left and name not in self._held:
                self._memory_left -= made.nbytes
                self._held[name] = made
        return made

    def _place(self, name: str) -> Path:
        try:
            found = os.stat(name)
        except OSError as error:
            raise UnreadablePicture(name, os.strerror(error.errno or 0).lower()) from error
        except ValueError as error:  # a name that no file can have
            raise UnreadablePicture(name, str(error)) from error
        about = (os.path.abspath(name), found.st_mtime_ns, found.st_size, self.side, VERSION)
        text = "\0".join(str(item) for item in (*about, PIL.__version__))
        key = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self.folder / key[:2] / f"{key[2:]}.raw"

    def _read(self, path: Path) -> NDArray[np.uint8] | None:
        """A picture from disk, or None where none is whole."""
        try:
            data = path.read_bytes()
        except OSError:
            return None
        if len(data) < HEADER.size:
            return None
        magic, height, width, check = HEADER.unpack_from(data)
        body = memoryview(data)[HEADER.size :]
        if magic != MAGIC or len(body) != height * width * 3 or zlib.crc32(body) != check:
            return None
        return np.frombuffer(body, dtype=np.uint8).reshape(height, width, 3)

    def _write(self, path: Path, made: NDArray[np.uint8]) -> None:
        with self._lock:
            if self._disk_left is None:
                self._disk_left = _disk_budget(self.folder, self._disk_asked)
            if made.nbytes > self._disk_left:
                return
            self._disk_left -= made.nbytes
        body = np.ascontiguousarray(made).data.cast("B")
        header = HEADER.pack(MAGIC, made.shape[0], made.shape[1], zlib.crc32(body))
        if not keep(path, [header, body]):
            with self._lock:
                self._disk_left = 0  # full or read-only: do not try again for every picture


def _memory_budget() -> int:
    """A quarter of the memory that this process may use, at most 8 GB."""
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not every system tells
        whole = 4 * GIGA
    with contextlib.suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        whole = min(whole, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(whole // 4, 8 * GIGA)


def _disk_budget(folder: Path, asked: int | None) -> int:
    """What may still be written: what was asked for less what is there, never all that is free."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(folder).free
        there = sum(
            entry.stat().st_size
            for part in os.scandir(folder)
            if part.is_dir()
            for entry in os.scandir(part)
        )
    except OSError:
        return 0
    return max(0, min((20 * GIGA if asked is None else asked) - there, free // 2))
