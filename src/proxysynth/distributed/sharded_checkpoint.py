"""Sharded proxies on disk: each rank writes its own rows, any number of ranks reads them back.

    checkpoint/step-000000480/proxies-0-of-2.safetensors    the first rows and their optimizer state
    checkpoint/step-000000480/proxies-1-of-2.safetensors    the others

The checkpoint's `state.json` records which file holds which rows, and its checksum. A reader opens
only the files that hold rows of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import torch
from torch import Tensor

from proxysynth.errors import Damaged
from proxysynth.tensor_files import Entry, checksum, rows_per_piece, write_stream


@dataclass(frozen=True)
class ShardFile:
    """One file of a checkpoint.

    Args:
        name: of the file, beside `state.json`.
        start, stop: the range of its rows.
        crc32: of its bytes.
    """

    name: str
    start: int
    stop: int
    crc32: int


def has_row_per_class(name: str, tensor: Tensor) -> bool:
    """Whether a checkpoint's tensor is sharded: the proxies and their optimizer state, except its
    step count."""
    return tensor.ndim > 0 and (name == "proxies" or name.startswith("optimizer.proxies."))


def write_shard(
    folder: Path, tensors: Mapping[str, Tensor], rows: range, rank: int, world: int
) -> ShardFile:
    """Write this rank's rows into a folder that nobody reads yet."""
    name = f"proxies-{rank}-of-{world}.safetensors"
    return ShardFile(name, rows.start, rows.stop, write_stream(folder / name, tensors, {}))


def read_rows(folder: Path, files: Sequence[ShardFile], rows: range | None) -> dict[str, Tensor]:
    """These rows (None: all) of every tensor in the files; `Damaged` if one is damaged."""
    wanted = rows if rows is not None else range(max((file.stop for file in files), default=0))
    made: dict[str, Tensor] = {}
    for file in files:
        low, high = max(file.start, wanted.start), min(file.stop, wanted.stop)
        if low >= high:
            continue
        with _open_checked(folder, file) as held:
            for name in held.keys():  # noqa: SIM118
                part = held.get_slice(name)[low - file.start : high - file.start]
                if name not in made:
                    made[name] = part.new_empty((len(wanted), *part.shape[1:]))
                made[name][low - wanted.start : high - wanted.start] = part
    return made


def all_proxies(folder: Path, files: Sequence[ShardFile]) -> Entry:
    """The proxies of all shards as one tensor of a file, which is never in memory as a whole."""
    with _open_checked(folder, files[0]) as held:
        shape = list(held.get_slice("proxies").get_shape())
    shape[0] = max(file.stop for file in files)
    return Entry("proxies", torch.float32, shape, _proxy_pieces(folder, files))


def _proxy_pieces(folder: Path, files: Sequence[ShardFile]) -> Iterator[Tensor]:
    for file in sorted(files, key=lambda file: file.start):
        with _open_checked(folder, file) as held:
            rows, view = file.stop - file.start, held.get_slice("proxies")
            step = rows_per_piece(view.get_shape(), torch.float32)
            for start in range(0, rows, step):
                yield view[start : min(start + step, rows)]


def _open_checked(folder: Path, file: ShardFile) -> Any:
    path = folder / file.name
    try:
        if checksum(path) != file.crc32:
            raise Damaged(f"{folder.name}/{file.name} does not match its checksum")
        return safetensors.safe_open(path, framework="pt")
    except FileNotFoundError as error:
        raise Damaged(f"{folder.name} lacks its shard {file.name}") from error
    except (OSError, safetensors.SafetensorError) as error:
        raise Damaged(f"{folder.name}/{file.name} cannot be read ({error})") from error
