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

import bisect
import contextlib
import itertools
import json
import math
import os
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxysynth.errors import reason
from proxysynth.files import replacing
from proxysynth.memory import total_memory
from proxysynth.search.model import ModelIdentity
from proxysynth.training.run_folder import RUN
from proxysynth.values import suggestion

FORMAT = 1
ABOUT, HEADER_SUM = "proxysynth_index", "proxysynth_checksum"
TYPES = {"F32": "<f4", "I64": "<i8", "I32": "<i4", "U8": "|u1"}  # of safetensors and of numpy
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
WRITTEN = "give a file that `proxysynth index` wrote"
Stamp = tuple[int, int, int]


class NotAnIndex(ValueError):
    """The file is not an index that can be read; the message is one sentence."""


class UnknownLabel(ValueError):
    """No item of the index has the label; the message names the nearest one."""


def file_stamp(path: Path | int) -> Stamp:
    """Inode, modification time and size: changes when the file is replaced or overwritten."""
    found = os.stat(path)
    return found.st_ino, found.st_mtime_ns, found.st_size


Damage = dict[str, NDArray[np.bool_]]
"""The parts that do not match their checksums, and the items affected: (n,) bool."""


class IndexFile(NamedTuple):
    """An open index file: its metadata, its arrays, and the stamp of the file."""

    about: dict[str, Any]
    parts: dict[str, Any]
    stamp: Stamp

    @staticmethod
    def open(path: Path, in_memory: bool = False) -> IndexFile:
        """Check that the parts are where the header says, and map them or read them into memory.

        A mapped file may be replaced, as `proxysynth index` does, but not overwritten in place.
        """
        try:
            with open(path, "rb") as file:
                stamp = file_stamp(file.fileno())
                header, about, begin = _read_header(path, file)
                if in_memory and stamp[2] > (most := total_memory()):
                    needs = f"{stamp[2] / 1e9:.1f} GB of memory, this machine has {most / 1e9:.1f}"
                    raise NotAnIndex(f"the index {path} needs {needs}: split the folder")
                file.seek(begin)
                if in_memory:
                    body = np.fromfile(file, np.uint8)
                else:
                    body = np.asarray(np.memmap(file, np.uint8, "r"))[begin:]
                parts = _parts(header, body)
                if file_stamp(file.fileno()) != stamp:
                    raise ValueError("it was overwritten while it was being read")
                return IndexFile(about, parts, stamp)
        except FileNotFoundError as error:
            advice = f"make one with `proxysynth index RUN FOLDER -o {path}`"
            raise NotAnIndex(f"there is no index {path}: {advice}") from error
        except IsADirectoryError as error:  # of a run, or of images
            source = f"{path} FOLDER" if (path / RUN).exists() else f"RUN {path}"
            advice = f"make one with `proxysynth index {source} -o FILE`"
            raise NotAnIndex(f"{path} is a folder, not an index: {advice}") from error
        except OSError as error:
            raise NotAnIndex(f"cannot open the index {path}: {reason(error)}; {WRITTEN}") from error
        except NotAnIndex:
            raise
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            raise damaged(path, str(error)) from error

    def damage(self) -> Damage:
        """The parts that do not match their checksums; empty if the file has none."""
        sums, rows = self.about.get("checksums"), self.parts["embeddings"]
        if not isinstance(sums, dict):
            return {}
        every = np.ones(len(rows), dtype=bool)
        others = [name for name in PARTS if name != "embeddings"]
        found = {name: every for name in others if sums.get(name) != _checksum(self.parts[name])}
        blocks = sums.get("embeddings")
        blocks = iter(blocks if isinstance(blocks, list) else [])
        bad = np.zeros(len(rows), dtype=bool)
        for low in range(0, len(rows), ROWS_PER_SUM):
            part = slice(low, low + ROWS_PER_SUM)
            bad[part] = next(blocks, None) != _checksum(rows[part])
        return found | ({"embeddings": bad} if bad.any() else {})


