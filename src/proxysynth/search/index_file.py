"""The file of an index: safetensors, so that any program can read it and none runs code from it.

    embeddings  (n, d) float32    rows of unit length
    stamps      (n, 2) int64      size and time of each file, in bytes and nanoseconds
    path_ends   (n + 1,) int64    path_text   uint8     paths, sorted by their bytes: see `texts`
    label_ends  (c + 1,) int64    label_text  uint8     the labels' names
    label_codes (n,) int32        each item's label, -1 for none

The header's metadata holds one JSON text about the model and the folder. Everything else is mapped:
opening ten million items reads a few hundred bytes.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxysynth.files import UNFINISHED, CannotWrite, sync_folder

FORMAT = 1
ABOUT = "proxysynth_index"
TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}
# In the order of the file: wide numbers first, so that each begins where its kind may.
PARTS = {
    "path_ends": "I64",
    "label_ends": "I64",
    "stamps": "I64",
    "embeddings": "F32",
    "label_codes": "I32",
    "path_text": "U8",
    "label_text": "U8",
}
LONGEST_HEADER = 1 << 24


class NotAnIndex(ValueError):
    """A file that is no index, or a damaged one; its text is one sentence."""


class Mapped(NamedTuple):
    """An opened file: what it says about itself, and its arrays."""

    about: dict[str, Any]
    parts: dict[str, NDArray[Any]]
    stamp: tuple[int, int, int]


def map_index(path: Path) -> Mapped:
    """Map the file. What is mapped stays as it is when another file takes its place."""
    try:
        with open(path, "rb") as file:
            return _mapped(path, file.fileno())
    except FileNotFoundError as error:
        raise NotAnIndex(
            f"there is no index {path}: make one with `proxysynth index RUN FOLDER -o {path}`"
        ) from error
    except OSError as error:
        raise NotAnIndex(f"cannot open the index {path}: {_reason(error)}") from error


def file_stamp(path: Path | int) -> tuple[int, int, int]:
    """Changes when the file is replaced."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


def _mapped(path: Path, handle: int) -> Mapped:
    stamp = file_stamp(handle)
    size = stamp[2]
    length = struct.unpack("<Q", os.read(handle, 8))[0] if size >= 8 else size
    if not 2 <= length <= min(size - 8, LONGEST_HEADER):
        raise NotAnIndex(f"{path} is not an index of proxysynth: its header is no header")
    try:
        header = json.loads(os.read(handle, length))
        told = json.loads(header["__metadata__"][ABOUT])
        version = told["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise NotAnIndex(
            f"{path} is not an index of proxysynth: give a file that `proxysynth index` made"
        ) from error
    if not isinstance(version, int) or version > FORMAT:
        raise NotAnIndex(
            f"{path} was written by a newer version of proxysynth (format {version}, this one "
            f"reads {FORMAT}): upgrade proxysynth, or index the folder again"
        )
    whole = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
    try:
        parts = _parts(header, whole, 8 + length)
        _check_shapes(parts)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise NotAnIndex(
            f"the index {path} is damaged ({error}): index the folder again with --rebuild"
        ) from error
    return Mapped(told, parts, stamp)


def _parts(header: Mapping[str, Any], whole: mmap.mmap, begin: int) -> dict[str, NDArray[Any]]:
    """The arrays, each checked to lie in the file, at a fitting place, over no other."""
    parts, taken = {}, []
    for name, kind in PARTS.items():
        if name not in header:
            raise ValueError(f"{name} is missing")
        entry = header[name]
        shape, (start, stop) = entry["shape"], entry["data_offsets"]
        whole_numbers = (*shape, start, stop)
        if entry["dtype"] != kind or any(type(n) is not int or n < 0 for n in whole_numbers):
            raise ValueError(f"{name} is described wrongly")
        count = 1
        for side in shape:
            count *= side
        if stop - start != count * TYPES[kind].itemsize or begin + stop > len(whole):
            raise ValueError(f"{name} lies outside of the file")
        if (begin + start) % TYPES[kind].itemsize:
            raise ValueError(f"{name} begins at an odd place")
        taken.append((start, stop, name))
        made = np.frombuffer(whole, TYPES[kind], count, begin + start) if count else np.empty(0)
        parts[name] = made.astype(TYPES[kind], copy=False).reshape(shape)
    taken.sort()
    for (_, stop, one), (start, _, other) in itertools.pairwise(taken):
        if start < stop:
            raise ValueError(f"{one} and {other} overlap")
    return parts


def _check_shapes(parts: Mapping[str, NDArray[Any]]) -> None:
    x = parts["embeddings"]
    n = len(x) if x.ndim == 2 and x.shape[1] else -1
    expected = {"path_ends": (n + 1,), "stamps": (n, 2), "label_codes": (n,)}
    wrong = [name for name, shape in expected.items() if parts[name].shape != shape]
    flat = ("path_text", "label_text", "label_ends")
    wrong += [name for name in flat if parts[name].ndim != 1]
    if n < 1 or wrong:
        raise ValueError(f"{'embeddings' if n < 1 else wrong[0]} has a wrong shape")


def write_index(
    path: Path,
    about: Mapping[str, Any],
    shape: tuple[int, int],
    blocks: Iterable[NDArray[np.float32]],
    others: Mapping[str, NDArray[Any]],
) -> None:
    """Write the file beside its place, push it to the disk, and put it there in a single step.

    Args:
        shape: of the embeddings.
        blocks: their rows, a block at a time.
        others: every other array.
    """
    header: dict[str, Any] = {"__metadata__": {ABOUT: json.dumps({"format": FORMAT, **about})}}
    at = 0
    for name, kind in PARTS.items():
        sides = shape if name == "embeddings" else others[name].shape
        size = int(np.prod(sides, dtype=np.int64)) * TYPES[kind].itemsize
        header[name] = {"dtype": kind, "shape": list(sides), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        with open(unfinished, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for name, kind in PARTS.items():
                for block in blocks if name == "embeddings" else [others[name]]:
                    file.write(np.ascontiguousarray(block, TYPES[kind]).data)
            if file.tell() != 8 + len(text) + at:
                raise RuntimeError(f"{shape[0]} rows were promised and others came")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise CannotWrite(error.errno, error.strerror, str(path)) from error


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)
