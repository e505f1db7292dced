"""From a Run to what it trains with: images, network, loaders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from proxysynth import data
from proxysynth.data import ImageCache, Listing, Loader, Splits, Transform
from proxysynth.data.listing import require_usable
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.embedder import Embedder
from proxysynth.training.callbacks import Progress
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.values import choices_hint

SMALL = 64  # a side of up to this may be too small for a backbone


@dataclass(frozen=True)
class Prepared:
    """A run's network at its start and the loaders of its images; all files have been read once."""

    splits: Splits
    net: Embedder
    train: Loader
    tester: Callable[[Listing], Loader]  # of images as they are tested
    query: Loader | None = None  # None where nothing can be tested
    gallery: Loader | None = None  # None where queries are their own
    validation: Loader | None = None  # None where nothing is chosen by it


def prepare(
    run: Run, opened: Splits, net: Embedder, resources: Resources, progress: Progress
) -> Prepared:
    """Read every image once, so that a bad one is named now and not in epoch 7; make loaders."""
    cache = make_cache(run, net, resources)
    splits = usable(opened, run, cache, resources, progress)
    pin, pixels = resources.torch_device().type == "cuda", data.pixels_named(net.preprocess)

    def tester(listing: Listing) -> Loader:
        transform = evaluation_transform(run, net, listing)
        return Loader(listing, transform, pixels, resources.loader_workers, cache, pin)

    wanted = dict.fromkeys(("query", "gallery"), splits.testable) | {"validation": run.holds_out}
    tested = {name: tester(part) for name, part in splits.parts.items() if wanted.get(name)}
    train = replace(tester(splits.train), transform=training_transform(run, net, splits.train))
    return Prepared(splits, net, train, tester, **tested)


def usable(
    splits: Splits, run: Run, cache: ImageCache | None, resources: Resources, progress: Progress
) -> Splits:
    """The splits as the run uses them: every file read once, validation classes held out."""
    if splits.train.root is not None:
        with progress.task("reading", sum(map(len, splits.parts.values()))) as tick:
            splits = data.check_splits(
                splits,
                run.skip_bad,
                cache,
                resources.loader_workers,
                tick=tick,
                say=progress.say,
            )
    if not run.holds_out:
        return splits
    fraction, seed = run.split.validation_fraction, run.split.validation_seed
    return data.with_validation(splits, fraction, seed, pictures=run.task == "classification")


def open_splits(run: Run) -> Splits:
    """The run's images; the files are not opened."""
    split = run.split
    splits = data.open_data(run.data, **split.options())
    if split.unseen_fraction == 0:
        splits = splits.with_all_seen()
    if split.fold is not None:
        splits = data.with_fold(splits, split.fold, split.folds)
    for part, most in (("train", split.train_pictures), ("query", split.test_pictures)):
        listing = getattr(splits, part)
        if most is not None and most < len(listing):
            splits = replace(splits, **{part: listing.take(data.stratified_subset(listing, most))})
            require_usable(splits)
    if run.report_epoch == "best_on_test" and not splits.testable:
        raise ValueError("report_epoch='best_on_test' needs 2 unseen classes: choose 'last'")
    other = splits.testable and splits.train.classes != splits.query.classes
    if other and run.task == "classification":
        same = "classification tests the classes that it trains on"
        raise ValueError(f"{same}, {splits.name} tests others: leave out task=classification")
    return splits


def make_network(
    run: Run,
    side: int | None,
    trained: bool = False,
    architecture: Mapping[str, Any] | None = None,
) -> Embedder:
    """The run's network with its first weights, random ones if `trained` weights will be loaded.
    `side` is that of images in memory, which keep it unless the run says otherwise; `architecture`
    that of a trained `hf:` network, as in `run.json`."""
    net = make_embedder(
        run.backbone,
        run.dim,
        pooling=run.pooling,
        normalize=run.normalized,
        pretrained=False if trained else run.pretrained,
        weights=None if trained else run.weights,
        seed=run.seed,
        width=run.width,
        image_size=run.image_size or side,
        preprocess=run.pixels,
        frozen_batch_norm=run.freeze_batch_norm,
        architecture=architecture,
    )
    names = [name for name, _ in net.backbone.named_parameters()]
    for prefix in run.freeze:
        if not any(name.startswith(prefix) for name in names):
            parts = {".".join(name.split(".")[:2]) for name in names}
            advice = choices_hint(prefix, parts)
            raise ValueError(f"Run: no parameter begins with freeze={prefix!r}: {advice}")
    if net.image_size <= SMALL:
        _try_size(net, run.backbone)
    return net


def _try_size(net: Embedder, name: str) -> None:
    """Raise ValueError if the network's layers shrink an image of its size to nothing."""
    channels, side = data.pixels_named(net.preprocess).channels, net.image_size
    try:
        with torch.inference_mode():
            net.eval().features(torch.zeros(1, channels, side, side))
    except RuntimeError as error:
        small = f"{name} cannot take images of {side} x {side} pixels"
        raise ValueError(f"{small}: choose a larger image_size") from error
    net.train()


def starts_as_published(run: Run) -> bool:
    """Whether the run starts from a packaged backbone as it can be used without training."""
    known = BACKBONES.get(run.backbone)
    own = run.init or run.weights or run.pooling != "average" or run.width != 1
    return bool(known and known.published.package and run.pretrained is not False and not own)


def make_cache(run: Run, net: Embedder, resources: Resources) -> ImageCache | None:
    side = resized_side(run, net) if run.cache_side is None else run.cache_side
    return ImageCache(side, disk=resources.cache_disk) if side else None


def training_transform(run: Run, net: Embedder, listing: Listing) -> Transform:
    if not run.augment:
        return evaluation_transform(run, net, listing)
    size = net.image_size
    if run.transforms == "pad_crop":
        return data.PadCrop(size, pad=size // 16, flip=run.flip)
    first = resized_side(run, net) if run.transforms == "mlrc" else None
    return data.RandomResizedCrop(size, run.crop_scale, flip=run.flip, resize=first)


def evaluation_transform(run: Run, net: Embedder, listing: Listing) -> Transform:
    """The center of a photograph; all of an image in memory, which was made for it."""
    size, held = net.image_size, listing.pixels
    if held is not None and held.shape[1:3] == (size, size):
        return data.AsIs()
    return data.CenterCrop(resized_side(run, net, held is not None), size)


def make_sampler(run: Run) -> data.Sampler:
    own = run.sampler == "m_per_class"
    return data.MPerClass(run.m, run.seed) if own else data.Shuffled(run.seed)


def resized_side(run: Run, net: Embedder, in_memory: bool = False) -> int:
    """What testing resizes to before it crops: as the backbone says, 256 for photographs at 224;
    256 at 227 in MLRC. Images that were made for the task are not cropped."""
    if in_memory or run.transforms == "pad_crop":
        return net.image_size
    return round(net.image_size * (256 / 227 if run.transforms == "mlrc" else net.resize))


def side_in_memory(splits: Splits) -> int | None:
    held = splits.train.pixels
    return None if held is None else min(held.shape[1:3])
