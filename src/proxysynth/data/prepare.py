"""A shrunken copy of a benchmark, in the same layout: the same loader reads it, many times faster.

Label files are copied, pictures are written with a short side of at most `side`. A picture that is
small enough already is copied byte by byte. Each file is whole or not there, so a copy that was
broken off goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxysynth.values import look_up

from .benchmarks.catalogue import CATALOGUE
from .benchmarks.opening import present_parts, read_contents, splits_of
from .check import BadPictures, Progress
from .pictures import UnreadablePicture, open_picture
from .transforms import resized

QUALITY = 95
RECORD = "prepared.json"


@dataclass(frozen=True)
class PreparedCopy:
    """What was done.

    Args:
        root: the folder of the new copy.
        written: pictures written now.
        kept: pictures that an earlier start had written already.
        unreadable: pictures left out because they cannot be read, and why.
    """

    root: str
    written: int
    kept: int
    unreadable: tuple[tuple[str, str], ...] = ()


def prepare_benchmark(
    name: str,
    root: str | os.PathLike[str],
    out: str | os.PathLike[str],
    side: int = 256,
    incomplete: bool = False,
    workers: int = 0,
    progress: Progress | None = None,
) -> PreparedCopy:
    """Write a shrunken copy of a benchmark.

    Args:
        name: a key of CATALOGUE.
        root: the folder of the copy at hand, which is only read.
        out: the folder of the new copy; what is there already is kept.
        side: the most that the short side of a picture may have, in pixels.
        incomplete: take what is there of an incomplete copy, and leave out unreadable pictures.
        workers: threads that shrink pictures.
        progress: called with pictures done and pictures in all.

    Raises:
        BadPictures: where pictures cannot be read; all others have been written then.
    """
    entry = look_up(name, CATALOGUE, "benchmark")
    if side < 1:
        raise ValueError(f"the side of a shrunken picture must be at least 1 pixel, got {side}")
    if entry.side is not None and side >= entry.side:
        raise ValueError(
            f"the pictures of {entry.title} are {entry.side} x {entry.side} already, no larger "
            f"than {side}: use it as it is"
        )
    contents = read_contents(name, root)
    splits_of(contents, entry, incomplete)  # an error where the copy is not whole
    if any(part.root is None for part in contents.parts.values()):
        raise ValueError(f"{entry.title} is not kept as pictures, which alone are shrunken")
    target = Path(os.path.abspath(os.path.expanduser(out)))
    base = contents.base
    if Path(os.path.realpath(target)).is_relative_to(os.path.realpath(base)):
        raise ValueError(f"the shrunken copy must lie outside of {base}, got {target}")
    prints = [part.fingerprint() for part in contents.parts.values()]
    _begin(target, {"benchmark": name, "side": side, "pictures": prints})
    for file in contents.files:
        _write(target / file, (base / file).read_bytes())

    def shrink(picture: str) -> UnreadablePicture | bool:
        """Whether it was written now, or why it cannot be."""
        if (target / picture).exists():
            return False
        try:
            data = _shrunken(base / picture, side)
        except UnreadablePicture as error:
            return error
        _write(target / picture, data)
        return True

    pictures = [file for part in present_parts(contents).values() for file in part.names]
    written, bad = 0, {}
    with ThreadPoolExecutor(max(1, workers)) as pool:
        try:
            for done, made in enumerate(pool.map(shrink, pictures), start=1):
                if isinstance(made, UnreadablePicture):
                    bad[pictures[done - 1]] = made
                else:
                    written += made
                if progress is not None:
                    progress(done, len(pictures))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    if bad and not incomplete:
        raise BadPictures(tuple(bad.values()), len(pictures))
    kept = len(pictures) - written - len(bad)
    unreadable = tuple((file, error.reason) for file, error in bad.items())
    return PreparedCopy(str(target), written, kept, unreadable)


def _shrunken(path: Path, side: int) -> bytes:
    """The file of a picture with its short side at most `side`."""
    image = open_picture(path, at_least=2 * side)
    if min(image.size) <= side:
        return path.read_bytes()
    data = io.BytesIO()
    kind = "PNG" if path.suffix.lower() == ".png" else "JPEG"
    resized(image, side).save(data, kind, quality=QUALITY)
    return data.getvalue()


def _begin(target: Path, record: dict[str, Any]) -> None:
    """Start a copy, or go on with one that was started just so."""
    file = target / RECORD
    if file.exists():
        try:
            there = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            there = None
        if there != record:
            raise ValueError(
                f"{target} holds a copy that was prepared from other pictures or with another "
                f"side: give another folder, or remove it first"
            )
        return
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"{target} has other files already: give a new folder for the copy")
    _write(file, json.dumps(record).encode())


def _write(path: Path, data: bytes) -> None:
    """Write a file at once or not at all."""
    unfinished: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except OSError as error:
        if unfinished is not None:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        reason = (error.strerror or "unknown").lower()
        raise ValueError(f"cannot write {path}: {reason}") from error
