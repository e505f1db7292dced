"""Pictures per second: the loader against plain Pillow on 500 x 375 photographs.

Both sides read the same JPEG files, crop and flip at random to 224 pixels, normalize and stack
batches, with the same number of threads. Plain Pillow decodes every file in every epoch; the loader
caches downscaled images from the second epoch on. The sides alternate; the median over epochs is
reported.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proxysynth.data import (
    PIXELS,
    AsIs,
    Batch,
    ImageCache,
    Listing,
    Loader,
    RandomResizedCrop,
    Shuffled,
    default_workers,
    glyphs,
)
from proxysynth.data.transforms import uniforms

SIZE = 224
BATCH = 32


def run(quick: bool = False) -> list[dict[str, Any]]:
    """A row per side: pictures per second, and the ratio to plain Pillow."""
    pictures, rounds = (32, 2) if quick else (640, 5)
    workers = default_workers()
    with tempfile.TemporaryDirectory() as folder:
        listing = photographs(Path(folder) / "photographs", pictures)
        crop = RandomResizedCrop(SIZE)
        plan = Shuffled()(listing.labels, 0, BATCH)

        def with_cache(cache: ImageCache | None) -> Callable[[int], Iterable[Any]]:
            loader = Loader(listing, crop, PIXELS["imagenet"], workers, cache)
            return lambda epoch: numbers(loader.batches(plan, epoch=epoch))

        in_memory = with_cache(ImageCache(disk=0))
        on_disk = with_cache(ImageCache(memory=0, folder=Path(folder) / "cache"))
        sides: dict[str, Callable[[int], Iterable[Any]]] = {
            "plain Pillow": lambda epoch: plain(listing, crop, plan, epoch, workers),
            "loader, no cache": with_cache(None),
            "loader, later epochs, cache in memory": in_memory,
            "loader, later epochs, cache on disk": on_disk,
        }
        first = {
            "loader, first epoch, cache in memory": _rate(in_memory(0), pictures),
            "loader, first epoch, cache on disk": _rate(on_disk(0), pictures),
        }
        rates: dict[str, list[float]] = {name: [] for name in sides}
        for epoch in range(1, rounds + 1):
            for name, side in sides.items():
                rates[name].append(_rate(side(epoch), pictures))
    median = {name: statistics.median(found) for name, found in rates.items()} | first
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
    """As usually written: open, convert, crop, resize, flip, to tensor, normalize, stack."""
    mean = torch.tensor(PIXELS["imagenet"].mean)[:, None, None]
    std = torch.tensor(PIXELS["imagenet"].std)[:, None, None]

    def one(index: int) -> Tensor:
        u = uniforms(0, epoch, index, crop.draws)
        with Image.open(listing.path(index)) as file:
            image = file.convert("RGB")
        part = image.crop(crop.box(image.width, image.height, u))
        part = part.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if u[-1] < crop.flip:
            part = part.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        made = torch.from_numpy(np.array(part)).permute(2, 0, 1).contiguous().float().div(255)
        return made.sub_(mean).div_(std)

    with ThreadPoolExecutor(workers) as pool:
        made = pool.map(one, np.concatenate(plan).tolist())
        for indices in plan:
            yield torch.stack([next(made) for _ in indices])


def photographs(folder: Path, count: int) -> Listing:
    """JPEG files of 500 x 375 pixels that take about as long to decode as a photograph: smooth
    shapes with fine grain, quality 90."""
    folder.mkdir(parents=True)
    names = []
    for i in range(count):
        draw = np.random.default_rng(i)
        coarse = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), dtype=np.float64)
        grain = draw.normal(0, 8, (375, 500, 1))
        names.append(f"{i:05}.jpg")
        made = np.clip(smooth + grain, 0, 255).astype(np.uint8)
        Image.fromarray(made).save(folder / names[-1], quality=90)
    labels = np.arange(count, dtype=np.int64) % 2
    return Listing(names=tuple(names), labels=labels, classes=("even", "odd"), root=folder)


def _rate(batches: Iterable[Any], pictures: int) -> float:
    start = time.perf_counter()
    for _ in batches:
        pass
    return pictures / (time.perf_counter() - start)


def _glyph_row(quick: bool) -> dict[str, Any]:
    train = glyphs().train
    loader = Loader(train, AsIs(), PIXELS["grey"])
    rates = [
        _rate(numbers(loader.batches(Shuffled()(train.labels, epoch, BATCH))), len(train))
        for epoch in range(3 if quick else 20)
    ]
    return {
        "side": "glyphs",
        "pictures_per_second": round(statistics.median(rates), 1),
        "times_plain": None,
        "target": None,
        "workers": 0,
        "pictures": len(train),
    }
