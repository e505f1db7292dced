"""Files of the benchmarks: text labels, MATLAB files, CIFAR's pickles. None of them runs code."""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import posixpath
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from proxysynth.errors import first_line, reason

# Of a MATLAB file, where a few bytes may announce an array that fills the memory.
MAX_ELEMENTS = 1 << 30  # SVHN's largest array has 2^28
MAX_CELLS = 1 << 20  # of cells and structs
MAX_DEPTH = 8  # of cells in cells: scipy reads them recursively, without a limit
MAX_TUPLES = 1000  # in a pickle: hashing deeply nested tuples would overflow the stack


class DamagedFile(ValueError):
    """A file of a copy that cannot be read."""


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise any error of the block as a DamagedFile that names the file."""
    try:
        yield
    except DamagedFile:
        raise
    except Exception as error:  # a damaged file can fail in any way
        why = reason(error) if isinstance(error, OSError) else first_line(error)
        raise DamagedFile(f"{path} cannot be read ({why}): download it again") from error


class Row(NamedTuple):
    """A line of a label file: its columns, and where it stands for a message."""

    columns: list[str]
    where: str

    def integer(self, column: int) -> int:
        text = self.columns[column]
        if not (text.isascii() and text.isdigit()):
            raise ValueError(f"{self.where} must have an integer >= 0, got {text[:60]!r}")
        return int(text)

    def path(self, column: int) -> str:
        return relative_name(self.columns[column], self.where)


def rows(file: Path, columns: tuple[str, ...], header: bool = False) -> Iterator[Row]:
    """The non-empty lines of a UTF-8 file, split at white space; the last column takes the rest.
    With a `header`, one of the first lines names the columns; the rows are those after it."""
    with reading(file):
        lines = file.read_text("utf-8-sig").splitlines()
        heads = [i for i, line in enumerate(lines[:5], 1) if line.split()[:1] == [columns[0]]]
        if header and not heads:
            got = repr(lines[0][:60]) if lines else "an empty file"
            raise ValueError(f"it must start with a line of {', '.join(columns)}, got {got}")
    start = heads[0] if header else 0
    for number, line in enumerate(lines[start:], start=start + 1):
        parts = line.split(maxsplit=len(columns) - 1)
        where = f"line {number} of {file}"
        if parts and len(parts) != len(columns):
            raise ValueError(f"{where} must have {', '.join(columns)}, got {line[:60]!r}")
        if parts:
            yield Row([part.strip() for part in parts], where)


def relative_name(text: str, where: str) -> str:
    """A path inside the copy, with forward slashes."""
    name = posixpath.normpath(text)
    if name in (".", "..") or name.startswith(("/", "../")) or os.path.splitdrive(name)[0]:
        raise ValueError(f"{where} must name an image under its own folder, got {text[:60]!r}")
    return name


def read_mat(path: Path, names: Sequence[str], simplify: bool = False) -> dict[str, Any]:
    """These variables of a MATLAB file (version 5), as far as it has them. `simplify` gives structs
    as dicts, cells as arrays, and arrays squeezed (scipy's `simplify_cells`)."""
    from scipy.io import loadmat, whosmat

    with reading(path):
        data = path.read_bytes()
        if data.lstrip()[:9].lower().startswith((b"<!doctype", b"<html")):
            raise ValueError("it is an HTML page, not a MATLAB file")
        if data.startswith(b"MATLAB 7.3"):
            raise ValueError("it has the format of MATLAB 7.3, save it with -v7")
        # A list: a file may hold a name twice, and each is read.
        found = [variable for variable in whosmat(BytesIO(data)) if variable[0] in names]
        for name, shape, kind in found:
            nested = kind in ("cell", "struct", "object", "function", "opaque")
            most = MAX_CELLS * simplify if nested else MAX_ELEMENTS
            if not 0 <= math.prod(shape) <= most:
                raise ValueError(f"its variable {name} is a {kind} of shape {shape}")
        if simplify:
            _check_nesting(data)
        there = [name for name, _, _ in found]
        held = loadmat(BytesIO(data), variable_names=there, simplify_cells=simplify)
        return {name: held[name] for name in there}


def _check_nesting(data: bytes) -> None:
    """Bound the cells of a MATLAB file, in the order in which scipy reads them."""
    start = 128
    while start < len(data):
        kind, size = struct.unpack_from("<II", data, start)
        variable = data[start : start + 8 + size]
        if kind == 15:  # compressed
            variable = zlib.decompressobj().decompress(variable[8:], MAX_ELEMENTS)
        _end_of_array(variable, 0, MAX_DEPTH)
        start += 8 + size


def _end_of_array(data: bytes, at: int, depth: int) -> int:
    """Where the array at this place ends; an error if it has more than `depth` levels of cells."""

    def element(at: int) -> tuple[bytes, int]:
        """The bytes of an element, and where the next one begins."""
        kind, size = struct.unpack_from("<II", data, at)
        if kind >> 16:  # up to four bytes lie in the tag itself
            return data[at + 4 : at + 4 + (kind >> 16)], at + 8
        return data[at + 8 : at + 8 + size], at + 8 + size + -size % 8

    if struct.unpack_from("<II", data, at)[1] == 0:  # an empty array
        return at + 8
    (flags,) = struct.unpack_from("<I", data, at + 16)
    dims, at = element(at + 24)
    _, at = element(at)  # its name
    count, kind = math.prod(np.frombuffer(dims, "<i4").tolist()), flags & 0xFF
    if kind == 2:  # a struct
        length, at = element(at)
        fields, at = element(at)
        count *= len(fields) // int.from_bytes(length, "little")
    if kind in (1, 2):  # a cell or a struct: arrays follow
        if depth == 0 or not 0 <= count <= MAX_CELLS:
            raise ValueError("its cells are nested too deeply, or too many")
        for _ in range(count):
            at = _end_of_array(data, at, depth - 1)
    elif kind in (4, *range(6, 16)):  # text or numbers
        for _ in range(2 if flags & 0x800 else 1):  # complex: two parts
            _, at = element(at)
    else:
        raise ValueError("it has objects or functions")
    return at


def read_pickle(path: Path) -> dict[str, Any]:
    """The dict in one of CIFAR's pickles: texts, numbers, lists and arrays of uint8."""
    with reading(path):
        data, tuples = path.read_bytes(), 0
        for step, arg, _ in pickletools.genops(data):
            tuples += step.name.startswith("TUPLE")
            # The unpickler's memo is an array as long as the largest number in it.
            if (step.name.endswith("PUT") and int(arg or 0) > len(data)) or tuples > MAX_TUPLES:
                raise ValueError("it is damaged")
        held = _ArrayUnpickler(BytesIO(data), encoding="latin1").load()
        if not isinstance(held, dict):
            raise ValueError(f"it holds a {type(held).__name__} instead of a dict")
        named = {k.decode("latin1") if isinstance(k, bytes) else str(k): held[k] for k in held}
        return {k: item.value if isinstance(item, _Array) else item for k, item in named.items()}


class _StandIn:
    """Has a `__setstate__`, so that no step of a pickle can set its attributes."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


class _Array(_StandIn):
    """An array of uint8 in the making: `__setstate__` gets version, shape, dtype, order, bytes."""

    value: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, column_major, data = state
        raw = data.encode("latin1") if isinstance(data, str) else data
        if not isinstance(dtype, _ByteType) or math.prod(shape) != len(raw):
            raise ValueError("the size of an array does not match its shape")
        flat = np.frombuffer(raw, dtype=np.uint8)
        self.value = flat.reshape(shape, order="F" if column_major else "C")


class _ByteType(_StandIn):
    """Stands for dtype("u1"), the only one in those files."""

    def __init__(self, code: str, *_: Any) -> None:
        if code != "u1":
            raise ValueError(f"it has an array of {code!r} instead of bytes")


class _Encode(_StandIn):
    """Stands for `_codecs.encode(text, "latin1")`, as Python 3 writes bytes for Python 2."""

    def __new__(cls, text: str, encoding: str = "") -> Any:
        return text.encode("latin1")


class _ArrayUnpickler(pickle.Unpickler):
    """Gives stand-ins for the four functions in CIFAR's files, and refuses any other."""

    known = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _Array,
        ("numpy._core.multiarray", "_reconstruct"): _Array,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _ByteType,
        ("_codecs", "encode"): _Encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.known:
            raise ValueError(f"it refers to {module}.{name}, which is not allowed")
        return self.known[module, name]
