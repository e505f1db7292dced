"""Pictures per second: our loop against the same training in a plain PyTorch loop.

The plain loop is written as in typical research code: a dataset that opens, crops and normalizes
each image in every epoch, a DataLoader with worker processes, tensors in the default memory format,
synthetic classes by concatenation, and Adam with its defaults. Both sides train the same network
with the same loss, data, batch size, learning rates, threads and workers. They alternate by epoch;
the first, in which our loader decodes the files and the DataLoader starts its workers, is a warm-up
and not counted. Both return freed memory to the system, since they share a process; the gain from
keeping it is measured separately.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from benchmarks import Row
from benchmarks.loader import Pictures, photographs
from benchmarks.step import SCALE, authors
from benchmarks.timing import alternate
from benchmarks.turns import Step, Turns
from proxysynth.data import (
    PIXELS,
    AsIs,
    Batch,
    ImageCache,
    Listing,
    Loader,
    RandomResizedCrop,
    default_workers,
    glyphs,
)
from proxysynth.losses import NormSoftmax
from proxysynth.models.conv4 import Conv4
from proxysynth.models.embedder import Embedder
from proxysynth.regularizers import ProxySynthesis
from proxysynth.training.learner import Learner
from proxysynth.training.prepare import make_network, make_sampler
from proxysynth.training.run import Run

TARGET = 1.5
ALPHA = 0.4
LOSS = ProxySynthesis(NormSoftmax(SCALE), alpha=ALPHA)
PHOTOGRAPHS = Run(
    loss=LOSS, backbone="efficientnet_lite0", dim=512, image_size=96, augment=True, lr=1e-4,
    schedule="constant",
)  # fmt: skip
Epoch = Callable[[int], None]
"""Trains the epoch of this number, on every image once."""


def run(quick: bool = False) -> list[Row]:
    """A row per dataset and side: images per second, and the ratio to the plain loop."""
    rounds = 1 if quick else 7
    with tempfile.TemporaryDirectory() as folder:
        photos = photographs(Path(folder) / "photographs", 24 if quick else 384)
        photos = _relabelled(photos, 6 if quick else 48)
        setting = replace(PHOTOGRAPHS, batch_size=8 if quick else 32)
        rows = compare("EfficientNet-Lite0 at 96 pixels", setting, photos, rounds)
    rows += memory_rows(quick)
    drawn = glyphs(10, 2).train if quick else glyphs().train
    return [*rows, *compare("glyphs", Run(loss=LOSS, schedule="constant"), drawn, rounds)]


def compare(name: str, setting: Run, listing: Listing, rounds: int) -> list[Row]:
    """Rows of one dataset."""
    workers = default_workers()
    sides = {
        "proxysynth": ours(setting, listing, workers),
        "plain loop": plain(setting, listing, workers, make_network(setting, None)),
    }
    if setting.backbone == "conv4":
        sides["plain loop, convolution and pooling apart"] = plain(
            setting, listing, workers, textbook(make_network(setting, None))
        )
    alternate(sides, range(1))  # a warm-up
    seconds = alternate(sides, range(1, rounds + 1))
    return [
        {
            "table": name,
            "side": side,
            "pictures_per_second": len(listing) / statistics.median(taken),
            "times_plain": (
                times := statistics.median(
                    base / mine for mine, base in zip(taken, seconds["plain loop"], strict=True)
                )
            ),
            "target": TARGET if side == "proxysynth" else None,
            "reached": times >= TARGET if side == "proxysynth" else None,
            "batch": setting.batch_size,
            "epochs": rounds,
            "threads": torch.get_num_threads(),
            "workers": workers,
        }
        for side, taken in seconds.items()
    ]


def memory_rows(quick: bool) -> list[Row]:
    """A step of EfficientNet-Lite0 with freed memory kept, and returned as by default."""
    rows = []
    with Turns(
        memory_step, ("memory kept", "memory returned"), keep_memory=["memory kept"]
    ) as turns:
        for threads in sorted({1, torch.get_num_threads()}):
            for batch in (4,) if quick else (32, 128):
                rounds = (1, 1) if quick else (4, 3)
                seconds = turns.seconds(batch, threads, *rounds)
                base = seconds["memory returned"]
                rows += [
                    {"table": "memory kept", "side": side, "batch": batch, "threads": threads,
                     "pictures_per_second": batch / taken, "times_returned": base / taken}
                    for side, taken in seconds.items()
                ]  # fmt: skip
    return rows


def memory_step(side: str, batch: int) -> Step:
    """A step of our learner on noise images; the same for both sides."""
    setting = replace(PHOTOGRAPHS, batch_size=batch)
    net = make_network(setting, None)
    learner = Learner(setting, net, 48, 1, torch.device("cpu"))
    learner.begin_epoch(0)
    draw = torch.Generator().manual_seed(0)
    images = torch.randn(batch, 3, net.image_size, net.image_size, generator=draw)
    images = images.contiguous(memory_format=torch.channels_last)
    given = Batch(images, torch.arange(batch) % 48)
    return lambda: learner.step(given, 0)


def ours(setting: Run, listing: Listing, workers: int) -> Epoch:
    """The package's loader and learner, as `train` uses them."""
    net = make_network(setting, None)
    sampler = make_sampler(setting)
    files = listing.root is not None
    loader = Loader(
        listing,
        RandomResizedCrop(net.image_size) if setting.augment else AsIs(),
        PIXELS[net.preprocess],
        workers,
        ImageCache(round(net.image_size * 256 / 224), disk=0) if files else None,
    )
    steps = len(sampler(listing.labels, 0, setting.batch_size))
    learner = Learner(setting, net, len(listing.classes), steps, torch.device("cpu"))

    def epoch(number: int) -> None:
        learner.begin_epoch(number)
        plan = sampler(listing.labels, number, setting.batch_size)
        for i, batch in enumerate(loader.batches(plan, setting.seed, number)):
            learner.step(batch, number * steps + i)

    return epoch


