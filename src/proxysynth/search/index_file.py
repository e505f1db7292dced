"""The file of an index: safetensors, so any program can read it and opening it never runs code.

    embeddings  (n, d) float32    rows of unit length
    stamps      (n, 2) int64      size in bytes and modification time in nanoseconds of each file
    path_ends   (n + 1,) int64    path_text   uint8     paths, sorted by their bytes: see `Texts`
    label_ends  (c + 1,) int64    label_text  uint8     label names
    label_codes (n,) int32        the label of each item, -1 for none

The header's metadata holds a JSON text about the model and the folder, with a CRC-32 of every part
(of every `ROWS_PER_SUM` rows of the embeddings), and a CRC-32 of the header itself. Files of
version 0.1 have no checksums.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import mmap
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.files import UNFINISHED, CannotWrite, sync_folder
from proxysynth.search.model import ModelIdentity

FORMAT = 1
ABOUT, HEADER_SUM = "proxysynth_index", "proxysynth_checksum"
TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}
# In the order of the file: the widest types first, so that every part is aligned.
PARTS = {
    "path_ends": "I64",
    "label_ends": "I64",
    "stamps": "I64",
    "embeddings": "F32",
    "label_codes": "I32",
    "path_text": "U8",
    "label_text": "U8",
}
ROWS_PER_SUM = 4096
LONGEST_HEADER = 1 << 24
Stamp = tuple[int, int, int]


class NotAnIndex(ValueError):
    """The file is not an index, or a damaged one; the message is one sentence."""


class IndexChanged(RuntimeError):
    """The file was overwritten in place while it was being read."""


class IndexFile(NamedTuple):
    """An open index file: its metadata, its arrays, and the stamp of the file."""

    about: dict[str, Any]
    parts: dict[str, Any]
    stamp: Stamp


class FileRows:
    """Embeddings that do not fit in memory, read from the file when they are needed.

    Unlike a memory map, a file that is truncated or overwritten in place ends in `IndexChanged`,
    not in a bus error that kills the process.
    """

    def __init__(self, file: BinaryIO, offset: int, shape: tuple[int, int], stamp: Stamp) -> None:
        self.shape = shape
        self._file, self._offset, self._stamp = file, offset, stamp
        self._lock = Lock()  # threads share the file's position

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, which: slice | Tensor | NDArray[np.int64]) -> Tensor:
        n, d = self.shape
        if isinstance(which, slice):
            start, stop, _ = which.indices(n)
            made = self._read(start, max(0, stop - start))
        else:
            made = np.empty((len(which), d), dtype=np.float32)
            for place, row in enumerate(which.tolist()):
                made[place] = self._read(row, 1)[0]
        if file_stamp(self._file.fileno()) != self._stamp:
            raise IndexChanged("the index file was overwritten while it was being searched")
        return torch.from_numpy(made)

    def _read(self, row: int, count: int) -> NDArray[np.float32]:
        d = self.shape[1]
        with self._lock:
            data = _read_array(self._file, TYPES["F32"], count * d, self._offset + 4 * row * d)
        return data.reshape(count, d)


def file_stamp(path: Path | int) -> Stamp:
    """Inode, modification time and size: changes when the file is replaced or overwritten."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


