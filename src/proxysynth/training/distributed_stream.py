"""A file of tensors written piece by piece: neither the tensors nor the file need a second copy.

A safetensors file is the length of its header (8 bytes), the header (JSON: name, type, shape and
place of each tensor), and the tensors' bytes one after the other, so it can be written in order.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from proxysynth.training.durable import CannotWrite

AT_ONCE = 1 << 22  # bytes of a piece, about

TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Entry(NamedTuple):
    """A tensor of the file: what it is, and its rows in pieces."""

    name: str
    kind: torch.dtype
    shape: Sequence[int]
    pieces: Iterable[Tensor]


def entry(name: str, tensor: Tensor) -> Entry:
    """A tensor that is in memory."""
    return Entry(name, tensor.dtype, tensor.shape, _pieces(tensor.detach()))


def write_stream(path: Path, entries: Iterable[Entry], about: Mapping[str, Any]) -> int:
    """Write a file and push it to the disk, for a place where nobody looks yet; its crc32."""
    # Wide types first, so that each tensor begins where its type may.
    ordered = sorted(entries, key=lambda entry: -entry.kind.itemsize)
    header = _header(ordered, about)
    check = 0
    try:
        with open(path, "wb") as out:
            for data in _bytes(header, ordered):
                check = zlib.crc32(data, check)
                out.write(data)
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error
    return check


def rows_at_once(shape: Sequence[int], kind: torch.dtype) -> int:
    """How many rows make a piece."""
    return max(1, AT_ONCE // max(1, kind.itemsize * torch.Size(shape[1:]).numel()))


def _pieces(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.ndim == 0:
        yield tensor
    else:
        yield from tensor.split(rows_at_once(tensor.shape, tensor.dtype))


def _header(entries: Sequence[Entry], about: Mapping[str, Any]) -> bytes:
    told: dict[str, Any] = {"__metadata__": {key: json.dumps(item) for key, item in about.items()}}
    at = 0
    for name, kind, shape, _ in entries:
        end = at + kind.itemsize * torch.Size(shape).numel()
        told[name] = {"dtype": TYPES[kind], "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(told, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight


def _bytes(header: bytes, entries: Sequence[Entry]) -> Iterator[bytes]:
    yield len(header).to_bytes(8, "little") + header
    for _, kind, _, pieces in entries:
        for piece in pieces:
            flat = piece.cpu().to(kind).contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().tobytes()
