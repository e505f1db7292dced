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
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from benchmarks.loader import photographs
from benchmarks.turns import Step, Turns
from proxysynth.data import (
    PIXELS,
    AsIs,
    Batch,
    ImageCache,
    Listing,
    Loader,
    Pixels,
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
SCALE, ALPHA = 23.0, 0.4
LOSS = ProxySynthesis(NormSoftmax(SCALE), alpha=ALPHA)
PHOTOGRAPHS = Run(
    loss=LOSS, backbone="efficientnet_lite0", dim=512, image_size=96, augment=True, lr=1e-4,
    schedule="constant",
)  # fmt: skip
Epoch = Callable[[int], int]
"""Trains the epoch of this number; returns the number of images."""


def run(quick: bool = False) -> list[dict[str, Any]]:
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


def compare(name: str, setting: Run, listing: Listing, rounds: int) -> list[dict[str, Any]]:
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
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for epoch in range(rounds + 1):
        for side, train in sides.items():
            start = time.perf_counter()
            pictures = train(epoch)
            if epoch:
                rates[side].append(pictures / (time.perf_counter() - start))
    return [
        {
            "table": name,
            "side": side,
            "pictures_per_second": statistics.median(found),
            "times_plain": (
                times := statistics.median(
                    mine / theirs for mine, theirs in zip(found, rates["plain loop"], strict=True)
                )
            ),
            "target": TARGET if side == "proxysynth" else None,
            "reached": times >= TARGET if side == "proxysynth" else None,
            "batch": setting.batch_size,
            "epochs": rounds,
            "threads": torch.get_num_threads(),
            "workers": workers,
        }
        for side, found in rates.items()
    ]


def memory_rows(quick: bool) -> list[dict[str, Any]]:
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
    given = Batch(images, torch.arange(batch) % 48, torch.arange(batch))
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

    def epoch(number: int) -> int:
        learner.begin_epoch(number)
        plan = sampler(listing.labels, number, setting.batch_size)
        for i, batch in enumerate(loader.batches(plan, setting.seed, number)):
            learner.step(batch, number * steps + i)
        return sum(map(len, plan))

    return epoch


def plain(setting: Run, listing: Listing, workers: int, net: nn.Module) -> Epoch:
    """The same training as usually written."""
    pictures = Pictures(listing, setting, PIXELS[str(net.preprocess)], int(net.image_size))  # type: ignore[arg-type]
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

    def epoch(number: int) -> int:
        net.train()
        seen = 0
        for images, labels in loader:
            loss = synthesis_loss(net(images), labels, proxies, draw.beta(ALPHA, ALPHA))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if not np.isfinite(loss.item()):
                raise RuntimeError("the plain loop's loss is not finite")
            seen += len(images)
        return seen

    return epoch


def synthesis_loss(x: Tensor, y: Tensor, p: Tensor, lam: float) -> Tensor:
    """Proxy Synthesis over Norm-softmax by concatenation; each row is mixed with the previous."""
    n, c = len(x), len(p)
    x, p = F.normalize(x, dim=1), F.normalize(p, dim=1)
    other = torch.roll(torch.arange(n), 1)
    made_x = lam * x + (1 - lam) * x[other]
    made_p = lam * p[y] + (1 - lam) * p[y[other]]
    all_x = F.normalize(torch.cat([x, made_x]), dim=1)
    all_p = F.normalize(torch.cat([p, made_p]), dim=1)
    labels = torch.cat([y, torch.arange(c, c + n)])
    return F.cross_entropy(SCALE * F.linear(all_x, all_p), labels)


class Pictures(Dataset[tuple[Tensor, int]]):
    """Images one by one: opened, randomly cropped, flipped, converted to a tensor, normalized."""

    def __init__(self, listing: Listing, setting: Run, pixels: Pixels, size: int) -> None:
        self.listing = listing
        self.crop = RandomResizedCrop(size) if setting.augment else None
        self.mode = pixels.mode
        self.unit = pixels.unit
        self.mean = torch.tensor(pixels.mean)[:, None, None]
        self.std = torch.tensor(pixels.std)[:, None, None]

    def __len__(self) -> int:
        return len(self.listing)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if self.listing.pixels is None:
            with Image.open(self.listing.path(index)) as file:
                image = file.convert(self.mode)
        else:
            image = Image.fromarray(self.listing.pixels[index]).convert(self.mode)
        if self.crop is not None:
            u = torch.rand(self.crop.draws).tolist()
            image = image.crop(self.crop.box(image.width, image.height, u))
            image = image.resize((self.crop.size, self.crop.size), Image.Resampling.BILINEAR)
            if u[-1] < self.crop.flip:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        array = np.array(image)
        made = torch.from_numpy(array.reshape(*array.shape[:2], -1)).permute(2, 0, 1).contiguous()
        made = made.float().div(self.unit).sub_(self.mean).div_(self.std)
        return made, int(self.listing.labels[index])


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