def open_index_file(path: Path, memory: int | None = None) -> IndexFile:
    """Open the file and check that its parts are where its header says.

    Args:
        memory: read the file into memory, embeddings only up to this many bytes. Default: map the
            file, which is instant and safe as long as nobody overwrites the file in place;
            replacing it, as `proxysynth index` does, is fine.
    """
    try:
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(path, "rb"))
            header, about, begin, stamp = _read_header(path, file)
            if memory is None:
                parts = _mapped_parts(header, file, begin)
            else:
                parts = _loaded_parts(header, file, begin, stamp, memory)
                if isinstance(parts["embeddings"], FileRows):
                    stack.pop_all()  # the rows keep the file open
            _check_shapes(parts)
            return IndexFile(about, parts, stamp)
    except FileNotFoundError as error:
        raise NotAnIndex(
            f"there is no index {path}: make one with `proxysynth index RUN FOLDER -o {path}`"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise NotAnIndex(f"cannot open the index {path}: {reason}") from error
    except NotAnIndex:
        raise
    except (ValueError, KeyError, TypeError, OverflowError, IndexChanged) as error:
        raise damaged(path, str(error)) from error


def damaged(path: Path, what: str) -> NotAnIndex:
    return NotAnIndex(
        f"the index {path} is damaged ({what}): repair it with `proxysynth index RUN FOLDER "
        f"-o {path}`, or write it again with --rebuild"
    )


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], dict[str, Any], int, Stamp]:
    stamp = file_stamp(file.fileno())
    size = stamp[2]
    length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else size
    if not 2 <= length <= min(size - 8, LONGEST_HEADER):
        raise NotAnIndex(f"{path} is not an index of proxysynth: it has no header")
    try:
        header = json.loads(file.read(length))
        metadata = header.pop("__metadata__")
        about = json.loads(metadata[ABOUT])
        version = about["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotAnIndex(
            f"{path} is not an index of proxysynth: give a file that `proxysynth index` wrote"
        ) from error
    if not isinstance(version, int) or version > FORMAT:
        raise NotAnIndex(
            f"{path} was written by a newer version of proxysynth (format {version}, this one "
            f"reads {FORMAT}): upgrade proxysynth, or index the folder again"
        )
    if ("checksums" in about or HEADER_SUM in metadata) and (
        metadata.get(HEADER_SUM) != _header_sum(metadata[ABOUT], header)
    ):
        raise damaged(path, "its header does not match its checksum")
    return header, about, 8 + length, stamp


