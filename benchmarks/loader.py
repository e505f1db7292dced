"""Pictures per second: the loader against plain Pillow on 500 x 375 photographs.

Both sides read the same JPEG files, crop and flip at random to 224 pixels, normalize and stack
batches, with the same number of threads. Plain Pillow decodes every file in every epoch; the loader
caches downscaled images from the second epoch on. The sides alternate; the median over epochs is
reported.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset

from benchmarks import Row
from benchmarks.timing import alternate, timed
from proxysynth.data import (
    PIXELS,
    AsIs,
    Batch,
    ImageCache,
    Listing,
    Loader,
    Pixels,
    RandomResizedCrop,
    Shuffled,
    default_workers,
    glyphs,
)
from proxysynth.data.transforms import uniforms

SIZE = 224
BATCH = 32


def run(quick: bool = False) -> list[Row]:
    """A row per side: images per second, and the ratio to plain Pillow."""
    pictures, rounds = (32, 2) if quick else (640, 5)
    workers = default_workers()
    with tempfile.TemporaryDirectory() as folder:
        listing = photographs(Path(folder) / "photographs", pictures)
        crop = RandomResizedCrop(SIZE)
        plan = Shuffled()(listing.labels, 0, BATCH)

        def with_cache(cache: ImageCache | None) -> Callable[[int], None]:
            loader = Loader(listing, crop, PIXELS["imagenet"], workers, cache)
            return lambda epoch: _consume(numbers(loader.batches(plan, epoch=epoch)))

        in_memory = with_cache(ImageCache(disk=0))
        on_disk = with_cache(ImageCache(memory=0, folder=Path(folder) / "cache"))
        sides: dict[str, Callable[[int], None]] = {
            "plain Pillow": lambda epoch: _consume(plain(listing, crop, plan, epoch, workers)),
            "loader, no cache": with_cache(None),
            "loader, later epochs, cache in memory": in_memory,
            "loader, later epochs, cache on disk": on_disk,
        }
        first = {
            "loader, first epoch, cache in memory": [timed(in_memory, 0)],
            "loader, first epoch, cache on disk": [timed(on_disk, 0)],
        }
        seconds = alternate(sides, range(1, rounds + 1)) | first
    median = {name: pictures / statistics.median(taken) for name, taken in seconds.items()}
    base = median["plain Pillow"]
    rows = [
        {
            "side": name,
            "pictures_per_second": round(rate, 1),
            "times_plain": round(rate / base, 2),
            "target": 2.0 if "later epochs" in name else None,
            "workers": workers,
            "pictures": pictures,
        }
        for name, rate in median.items()
    ]
    return [*rows, _glyph_row(quick)]


def numbers(batches: Iterable[Batch]) -> Iterable[Tensor]:
    """What a network on the CPU is given."""
    return (batch.inputs(torch.device("cpu")) for batch in batches)


def plain(
    listing: Listing,
    crop: RandomResizedCrop,
    plan: list[np.ndarray],
    epoch: int,
    workers: int,
) -> Iterable[Tensor]:
    """Batches as usually written: each image is prepared in every epoch, then they are stacked."""
    pictures = Pictures(listing, crop, PIXELS["imagenet"])

    def one(index: int) -> Tensor:
        return pictures.prepared(index, uniforms(0, epoch, index, crop.draws))

    with ThreadPoolExecutor(workers) as pool:
        made = pool.map(one, np.concatenate(plan).tolist())
        for indices in plan:
            yield torch.stack([next(made) for _ in indices])


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images as usually prepared: open, convert, crop, resize, flip, to tensor, normalize."""

    def __init__(self, listing: Listing, crop: RandomResizedCrop | None, pixels: Pixels) -> None:
        self.listing, self.crop, self.mode, self.unit = listing, crop, pixels.mode, pixels.unit
        self.mean = torch.tensor(pixels.mean)[:, None, None]
        self.std = torch.tensor(pixels.std)[:, None, None]

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        u = torch.rand(self.crop.draws).tolist() if self.crop is not None else ()
        return self.prepared(index, u), int(self.listing.labels[index])

    def prepared(self, index: int, u: Sequence[float]) -> Tensor:
        """One image; `u` are the draws of its crop."""
        if self.listing.pixels is None:
            with Image.open(self.listing.path(index)) as file:
                image = file.convert(self.mode)
        else:
            image = Image.fromarray(self.listing.pixels[index]).convert(self.mode)
        if self.crop is not None:
            image = image.crop(self.crop.box(image.width, image.height, u))
            image = image.resize((self.crop.size, self.crop.size), Image.Resampling.BILINEAR)
            if u[-1] < self.crop.flip:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        array = np.array(image)
        made = torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1).contiguous()
        return made.float().div(self.unit).sub_(self.mean).div_(self.std)


def photographs(folder: Path, count: int) -> Listing:
    """JPEG files of 500 x 375 pixels that take about as long to decode as a photograph."""
    folder.mkdir(parents=True)
    names = [f"{i:05}.jpg" for i in range(count)]
    for i, name in enumerate(names):
        photograph(i, 500, 375).save(folder / name, quality=90)
    labels = np.arange(count, dtype=np.int64) % 2
    return Listing(names=tuple(names), labels=labels, classes=("even", "odd"), root=folder)


def photograph(seed: int, width: int, height: int, channels: int = 1) -> Image.Image:
    """Smooth shapes with fine grain, gray or, with three `channels`, colored."""
    draw = np.random.default_rng(seed)
    coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC), dtype=np.float64)
    grain = draw.normal(0, 8, (height, width, channels))
    return Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8))


def _consume(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass


def _glyph_row(quick: bool) -> Row:
    train = glyphs().train
    loader = Loader(train, AsIs(), PIXELS["grey"])
    taken = [
        timed(_consume, numbers(loader.batches(Shuffled()(train.labels, epoch, BATCH))))
        for epoch in range(3 if quick else 20)
    ]
    return {
        "side": "glyphs",
        "pictures_per_second": round(len(train) / statistics.median(taken), 1),
        "times_plain": None,
        "target": None,
        "workers": 0,
        "pictures": len(train),
    }
