"""Proxies on disk in shards: each rank writes its own rows, any number of ranks reads them back.

    checkpoint/step-000000480/proxies-0-of-2.safetensors    the first rows, and what the optimizer
    checkpoint/step-000000480/proxies-1-of-2.safetensors    the others           remembers of them

Which file holds which rows, and its checksum, stands in the checkpoint's `state.json`. A reader
opens the files that its own rows lie in and copies no others.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import torch
from torch import Tensor

from proxysynth.files import UNFINISHED, CannotWrite, sync_folder

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


class BrokenShard(Exception):
    """A file of rows that is missing, or not what was written."""


@dataclass(frozen=True)
class ShardFile:
    """One file of a checkpoint.

    Args:
        name: of the file, beside `state.json`.
        start, stop: the rows in it.
        crc32: of its bytes.
    """

    name: str
    start: int
    stop: int
    crc32: int


def is_of_proxies(name: str, tensor: Tensor) -> bool:
    """Whether a checkpoint's tensor has a row for each class: the proxies, and the optimizer's
    memory of them but for its count of steps."""
    return tensor.ndim > 0 and (name == "proxies" or name.startswith("optimizer.proxies."))


def write_shard(
    folder: Path, tensors: Mapping[str, Tensor], rows: range, rank: int, world: int
) -> ShardFile:
    """Write this rank's rows; nobody looks into the folder yet."""
    name = f"proxies-{rank}-of-{world}.safetensors"
    check = write_stream(folder / name, [entry(k, t) for k, t in tensors.items()], {})
    return ShardFile(name, rows.start, rows.stop, check)


def read_rows(folder: Path, files: Sequence[ShardFile], rows: range | None) -> dict[str, Tensor]:
    """These rows (None: all) of every tensor in the files; `BrokenShard` if one is not whole."""
    wanted = rows if rows is not None else range(max((file.stop for file in files), default=0))
    made: dict[str, Tensor] = {}
    for file in files:
        low, high = max(file.start, wanted.start), min(file.stop, wanted.stop)
        if low >= high:
            continue
        with _opened(folder, file) as held:
            for name in held.keys():  # noqa: SIM118
                part = held.get_slice(name)[low - file.start : high - file.start]
                if name not in made:
                    made[name] = part.new_empty((len(wanted), *part.shape[1:]))
                made[name][low - wanted.start : high - wanted.start] = part
    return made


def proxy_blocks(folder: Path, files: Sequence[ShardFile]) -> Iterator[Tensor]:
    """All proxies, some rows at a time, in order."""
    for file in sorted(files, key=lambda file: file.start):
        with _opened(folder, file) as held:
            rows, view = file.stop - file.start, held.get_slice("proxies")
            step = rows_at_once(view.get_shape(), torch.float32)
            for at in range(0, rows, step):
                yield view[at : min(at + step, rows)]


def proxies_shape(folder: Path, files: Sequence[ShardFile]) -> list[int]:
    """The shape of all proxies together."""
    with _opened(folder, files[0]) as held:
        shape = list(held.get_slice("proxies").get_shape())
    return [max(file.stop for file in files), *shape[1:]]


def _opened(folder: Path, file: ShardFile) -> Any:
    """The file, found to be what was written."""
    path = folder / file.name
    try:
        if _checksum(path) != file.crc32:
            raise BrokenShard(f"{folder.name}/{file.name} is not what was written")
        return safetensors.safe_open(path, framework="pt")
    except FileNotFoundError as error:
        raise BrokenShard(f"{folder.name} lacks its shard {file.name}") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise BrokenShard(f"{folder.name}/{file.name} cannot be read ({error})") from error


def _checksum(path: Path) -> int:
    check = 0
    with open(path, "rb") as file:
        while chunk := file.read(AT_ONCE):
            check = zlib.crc32(chunk, check)
    return check


def write_merged(
    path: Path,
    tensors: Mapping[str, Tensor],
    about: Mapping[str, Any],
    folder: Path,
    files: Sequence[ShardFile],
) -> None:
    """Write `tensors` and, as "proxies", the rows of all shards; `about` goes into the header.

    Args:
        path: of the file, which is replaced at once.
        folder, files: a checkpoint and its shards.
    """
    shape = proxies_shape(folder, files)
    proxies = Entry("proxies", torch.float32, shape, proxy_blocks(folder, files))
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        write_stream(unfinished, [*(entry(k, t) for k, t in tensors.items()), proxies], about)
        os.replace(unfinished, path)
        sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise CannotWrite(error.errno, error.strerror, str(path)) from error


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
