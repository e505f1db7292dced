"""One file of all proxies, made of shards row range by row range: it never is in memory whole."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxysynth.training.distributed_shards import ShardFile, proxies_shape, proxy_blocks
from proxysynth.training.distributed_stream import Entry, entry, write_stream
from proxysynth.training.durable import UNFINISHED, CannotWrite, sync_folder


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
