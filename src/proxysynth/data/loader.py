"""Batches of images: which images (samplers), and how they are loaded.

Workers are threads: Pillow releases the GIL while it decodes and resizes, so they run in parallel,
share one cache and copy nothing between processes. A batch does not depend on their number.
torch is imported with the first batch: `proxysynth data list` does not wait for it.

A batch leaves the loader as bytes, which are a quarter of float32 on the way to a GPU, and is
normalized on the device. Workers crop, resize and flip: pixels must not depend on the device.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.data.images import ImageCache, open_image
from proxysynth.data.listing import Listing
from proxysynth.data.transforms import Bytes, Pixels, Transform, random_stream, uniforms

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CHUNK = 8  # images in a worker's task
PREFETCH = 2  # batches prepared in advance

Indices = NDArray[np.int64]
Item = TypeVar("Item")


class Batch(NamedTuple):
    """Images with their labels."""

    images: Tensor  # (n, channels, h, w) in channels-last memory format; uint8 from the loader
    labels: Tensor  # (n,) int64
    pixels: Pixels | None = None  # normalizes the images; None if they are normalized already

    def inputs(self, device: torch.device) -> Tensor:
        """The images on the device as the network takes them, float32 and channels-last."""
        images = self.images.to(device, non_blocking=True)
        if self.pixels is None:
            return images
        return self.pixels.normalize(images.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class Loader:
    """The images of a listing, transformed; `Batch.inputs` normalizes them."""

    listing: Listing  # the images
    transform: Transform  # crops or augments; all its results have one size
    pixels: Pixels  # the network's convention
    workers: int = 0  # threads; 0 uses the caller's
    cache: ImageCache | None = None  # of downscaled images; None decodes the file every time
    pin: bool = False  # put batches into pinned memory, from which a CUDA device copies faster

    def batches(self, plan: Sequence[Indices], seed: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The batches of an epoch of a sampler, or of a part of it. An image's augmentation depends
        only on `seed`, `epoch` and its index."""
        todo = (np.asarray(indices, dtype=np.int64) for indices in plan)
        if self.workers == 0 or self._is_array():
            yield from (self._start(indices, seed, epoch)[0] for indices in todo)
            return
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="loader")
        try:
            started = (self._start(indices, seed, epoch, pool) for indices in todo)
            for batch, parts in prefetch(started, PREFETCH):
                for part in parts:
                    part.result()
                yield batch
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _start(
        self, indices: Indices, seed: int, epoch: int, pool: ThreadPoolExecutor | None = None
    ) -> tuple[Batch, list[Future[None]]]:
        """A batch, and the tasks of the pool that fill it; without a pool it is filled already."""
        import torch

        pixels, size = self.listing.pixels, self.transform.size
        parts = []
        sides = (size, size) if size is not None or pixels is None else pixels.shape[1:3]
        shape = (len(indices), *sides, self.pixels.channels)
        images = torch.empty(shape, dtype=torch.uint8, pin_memory=self.pin)
        array = images.numpy()
        if pixels is not None and self._is_array():
            taken = pixels[indices]
            if taken.ndim == 4:
                array[...] = taken
            else:  # by channel: broadcasting over three of them is several times slower
                for channel in range(self.pixels.channels):
                    array[..., channel] = taken
        elif pool is None:
            self._fill(array, indices, seed, epoch)
        else:
            cuts = [slice(at, at + CHUNK) for at in range(0, len(indices), CHUNK)]
            parts = [pool.submit(self._fill, array[c], indices[c], seed, epoch) for c in cuts]
        # (n, h, w, c) in memory viewed as (n, c, h, w): the channels-last format, without a copy.
        images = images.permute(0, 3, 1, 2)
        labels = torch.from_numpy(self.listing.labels[indices])
        return Batch(images, labels, self.pixels), parts

    def _fill(self, out: Bytes, indices: Indices, seed: int, epoch: int) -> None:
        draws = self.transform.draws
        for place, index in zip(out, indices.tolist(), strict=True):
            image = read_image(self.listing, index, self.cache)
            if image.mode != self.pixels.mode:
                image = image.convert(self.pixels.mode)
            made = self.transform(image, uniforms(seed, epoch, index, draws) if draws else ())
            place[...] = made.reshape(place.shape)

    def _is_array(self) -> bool:
        """Whether a batch is a slice of an array: nothing to decode, crop or convert."""
        held, whole = self.listing.pixels, self.transform.size is None
        return held is not None and whole and (held.ndim == 3 or self.pixels.channels == 3)