def damaged(path: Path, what: str) -> NotAnIndex:
    repair = f"`proxysynth index RUN FOLDER -o {path}`, or write it again with --rebuild"
    return NotAnIndex(f"the index {path} is damaged ({what}): repair it with {repair}")


def is_index(path: str | os.PathLike[str]) -> bool:
    """Whether a file is an index that can be opened."""
    try:
        return bool(IndexFile.open(Path(path)))
    except NotAnIndex:
        return False


def _read_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], Any, int]:
    try:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(min(length, LONGEST_HEADER)))
        metadata = header.pop("__metadata__")
        about = json.loads(metadata[ABOUT])
        version = about["format"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotAnIndex(f"{path} is not an index of proxysynth: {WRITTEN}") from error
    if not isinstance(version, int) or version > FORMAT:
        newer = f"{path} was written by a newer version of proxysynth, in format {version}"
        raise NotAnIndex(f"{newer}: upgrade proxysynth, or index the folder again")
    summed = "checksums" in about or HEADER_SUM in metadata
    if summed and metadata.get(HEADER_SUM) != _header_sum(metadata[ABOUT], header):
        raise damaged(path, "its header does not match its checksum")
    return header, about, 8 + length


def _parts(header: Mapping[str, Any], body: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    """The parts as views of the bytes after the header, in which they must lie and fit together."""
    parts = {}
    for name, kind in PARTS.items():
        start, stop = header[name]["data_offsets"]
        if header[name]["dtype"] != kind or not 0 <= start <= stop <= len(body):
            raise ValueError(f"{name} has a wrong type or lies outside the file")
        parts[name] = body[start:stop].view(TYPES[kind]).reshape(header[name]["shape"])
    n, d = parts["embeddings"].shape
    shapes = {"embeddings": (n, d), "path_ends": (n + 1,), "stamps": (n, 2), "label_codes": (n,)}
    for name, part in parts.items():
        if part.shape != shapes.get(name, (part.size,)) or 0 in (n, d) or not part.flags.aligned:
            raise ValueError(f"{name} has a wrong shape or offset")
    return parts


def write_index(
    file: Path,
    model: ModelIdentity,
    root: str | os.PathLike[str],
    paths: Sequence[str],
    labels: Sequence[str | None],
    stamps: NDArray[np.int64],
    rows: Iterable[NDArray[np.float32]],
) -> None:
    """Write an index: under another name first, synced, then renamed, so it is complete or absent.

    Args:
        root: the folder of the images.
        paths: n, below the root, sorted by their bytes, all different.
        stamps: (n, 2) size and modification time of each file.
        rows: n of (d,) and unit length, made by the model.
    """
    raw = [encoded(path) for path in paths]
    if any(one >= other for one, other in itertools.pairwise(raw)):
        raise ValueError("the paths of an index must be sorted by their bytes and differ")
    n, names = len(paths), sorted({label for label in labels if label is not None})
    code: dict[str | None, int] = {name: code for code, name in enumerate(names)}
    others: dict[str, NDArray[Any]] = {"stamps": stamps}
    others["path_text"], others["path_ends"] = pack(raw)
    others["label_text"], others["label_ends"] = pack([encoded(name) for name in names])
    others["label_codes"] = np.array([code.get(label, -1) for label in labels])
    others = {name: np.ascontiguousarray(x, TYPES[PARTS[name]]) for name, x in others.items()}
    header, at = {}, 0
    for name, kind in PARTS.items():
        shape = (n, model.dim) if name == "embeddings" else others[name].shape
        stop = at + math.prod(shape) * np.dtype(TYPES[kind]).itemsize
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, stop]}
        at = stop
    sums: dict[str, Any] = {name: _checksum(x) for name, x in others.items()}
    sums["embeddings"] = ["0" * 8] * -(-n // ROWS_PER_SUM)  # known only when written
    # As seen from the index too, so that all of them can be moved together.
    home, relative = os.path.dirname(os.path.abspath(file)), {}
    for name, folder in {"root": root, "run": model.folder}.items():
        if folder is not None:
            with contextlib.suppress(ValueError):  # on another drive of Windows
                relative[name] = os.path.relpath(folder, home)
    about = {
        "format": FORMAT,
        "generation": uuid.uuid4().hex,
        "root": os.path.abspath(root),
        "relative": relative,
        "model": asdict(model),
        "checksums": sums,
    }
    with replacing(file) as unfinished, open(unfinished, "wb") as out:
        text = _header_bytes(about, header)
        out.write(text)
        for name in PARTS:
            if name != "embeddings":
                out.write(others[name].data)
                continue
            sums[name], waiting = [], iter(rows)
            while some := list(itertools.islice(waiting, ROWS_PER_SUM)):
                part = np.array(some, "<f4")
                out.write(part.data)
                sums[name].append(_checksum(part))
        if out.tell() != len(text) + at:
            raise RuntimeError(f"expected {n} rows, got another number")
        out.seek(0)
        out.write(_header_bytes(about, header))  # of the same length: sums have eight digits
        out.flush()
        os.fsync(out.fileno())


def _header_bytes(about: Mapping[str, Any], header: Mapping[str, Any]) -> bytes:
    description = json.dumps(about)
    metadata = {ABOUT: description, HEADER_SUM: _header_sum(description, header)}
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _header_sum(about: str, header: Mapping[str, Any]) -> str:
    return f"{zlib.crc32((about + json.dumps(header, sort_keys=True)).encode()):08x}"


def _checksum(x: NDArray[Any]) -> str:
    return f"{zlib.crc32(np.ascontiguousarray(x).data):08x}"


def encoded(text: str) -> bytes:
    """UTF-8; bytes of a file name that are not UTF-8 are kept as they are."""
    return text.encode("utf-8", "surrogateescape")


def pack(texts: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The two arrays of `Texts`."""
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
    return np.frombuffer(b"".join(texts), dtype=np.uint8), ends


@dataclass(frozen=True, eq=False, repr=False)
class Texts(Sequence[str]):
    """Texts stored end to end in an array that may be mapped from a file, decoded on access.

    text  b"a.jpgb/c.jpg"      ends  [0, 5, 12]      texts[1] == "b/c.jpg"
    """

    text: NDArray[np.uint8]  # (bytes,)
    ends: NDArray[np.int64]  # (n + 1,), starting with 0

    def __len__(self) -> int:
        return max(0, len(self.ends) - 1)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        return self.raw(which).decode("utf-8", "surrogateescape")

    def raw(self, number: int) -> bytes:
        number = range(len(self))[number]
        start, stop = int(self.ends[number]), int(self.ends[number + 1])
        # A file from elsewhere may say anything here.
        if not 0 <= start <= stop <= len(self.text):
            raise ValueError(f"the text of item {number} lies outside the file: it is damaged")
        return self.text[start:stop].tobytes()

    def find(self, text: str) -> int | None:
        """The position of a text, by bisection: the texts must be sorted by their bytes."""
        wanted = encoded(text)
        place = bisect.bisect_left(range(len(self)), wanted, key=self.raw)
        return place if place < len(self) and self.raw(place) == wanted else None


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Sequence[Any]):
    """The label of each item, None where it has none."""

    names: Texts
    codes: NDArray[np.int32]  # (n,), the position of each item's label in `names`, -1 for none

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(len(self)))]
        code = int(self.codes[which])
        if code >= len(self.names):
            raise ValueError(f"item {which} has an unknown label: the file is damaged")
        return None if code < 0 else self.names[code]

    def items_of(self, label: str) -> NDArray[np.int64]:
        """The numbers of the items with this label, ascending."""
        code = self._codes.get(label)
        if code is None:
            names = shorten(", ".join(self._codes), 150, placeholder=" ...", break_on_hyphens=False)
            every = f"choose one of {names}" if names else "no item has a label"
            hint = suggestion(label, self._codes).strip() or every
            raise UnknownLabel(f"no label {label!r} in the index: {hint}")
        return np.flatnonzero(self.codes == code).astype(np.int64)

    @cached_property
    def _codes(self) -> dict[str, int]:
        return {name: code for code, name in enumerate(self.names)}
