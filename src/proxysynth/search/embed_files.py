"""Files through a model: decoded by threads ahead of the network, a bad one named and left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from proxysynth.data import UnreadablePicture
from proxysynth.search.describe_model import PictureEmbedder
from proxysynth.search.scan_folder import Found
from proxysynth.training.allocator import kept_memory
from proxysynth.training.embed import AT_ONCE
from proxysynth.training.load import Picture
from proxysynth.training.resources import Resources

AHEAD = 2  # batches decoded in advance


class Unreadable(NamedTuple):
    """A file without an embedding, and why."""

    path: str
    reason: str


Embedded = tuple[list[Found], NDArray[np.float32], list[Unreadable]]
"""Files with their rows (n, d), and those that gave none."""


def embed_files(
    model: PictureEmbedder, root: Path, files: Sequence[Found], workers: int | None = None
) -> Iterator[Embedded]:
    """The embeddings of files, batch by batch, in order."""
    threads = max(1, Resources(workers=workers).loader_workers)
    cuts = [files[at : at + AT_ONCE] for at in range(0, len(files), AT_ONCE)]
    waiting: deque[tuple[Sequence[Found], list[Future[Picture | Unreadable]]]] = deque()

    def opened(file: Found) -> Picture | Unreadable:
        path = root / file.path
        if path.exists() and not path.is_file():  # reading a pipe would wait for ever
            return Unreadable(file.path, "it is a pipe or a device, not a file")
        try:
            return model.opened(path)
        except UnreadablePicture as error:
            return Unreadable(file.path, error.reason)

    pool = ThreadPoolExecutor(threads, thread_name_prefix="index")
    try:
        todo = iter(cuts)
        with kept_memory() as look:
            while True:
                for cut in todo:
                    waiting.append((cut, [pool.submit(opened, file) for file in cut]))
                    if len(waiting) > AHEAD:
                        break
                if not waiting:
                    return
                cut, parts = waiting.popleft()
                yield _embedded(model, cut, [part.result() for part in parts], workers)
                look()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _embedded(
    model: PictureEmbedder,
    files: Sequence[Found],
    pictures: Sequence[Picture | Unreadable],
    workers: int | None,
) -> Embedded:
    bad = [one for one in pictures if isinstance(one, Unreadable)]
    pairs = [
        (file, picture)
        for file, picture in zip(files, pictures, strict=True)
        if not isinstance(picture, Unreadable)
    ]
    rows = model.embed([picture for _, picture in pairs], workers)
    fine = torch.isfinite(rows).all(dim=1).tolist()
    bad += [
        Unreadable(file.path, "its embedding is not a number")
        for (file, _), good in zip(pairs, fine, strict=True)
        if not good
    ]
    kept = [file for (file, _), good in zip(pairs, fine, strict=True) if good]
    return kept, rows[torch.tensor(fine, dtype=torch.bool)].numpy(), bad
