"""Batches of images: which images (samplers), and how they are loaded.

Workers are threads: Pillow releases the GIL while it decodes and resizes, so they run in parallel,
share one cache and copy nothing between processes. A batch does not depend on their number.
torch is imported with the first batch: `proxysynth data list` does not wait for it.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from proxysynth.data.images import ImageCache, open_image
from proxysynth.data.listing import Listing
from proxysynth.data.transforms import Pixels, Transform, uniforms

if TYPE_CHECKING:
    from torch import Tensor

CHUNK = 8  # images in a worker's task
PREFETCH = 2  # batches prepared in advance

Indices = NDArray[np.int64]


class Batch(NamedTuple):
    """images (n, channels, h, w) float32 in channels-last memory format; labels (n,) and indices
    (n,) into the listing, int64."""

    images: Tensor
    labels: Tensor
    indices: Tensor


@dataclass(frozen=True)
class Loader:
    """The images of a listing, transformed and normalized.

    Args:
        listing: the images.
        transform: crops or augments; gives all of them one size.
        pixels: normalizes them.
        workers: threads; 0 uses the caller's.
        cache: of downscaled images; None decodes the file every time.
        pin: put batches into pinned memory, from which a CUDA device copies faster.
    """

    listing: Listing
    transform: Transform
    pixels: Pixels
    workers: int = 0
    cache: ImageCache | None = None
    pin: bool = False

    def __post_init__(self) -> None:
        if self.workers < 0:
            raise ValueError(f"workers must be >= 0, got {self.workers}")
        if self.transform.size is None and self.listing.pixels is None:
            raise ValueError(
                "image files may have any size: give the loader a transform that crops to one"
            )

    def batches(self, plan: Sequence[Indices], seed: int = 0, epoch: int = 0) -> Iterator[Batch]:
        """The batches of a plan: an epoch of a sampler, or a part of it.

        An image's augmentation depends only on `seed`, `epoch` and its index.
        """
        plan = [np.asarray(indices, dtype=np.int64) for indices in plan]
        allocate = self._allocator()
        if self._is_array():
            for indices in plan:
                images = allocate(len(indices))
                self._gather(images.numpy(), indices)
                yield self._batch(images, indices)
        elif self.workers == 0:
            for indices in plan:
                images = allocate(len(indices))
                self._fill(images.numpy(), indices, seed, epoch)
                yield self._batch(images, indices)
        else:
            yield from self._prefetch(plan, allocate, seed, epoch)

    def _prefetch(
        self, plan: Sequence[Indices], allocate: Callable[[int], Tensor], seed: int, epoch: int
    ) -> Iterator[Batch]:
        waiting: deque[tuple[Tensor, Indices, list[Future[None]]]] = deque()
        todo = iter(plan)
        pool = ThreadPoolExecutor(self.workers, thread_name_prefix="loader")
        try:
            while True:
                for indices in todo:
                    images = allocate(len(indices))
                    array = images.numpy()
                    cuts = [slice(at, at + CHUNK) for at in range(0, len(indices), CHUNK)]
                    parts = [
                        pool.submit(self._fill, array[cut], indices[cut], seed, epoch)
                        for cut in cuts
                    ]
                    waiting.append((images, indices, parts))
                    if len(waiting) > PREFETCH:
                        break
                if not waiting:
                    return
                images, indices, parts = waiting.popleft()
                for part in parts:
                    part.result()
                yield self._batch(images, indices)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _fill(self, out: NDArray[np.float32], indices: Indices, seed: int, epoch: int) -> None:
        draws = self.transform.draws
        for place, index in zip(out, indices.tolist(), strict=True):
            image = read_image(self.listing, index, self.cache)
            if image.mode != self.pixels.mode:
                image = image.convert(self.pixels.mode)
            made = self.transform(image, uniforms(seed, epoch, index, draws) if draws else ())
            self.pixels.normalize(made.reshape(place.shape), out=place)

    def _is_array(self) -> bool:
        """Whether a batch is a slice of an array: nothing to decode, crop or convert."""
        held = self.listing.pixels
        return (
            held is not None
            and self.transform.size is None
            and (held.ndim == 3 or self.pixels.channels == 3)
        )

    def _gather(self, out: NDArray[np.float32], indices: Indices) -> None:
        assert self.listing.pixels is not None
        taken = self.listing.pixels[indices]
        if taken.ndim == 3:
            taken = np.repeat(taken[..., None], self.pixels.channels, axis=3)
        self.pixels.normalize(taken, out=out)

    def _allocator(self) -> Callable[[int], Tensor]:
        """Gives memory for n images, (n, h, w, channels)."""
        size, held = self.transform.size, self.listing.pixels
        sides = (size, size) if size is not None or held is None else held.shape[1:3]
        shape = (*sides, self.pixels.channels)
        if self.pin:  # torch reuses pinned memory itself
            import torch

            return lambda n: torch.empty((n, *shape), pin_memory=True)
        return Buffers(shape, most=PREFETCH + 3).take

    def _batch(self, images: Tensor, indices: Indices) -> Batch:
        import torch

        # (n, h, w, c) in memory viewed as (n, c, h, w): the channels-last format, without a copy.
        return Batch(
            images.permute(0, 3, 1, 2),
            torch.from_numpy(self.listing.labels[indices]),
            torch.from_numpy(indices.copy()),
        )


def read_image(listing: Listing, index: int, cache: ImageCache | None = None) -> Image.Image:
    """One image of a listing, gray or RGB; from the cache if there is one."""
    if listing.pixels is not None:
        return Image.fromarray(listing.pixels[index])
    if cache is not None:
        return Image.fromarray(cache.image(listing.path(index)))
    return open_image(listing.path(index))


def default_workers() -> int:
    """The number of CPUs available to this process, at most 8."""
    try:
        return min(8, len(os.sched_getaffinity(0)))
    except AttributeError:  # not available on every system
        return min(8, os.cpu_count() or 1)


class Buffers:
    """Memory for batches, reused once nobody holds the batch: fresh pages of tens of megabytes cost
    as much as a third of loading.

    A tensor made from an array refers to it, as does everything made from the tensor without a
    copy, such as a network's saved input. The array is free when only this object refers to it.

    Args:
        shape: (h, w, channels) of an image.
        most: how many arrays are kept; more are allocated if needed, and not kept.
    """

    def __init__(self, shape: tuple[int, ...], most: int) -> None:
        self._shape = shape
        self._most = most
        self._arrays: list[NDArray[np.float32]] = []
        self._unused = 0

    def take(self, n: int) -> Tensor:
        """An uninitialized tensor (n, *shape)."""
        import torch

        for i in range(len(self._arrays)):
            if len(self._arrays[i]) == n and self._references(i) == self._unused:
                return torch.from_numpy(self._arrays[i])
        if len(self._arrays) >= self._most:
            return torch.empty((n, *self._shape))
        self._arrays.append(np.empty((n, *self._shape), dtype=np.float32))
        # Measured, since interpreters differ in what they count.
        self._unused = self._references(-1)
        return torch.from_numpy(self._arrays[-1])

    def _references(self, i: int) -> int:
        return sys.getrefcount(self._arrays[i])


class Sampler(Protocol):
    """A value and a pure function of labels, epoch and batch size. An epoch is a list of arrays of
    indices, so that a run resumed after k batches takes `epoch[k:]`."""

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]: ...


@dataclass(frozen=True)
class Shuffled:
    """Every image once, in an order drawn for the epoch.

    Args:
        seed: draws the orders.
        drop_last: drop a last batch that is not full. Otherwise it is kept; a single remaining
            image joins the batch before, since batch norm cannot train on one.
    """

    seed: int = 0
    drop_last: bool = False

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        _check(len(labels), batch_size)
        order = _shuffle(len(labels), _numbers(self.seed, epoch))
        batches = _cut(order, batch_size)
        if len(batches) > 1 and len(batches[-1]) < batch_size:
            last = batches.pop()
            if len(last) == 1 and not self.drop_last:
                batches[-1] = np.concatenate([batches[-1], last])
            elif not self.drop_last:
                batches.append(last)
        return batches


@dataclass(frozen=True)
class MPerClass:
    """Batches of batch_size / m classes with m images each.

    All classes appear equally often, up to one batch, however many images they have, and at most
    once in a batch. The images of a class come in an order drawn for the epoch, and start over
    when they run out. An epoch has as many images as the set, in full batches.

    Args:
        m: images per class and batch.
        seed: draws classes and images.
    """

    m: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.m < 1:
            raise ValueError(f"m must be >= 1, got {self.m}")

    def __call__(self, labels: Indices, epoch: int, batch_size: int) -> list[Indices]:
        _check(len(labels), batch_size)
        own = [members for members in _by_class(labels) if len(members)]
        per_batch = batch_size // self.m
        if batch_size % self.m or not 0 < per_batch <= len(own):
            raise ValueError(
                f"a batch must be a multiple of m={self.m} images of at most {len(own)} classes, "
                f"got batch_size {batch_size}: choose one up to {len(own) * self.m}"
            )
        numbers = _numbers(self.seed, epoch)
        decks = [members[_shuffle(len(members), numbers)] for members in own]
        dealt = np.zeros(len(own), dtype=np.int64)
        batches = []
        for _ in range(max(1, len(labels) // batch_size)):
            # The classes used least so far, ties broken at random.
            chosen = np.lexsort((numbers.random(len(own)), dealt))[:per_batch]
            part = [
                decks[c][(dealt[c] * self.m + np.arange(self.m)) % len(decks[c])] for c in chosen
            ]
            dealt[chosen] += 1
            batches.append(np.concatenate(part))
        return batches


def in_order(n: int, batch_size: int) -> list[Indices]:
    """Images 0 to n - 1 in order, for evaluation."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be >= 1, got {batch_size}")
    return _cut(np.arange(n, dtype=np.int64), batch_size)


SAMPLERS = {"shuffled": Shuffled, "m_per_class": MPerClass}


def _check(n: int, batch_size: int) -> None:
    if batch_size < 2:
        raise ValueError(f"batch_size must be >= 2 in training, got {batch_size}")
    if n < 2:
        raise ValueError(f"training needs at least 2 images, got {n}")


def _numbers(seed: int, epoch: int) -> np.random.Generator:
    key = np.array([seed % (1 << 64), epoch], dtype=np.uint64)
    # Another part of the stream than the augmentation uses.
    counter = np.array([0, 0, 1, 0], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def _shuffle(n: int, numbers: np.random.Generator) -> Indices:
    # Not numpy's own shuffle, which may change between versions.
    return np.argsort(numbers.random(n), kind="stable").astype(np.int64)


def _cut(order: Indices, size: int) -> list[Indices]:
    return [order[start : start + size] for start in range(0, len(order), size)]


def _by_class(labels: Indices) -> Sequence[Indices]:
    order = np.argsort(labels, kind="stable").astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(labels))[:-1])
