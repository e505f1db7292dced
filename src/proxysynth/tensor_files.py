"""Tensors in safetensors files, which cannot run code: written piece by piece, read with a check.

A safetensors file is the length of its header (8 bytes), the header (JSON: name, type, shape and
place of each tensor), and the tensors' bytes one after the other. It is written in this order, so
that neither the tensors nor the file need a second copy in memory, and the same tensors always
give the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from proxysynth.errors import TrainingFailed
from proxysynth.files import replacing, write_new

PIECE = 1 << 22  # bytes written or read at a time, about

TYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any] | None = None
) -> int:
    """Replace a file by these tensors, `about` in its header, atomically; returns its CRC-32."""
    with replacing(path) as unfinished:
        return write_stream(unfinished, tensors, about or {})


def write_stream(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any]) -> int:
    """Write a file that nobody reads yet and flush it to disk; returns its CRC-32."""
    # Wide types first, so that each tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize)
    metadata = {key: json.dumps(item) for key, item in about.items()}
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, tensor in ordered:
        kind, shape, end = TYPES[tensor.dtype], list(tensor.shape), start + tensor.nbytes
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of eight
    head = len(text).to_bytes(8, "little") + text
    check = zlib.crc32(head)

    def data() -> Iterator[bytes]:
        nonlocal check
        yield head
        for _, tensor in ordered:
            rows = tensor.detach() if tensor.ndim else tensor.detach()[None]
            row_bytes = max(1, rows[:1].nbytes)
            for piece in rows.split(max(1, PIECE // row_bytes)):
                raw = piece.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
                check = zlib.crc32(raw, check)
                yield raw

    write_new(path, data())
    return check


def read_tensors(path: Path, crc32: int | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file that `write_tensors` wrote, and what it says of them; `crc32` is that
    of the file as it was written, where known."""
    try:
        if crc32 is not None and checksum(path) != crc32:
            raise ValueError("its checksum is not the one that was recorded")
        with safetensors.safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, {name: json.loads(text) for name, text in about.items()}
    except (OSError, ValueError, RecursionError, safetensors.SafetensorError) as error:
        advice = "restore it, or train the run again in another folder"
        raise TrainingFailed(f"{path} is damaged or unreadable ({error}): {advice}") from error


def checksum(path: Path) -> int:
    """CRC-32 of a file: about a second for each gigabyte."""
    check = 0
    with open(path, "rb") as file:
        while chunk := file.read(PIECE):
            check = zlib.crc32(chunk, check)
    return check
