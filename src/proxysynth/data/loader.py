"""Batches of pictures, ready for a network.

Workers are threads: Pillow decodes and resizes outside Python's lock, so they run side by side,
share one cache and need no copies between processes. A batch is the same whoever makes it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from .buffers import Buffers
from .listing import Listing
from .picture_cache import PictureCache
from .pictures import open_picture
from .pixels import Pixels
from .transforms import Transform, uniforms

AT_ONCE = 8  # pictures that a worker makes before it looks for the next
AHEAD = 2  # batches made in advance

Indices = NDArray[np.int64]


class Batch(NamedTuple):
    """images (n, channels, h, w) float32 in channels-last memory format; labels (n,) and indices
    (n,) into the listing, int64."""

    images: Tensor
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Loader:
    """Pictures of a listing, transformed and normalised.

    Args:
        listing: the pictures.
        transform: makes them one size.
        pixels: makes them numbers.
        workers: threads; 0 works in the caller's own.
        cache: holds shrunken pictures; None decodes the file every time.
        pin: put batches into pinned memory, from which a CUDA device copies faster.
    """

    listing: Listing
    transform: Transform
    pixels: Pixels
    workers: int = 0
    cache: PictureCache | None = None
    pin: bool = False

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ValueError(f"the number of loader workers must be 0 or more, got {self.workers}")
        if self.transform.size is None and self.listing.pixels is None:
            raise ValueError(
                "files may have any size: give the loader a transform that crops to one"
            )

    def batches(self, plan: Sequence[Indices], seed: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The batches of a plan, an epoch of a sampler or a part of it, in order.

        A picture's augmentation depends on `seed`, `epoch` and its index alone.
        """
        plan = [np.asarray(indices, dtype=np.int64) for indices in plan]
        room = self._room()
        if self._at_once():
            for indices in plan:
                images = room(len(indices))
                self._gather(images.numpy(), indices)
                yield self._batch(images, indices)
        elif self.workers == 0:
            for indices in plan:
                images = room(len(indices))
                self._fill(images.numpy(), indices, seed, epoch)
                yield self._batch(images, indices)
        else:
            yield from self._ahead(plan, room, seed, epoch)

    def _ahead(
        self, plan: Sequence[Indices], room: Callable[[int], Tensor], seed: int, epoch: int
    ) -> Iterator[Batch]:
        waiting: deque[tuple[Tensor, Indices, list[Future[None]]]] = deque()
        todo = iter(plan)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="loader")
        try:
            while True:
                for indices in todo:
                    images = room(len(indices))
                    array = images.numpy()
                    cuts = [slice(at, at + AT_ONCE) for at in range(0, len(indices), AT_ONCE)]
                    parts = [
                        pool.submit(self._fill, array[cut], indices[cut], seed, epoch)
                        for cut in cuts
                    ]
                    waiting.append((images, indices, parts))
                    if len(waiting) > AHEAD:
                        break
                if not waiting:
                    return
                images, indices, parts = waiting.popleft()
                for part in parts:
                    part.result()
                yield self._batch(images, indices)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self, room: NDArray[np.float32], indices: Indices, seed: int, epoch: int) -> None:
        draws = self.transform.draws
        for place, index in zip(room, indices.tolist(), strict=True):
            image = picture(self.listing, index, self.cache)
            if image.mode != self.pixels.mode:
                image = image.convert(self.pixels.mode)
            made = self.transform(image, uniforms(seed, epoch, index, draws) if draws else ())
            self.pixels.numbers(made.reshape(place.shape), out=place)

    def _at_once(self) -> bool:
        """Whether a batch is a slice of an array: nothing to decode, crop or turn to grey."""
        held = self.listing.pixels
        return (
            held is not None
            and self.transform.size is None
            and (held.ndim == 3 or self.pixels.channels == 3)
        )

    def _gather(self, room: NDArray[np.float32], indices: Indices) -> None:
        assert self.listing.pixels is not None
        taken = self.listing.pixels[indices]
        if taken.ndim == 3:
            taken = np.repeat(taken[..., None], self.pixels.channels, axis=3)
        self.pixels.numbers(taken, out=room)

    def _room(self) -> Callable[[int], Tensor]:
        """Memory for n pictures, (n, h, w, channels)."""
        size, held = self.transform.size, self.listing.pixels
        sides = (size, size) if size is not None or held is None else held.shape[1:3]
        shape = (*sides, self.pixels.channels)
        if self.pin:  # CUDA's own allocator uses pinned memory again
            return lambda n: torch.empty((n, *shape), pin_memory=True)
        return Buffers(shape, most=AHEAD + 3).take

    def _batch(self, images: Tensor, indices: Indices) -> Batch:
        # (n, h, w, c) in memory seen as (n, c, h, w): that is channels-last, nothing moves.
        return Batch(
            images.permute(0, 3, 1, 2),
            torch.from_numpy(self.listing.labels[indices]),
            torch.from_numpy(indices.copy()),
        )


def picture(listing: Listing, index: int, cache: PictureCache | None = None) -> Image.Image:
    """One picture of a listing, grey or RGB; shrunken if there is a cache."""
    if listing.pixels is not None:
        return Image.fromarray(listing.pixels[index])
    if cache is not None:
        return Image.fromarray(cache.picture(listing.path(index)))
    return open_picture(listing.path(index))


def default_workers() -> int:
    """As many as there are processors for this process, at most 8."""
    try:
        return min(8, len(os.sched_getaffinity(0)))
    except AttributeError:  # not on every system
        return min(8, os.cpu_count() or 1)