def _mapped_parts(
    header: Mapping[str, Any], file: BinaryIO, begin: int
) -> dict[str, NDArray[np.generic]]:
    whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def mapped(_: str, kind: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Any:
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(whole, kind, count, offset) if count else np.empty(0, kind)

    return _parts(header, begin, len(whole), mapped)


def _loaded_parts(
    header: Mapping[str, Any], file: BinaryIO, begin: int, stamp: Stamp, memory: int
) -> dict[str, Any]:
    def loaded(name: str, kind: np.dtype[Any], shape: tuple[int, ...], offset: int) -> Any:
        count = int(np.prod(shape, dtype=np.int64))
        if name == "embeddings" and len(shape) == 2 and count * kind.itemsize > memory:
            return FileRows(file, offset, (shape[0], shape[1]), stamp)
        return _read_array(file, kind, count, offset)

    parts = _parts(header, begin, stamp[2], loaded)
    if file_stamp(file.fileno()) != stamp:
        raise IndexChanged("it was overwritten while it was being read")
    return parts


def _read_array(file: BinaryIO, kind: np.dtype[Any], count: int, offset: int) -> NDArray[Any]:
    made = np.empty(count, dtype=kind)
    file.seek(offset)
    if count and file.readinto(made.view(np.uint8)) != made.nbytes:  # type: ignore[attr-defined]
        raise IndexChanged("the index file was truncated while it was being read")
    return made


def _parts(
    header: Mapping[str, Any],
    begin: int,
    size: int,
    fetch: Callable[[str, np.dtype[Any], tuple[int, ...], int], Any],
) -> dict[str, Any]:
    """Every part, checked to lie in the file, aligned, without overlap."""
    parts, taken = {}, []
    for name, kind in PARTS.items():
        if name not in header:
            raise ValueError(f"{name} is missing")
        entry = header[name]
        shape, (start, stop) = tuple(entry["shape"]), entry["data_offsets"]
        if entry["dtype"] != kind or any(
            type(number) is not int or number < 0 for number in (*shape, start, stop)
        ):
            raise ValueError(f"{name} has a wrong type, shape or offset")
        count = 1
        for side in shape:  # in Python's integers, which do not overflow
            count *= side
        if stop - start != count * TYPES[kind].itemsize or begin + stop > size:
            raise ValueError(f"{name} lies outside the file")
        if (begin + start) % TYPES[kind].itemsize:
            raise ValueError(f"{name} is not aligned")
        taken.append((start, stop, name))
        made = fetch(name, TYPES[kind], shape, begin + start)
        parts[name] = made if isinstance(made, FileRows) else made.reshape(shape)
    taken.sort()
    for (_, stop, one), (start, _, other) in itertools.pairwise(taken):
        if start < stop:
            raise ValueError(f"{one} and {other} overlap")
    return parts


def _check_shapes(parts: Mapping[str, Any]) -> None:
    shape = parts["embeddings"].shape
    n = shape[0] if len(shape) == 2 and shape[1] else -1
    expected = {"path_ends": (n + 1,), "stamps": (n, 2), "label_codes": (n,)}
    wrong = [name for name, shape in expected.items() if parts[name].shape != shape]
    flat = ("path_text", "label_text", "label_ends")
    wrong += [name for name in flat if parts[name].ndim != 1]
    if n < 1 or wrong:
        raise ValueError(f"{'embeddings' if n < 1 else wrong[0]} has a wrong shape")


def _relative(file: Path, folders: Mapping[str, str | os.PathLike[str] | None]) -> dict[str, str]:
    """Folders as seen from the folder of the index, so that all of them can be moved together."""
    made = {}
    for name, folder in folders.items():
        if folder is not None:
            with contextlib.suppress(ValueError):  # on another drive of Windows
                made[name] = os.path.relpath(folder, os.path.dirname(os.path.abspath(file)))
    return made


def locate(file: Path, about: Mapping[str, Any], name: str, recorded: str) -> str:
    """The folder "root" or "run": beside the index if it has moved along, else as recorded."""
    relative = about.get("relative", {}).get(name)
    if relative is not None:
        beside = os.path.join(os.path.dirname(os.path.abspath(file)), relative)
        if os.path.isdir(beside):
            return os.path.normpath(beside)
    return recorded


class Damage(NamedTuple):
    """Which parts do not match their checksums, and which rows of the embeddings (n,) bool."""

    parts: tuple[str, ...]
    rows: NDArray[np.bool_]

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __str__(self) -> str:
        text = ", ".join(name for name in self.parts if name != "embeddings")
        if "embeddings" in self.parts:
            text += f"{', ' if text else ''}embeddings of {int(self.rows.sum()):,} images"
        return f"{text} do not match the checksums"


def find_damage(opened: IndexFile, embeddings: bool = True) -> Damage | None:
    """Compare the parts with their checksums; None where the file has none.

    Args:
        embeddings: False leaves out the embeddings, by far the largest part.
    """
    sums, rows = opened.about.get("checksums"), opened.parts["embeddings"]
    if not isinstance(sums, dict):
        return None
    wrong = [
        name
        for name in PARTS
        if name != "embeddings" and sums.get(name) != _checksum(opened.parts[name])
    ]
    bad = np.zeros(len(rows), dtype=bool)
    if embeddings:
        blocks = sums.get("embeddings")
        blocks = blocks if isinstance(blocks, list) else []
        for block, low in enumerate(range(0, len(rows), ROWS_PER_SUM)):
            part = slice(low, low + ROWS_PER_SUM)
            if block >= len(blocks) or blocks[block] != _checksum(np.asarray(rows[part])):
                bad[part] = True
        wrong += ["embeddings"] if bad.any() else []
    return Damage(tuple(wrong), bad)


def write_index(
    file: Path,
    model: ModelIdentity,
    root: str | os.PathLike[str],
    paths: Sequence[str],
    labels: Sequence[str | None],
    stamps: NDArray[np.int64],
    blocks: Iterable[NDArray[np.float32]],
) -> None:
    """Write an index: under another name first, synced, then renamed, so it is complete or absent.

    Args:
        model: the model that made the rows.
        root: the folder of the images.
        paths: below the root, sorted by their bytes, all different.
        labels: of each item, or None.
        stamps: (n, 2) size and modification time of each file.
        blocks: the rows (n, d) of unit length, a block at a time.
    """
    raw = [encoded(path) for path in paths]
    if any(one >= other for one, other in itertools.pairwise(raw)):
        raise ValueError("the paths of an index must be sorted by their bytes and differ")
    names = sorted({label for label in labels if label is not None})
    place: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    path_text, path_ends = pack(raw)
    label_text, label_ends = pack([encoded(name) for name in names])
    others: dict[str, NDArray[Any]] = {
        "path_ends": path_ends,
        "label_ends": label_ends,
        "stamps": stamps,
        "label_codes": np.array([place.get(label, -1) for label in labels], dtype=np.int32),
        "path_text": path_text,
        "label_text": label_text,
    }
    others = {name: np.ascontiguousarray(x, TYPES[PARTS[name]]) for name, x in others.items()}
    shape = (len(paths), model.dim)
    header, at = {}, 0
    for name, kind in PARTS.items():
        sides = shape if name == "embeddings" else others[name].shape
        size = int(np.prod(sides, dtype=np.int64)) * TYPES[kind].itemsize
        header[name] = {"dtype": kind, "shape": list(sides), "data_offsets": [at, at + size]}
        at += size
    sums: dict[str, Any] = {name: _checksum(x) for name, x in others.items()}
    sums["embeddings"] = ["0" * 8] * -(-shape[0] // ROWS_PER_SUM)  # known only when written
    about = {
        "format": FORMAT,
        "generation": uuid.uuid4().hex,
        "root": os.path.abspath(root),
        "relative": _relative(file, {"root": root, "run": model.folder}),
        "model": model.to_json(),
        "checksums": sums,
    }
    unfinished = file.with_name(f"{UNFINISHED}{file.name}")
    try:
        with open(unfinished, "wb") as out:
            text = _header_bytes(about, header)
            out.write(text)
            for name in PARTS:
                if name == "embeddings":
                    sums[name] = _write_rows(out, blocks, model.dim)
                else:
                    out.write(others[name].data)
            if out.tell() != len(text) + at:
                raise RuntimeError(f"expected {shape[0]} rows, got another number")
            out.seek(0)
            out.write(_header_bytes(about, header))  # of the same length: sums have eight digits
            out.flush()
            os.fsync(out.fileno())
        os.replace(unfinished, file)
        sync_folder(file.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise CannotWrite(error.errno, error.strerror, str(file)) from error


def _write_rows(out: BinaryIO, blocks: Iterable[NDArray[np.float32]], dim: int) -> list[str]:
    """Write the embeddings and return the checksum of every `ROWS_PER_SUM` rows."""
    sums, count, running = [], 0, 0
    for block in blocks:
        rows = np.ascontiguousarray(block, TYPES["F32"]).reshape(-1, dim)
        out.write(rows.data)
        while len(rows):
            part = rows[: ROWS_PER_SUM - count]
            running, count = zlib.crc32(part.data, running), count + len(part)
            rows = rows[len(part) :]
            if count == ROWS_PER_SUM:
                sums.append(f"{running:08x}")
                count = running = 0
    return [*sums, f"{running:08x}"] if count else sums


def _header_bytes(about: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
    description = json.dumps(about)
    metadata = {ABOUT: description, HEADER_SUM: _header_sum(description, header)}
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _header_sum(about: str, header: Mapping[str, Any]) -> str:
    return f"{zlib.crc32((about + json.dumps(header, sort_keys=True)).encode()):08x}"


def _checksum(x: NDArray[Any]) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(x).data):08x}"


def pack(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as two arrays: their bytes end to end, and where each one ends."""
    ends = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum([len(text) for text in texts], out=ends[1:])
    return np.frombuffer(b"".join(texts), dtype=np.uint8), ends


def encoded(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 are kept as they are."""
    return text.encode("utf-8", "surrogateescape")
