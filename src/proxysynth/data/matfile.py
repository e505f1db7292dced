"""MATLAB's version 5 files, as far as label files need them: numbers, texts, cells and structs.

    numbers   an array, in MATLAB's shape
    a text    str; several rows of text are a tuple of str
    a cell    a list, column by column
    a struct  a list of dicts, one per element, column by column

Nothing in such a file is trusted: each length is checked against what is there, and anything else
than the above is refused. A damaged file is a ValueError that names it.
"""

from __future__ import annotations

import math
import os
import struct
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 1 << 30  # bytes that a variable may unpack to: SVHN's largest used one has a quarter of it
DEEPEST = 16  # cells within cells

_COMPRESSED, _MATRIX, _UTF8, _UTF16 = 15, 14, 16, 17
# How numbers are stored, by the kind of an element; and what they are, by the class of an array.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8"}
_STORED |= {13: "u8"}
_CELL, _STRUCT, _CHAR = 1, 2, 4
_NUMBERS = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8"}
_NUMBERS |= {15: "u8"}
_COMPLEX = 0x0800
_EMPTY = np.empty((0, 0))
_EMPTY.setflags(write=False)
_BROKEN = (struct.error, zlib.error, IndexError, OverflowError, UnicodeError, MemoryError)


def read_mat(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The variables of a file by name."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or 'unknown').lower()}") from error
    try:
        return _variables(data)
    except _Unreadable as error:
        reason = str(error)
    except _BROKEN:
        reason = "it is damaged"
    raise ValueError(f"{path} is no readable MATLAB 5 file, {reason}: download it again")


class _Unreadable(Exception):
    """Why a file is refused."""


def _variables(data: bytes) -> dict[str, Any]:
    if len(data) < 128:
        raise _Unreadable(f"it has {len(data)} bytes, fewer than a header")
    order = {b"IM": "<", b"MI": ">"}.get(data[126:128])
    if order is None:
        text = data.lstrip()[:9].lower()
        page = text.startswith((b"<!doctype", b"<html"))
        raise _Unreadable("it is an HTML page" if page else "its header is another")
    if data.startswith(b"MATLAB 7.3"):
        raise _Unreadable("it is version 7.3, which must be saved again with -v7")
    view, at, found = memoryview(data), 128, {}
    while at < len(data):
        kind, body, at = _element(view, at, order)
        if kind == _COMPRESSED:
            kind, body = _inflated(body, order)
        if kind != _MATRIX:
            raise _Unreadable(f"it has an element of unknown kind {kind}")
        name, value = _matrix(body, order, 0)
        found[name] = value
    return found


def _element(data: memoryview, at: int, order: str) -> tuple[int, memoryview, int]:
    """The kind and the bytes of the element at a place, and the place of the next."""
    kind, size = struct.unpack_from(order + "II", data, at)
    if kind >> 16:  # at most four bytes, within the tag itself
        kind, size, start, after = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if size > 4:
            raise _Unreadable("it is damaged")
    else:
        start = at + 8
        # Elements start at multiples of 8, but compressed ones follow each other closely.
        after = start + size + (0 if kind == _COMPRESSED else -size % 8)
    if start + size > len(data):
        raise _Unreadable("it ends early")
    return kind, data[start : start + size], after


def _inflated(body: memoryview, order: str) -> tuple[int, memoryview]:
    """The one element that was compressed, with no more memory than its tag announces."""
    engine = zlib.decompressobj()
    kind, size = struct.unpack(order + "II", engine.decompress(body, 8))
    if size > MOST:
        raise _Unreadable(f"a variable would take {size:,} bytes")
    made = engine.decompress(engine.unconsumed_tail, max(size, 1))
    engine.decompress(engine.unconsumed_tail, 8)  # the check sum, which raises where it is wrong
    if not engine.eof or len(made) != size:
        raise _Unreadable("it ends early")
    return kind, memoryview(made)


def _matrix(body: memoryview, order: str, depth: int) -> tuple[str, Any]:
    """The name and the value of an array."""
    if not body:  # how an empty cell is written
        return "", _EMPTY
    if depth > DEEPEST:
        raise _Unreadable(f"its cells are deeper than {DEEPEST}")
    _, flags, at = _element(body, 0, order)
    (flag,) = struct.unpack_from(order + "I", flags)
    _, raw, at = _element(body, at, order)
    shape = struct.unpack(f"{order}{len(raw) // 4}i", raw)
    _, text, at = _element(body, at, order)
    name, sort, count = bytes(text).decode("ascii"), flag & 0xFF, math.prod(shape)
    if len(shape) < 2 or min(shape) < 0:
        raise _Unreadable(f"an array has the shape {shape}")
    if sort == _CELL:
        return name, _matrices(body, at, order, count, depth)
    if sort == _STRUCT:
        return name, _struct(body, at, order, count, depth)
    if sort not in (_CHAR, *_NUMBERS) or flag & _COMPLEX:
        raise _Unreadable(f"it has an array of kind {sort}, not numbers, texts, cells or structs")
    kind, raw, _ = _element(body, at, order)
    if sort == _CHAR:
        return name, _texts(kind, raw, order, shape)
    values = _numbers(kind, raw, order)
    if values.size != count:
        raise _Unreadable(f"an array of shape {shape} has {values.size} numbers")
    return name, values.astype(_NUMBERS[sort], copy=False).reshape(shape, order="F")


def _matrices(body: memoryview, at: int, order: str, count: int, depth: int) -> list[Any]:
    if count * 8 > len(body) - at:  # each takes a tag at least
        raise _Unreadable("it ends early")
    values = []
    for _ in range(count):
        kind, inner, at = _element(body, at, order)
        if kind != _MATRIX:
            raise _Unreadable(f"a cell has an element of kind {kind}")
        values.append(_matrix(inner, order, depth + 1)[1])
    return values


def _struct(body: memoryview, at: int, order: str, count: int, depth: int) -> list[dict[str, Any]]:
    kind, raw, at = _element(body, at, order)
    width = int(_numbers(kind, raw, order)[0])
    _, raw, at = _element(body, at, order)
    if width < 1 or len(raw) % width or not raw:
        raise _Unreadable("a struct has no names")
    texts = (bytes(raw[i : i + width]) for i in range(0, len(raw), width))
    fields = [text.partition(b"\0")[0].decode("ascii") for text in texts]
    values = _matrices(body, at, order, count * len(fields), depth)
    starts = range(0, len(values), len(fields))
    return [dict(zip(fields, values[i : i + len(fields)], strict=True)) for i in starts]


@cache
def _dtype(text: str) -> np.dtype[Any]:
    return np.dtype(text)


def _numbers(kind: int, raw: memoryview, order: str) -> NDArray[Any]:
    if kind not in _STORED:
        raise _Unreadable(f"numbers are stored as kind {kind}")
    stored = _dtype(order + _STORED[kind])
    if len(raw) % stored.itemsize:
        raise _Unreadable("it is damaged")
    return np.frombuffer(raw, dtype=stored)


def _texts(kind: int, raw: memoryview, order: str, shape: tuple[int, ...]) -> str | tuple[str, ...]:
    wide = "utf-16-le" if order == "<" else "utf-16-be"
    coding = {1: "latin-1", 2: "latin-1", 4: wide, _UTF8: "utf-8", _UTF16: wide}.get(kind)
    if coding is None:
        raise _Unreadable(f"a text is stored as kind {kind}")
    text = bytes(raw).decode(coding)
    if shape[0] <= 1:
        return text
    return tuple(text[row :: shape[0]] for row in range(shape[0])) if text else ()