def prefetch(items: Iterator[Item], number: int) -> Iterator[Item]:
    """The items, of which this many are started before they are asked for."""
    waiting = deque(islice(items, number))
    while waiting:
        waiting.extend(islice(items, 1))
        yield waiting.popleft()


def read_image(listing: Listing, index: int, cache: ImageCache | None = None) -> Image.Image:
    """One image of a listing, gray or RGB; from the cache if there is one."""
    if listing.pixels is not None:
        return Image.fromarray(listing.pixels[index])
    if cache is not None:
        return Image.fromarray(cache.image(listing.path(index)))
    return open_image(listing.path(index))


def default_workers() -> int:
    """The number of CPUs available to this process, at most 8."""
    known = hasattr(os, "sched_getaffinity")  # not on every system
    return min(8, len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1)


# A value and a pure function of labels, epoch and batch size. An epoch is a list of arrays of
# indices, so that a run resumed after k batches takes `epoch[k:]`.
Sampler = Callable[[Indices, int, int], list[Indices]]


@dataclass(frozen=True)
class Shuffled:
    """Every image once, in an order drawn for the epoch. A single remaining image joins the batch
    before, since batch norm cannot train on one."""

    seed: int = 0

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        batches = _cut(_shuffle(len(labels), random_stream(self.seed, epoch, part=1)), batch_size)
        if len(batches) > 1 and len(batches[-1]) == 1:
            batches[-2:] = [np.concatenate(batches[-2:])]
        return batches


@dataclass(frozen=True)
class MPerClass:
    """Batches of batch_size / m classes with m images each.

    All classes appear equally often, up to one batch, however many images they have, and at most
    once in a batch. The images of a class come in an order drawn for the epoch, and start over
    when they run out. An epoch has as many images as the set, in full batches.
    """

    m: int = 4
    seed: int = 0

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        by_class = np.argsort(labels, kind="stable").astype(np.int64)
        own = np.split(by_class, np.flatnonzero(np.diff(labels[by_class])) + 1)
        most = self.m * len(own)
        if batch_size % self.m or not 0 < batch_size <= most:
            raise ValueError(
                f"batch_size must be a multiple of m={self.m} up to {most}, got {batch_size}"
            )
        numbers = random_stream(self.seed, epoch, part=1)
        decks = [members[_shuffle(len(members), numbers)] for members in own]
        dealt = np.zeros(len(own), dtype=np.int64)
        batches = []
        for _ in range(max(1, len(labels) // batch_size)):
            # The classes used least so far, ties broken at random.
            chosen = np.lexsort((numbers.random(len(own)), dealt))[: batch_size // self.m]
            turns = [self.m * dealt[c] + np.arange(self.m) for c in chosen]
            drawn = [decks[c].take(t, mode="wrap") for c, t in zip(chosen, turns, strict=True)]
            batches.append(np.concatenate(drawn))
            dealt[chosen] += 1
        return batches


def in_order(n: int, batch_size: int) -> list[Indices]:
    """Images 0 to n - 1 in order, for evaluation."""
    return _cut(np.arange(n, dtype=np.int64), batch_size)


def _shuffle(n: int, numbers: np.random.Generator) -> Indices:
    # Not numpy's own shuffle, which may change between versions.
    return np.argsort(numbers.random(n), kind="stable").astype(np.int64)


def _cut(order: Indices, size: int) -> list[Indices]:
    return [order[start : start + size] for start in range(0, len(order), size)]