def plain(setting: Run, listing: Listing, workers: int, net: nn.Module) -> Epoch:
    """The same training as usually written."""
    crop = RandomResizedCrop(int(net.image_size)) if setting.augment else None  # type: ignore[arg-type]
    pictures = Pictures(listing, crop, PIXELS[str(net.preprocess)])
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        pictures,
        setting.batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    bound = float(setting.dim or 1) ** -0.5
    proxies = nn.Parameter(torch.empty(len(listing.classes), setting.dim or 1))
    nn.init.uniform_(proxies, -bound, bound)
    optimizer = torch.optim.Adam(
        [
            {"params": net.parameters(), "lr": setting.lr},
            {"params": [proxies], "lr": setting.proxy_lr},
        ]
    )

    draw = np.random.default_rng(setting.seed)

    def epoch(number: int) -> None:
        net.train()
        for images, labels in loader:
            loss = authors(net(images), labels, proxies, draw.beta(ALPHA, ALPHA))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not np.isfinite(loss.item()):
                raise RuntimeError("the plain loop's loss is not finite")

    return epoch


def textbook(net: Embedder) -> Embedder:
    """Conv4 in single layers, with the same weights: convolution, pooling, batch norm, ReLU."""
    backbone = net.backbone
    assert isinstance(backbone, Conv4)
    for name in backbone.stages:
        pooled, norm, activation = getattr(backbone, name)
        convolution = nn.Conv2d(
            pooled.in_channels, pooled.out_channels, kernel_size=3, padding=1, bias=False
        )
        convolution.weight = pooled.weight
        setattr(backbone, name, nn.Sequential(convolution, nn.AvgPool2d(2), norm, activation))
    return net


def _relabelled(listing: Listing, classes: int) -> Listing:
    labels = np.arange(len(listing), dtype=np.int64) % classes
    return replace(listing, labels=labels, classes=tuple(map(str, range(classes))))
