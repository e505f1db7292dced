"""The pictures of a listing as a trained model is tested on them, deformed or not."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from proxysynth.data import PIXELS, Listing, Loader, PictureCache, Transform
from proxysynth.data.deformations import Deform, Deformed
from proxysynth.training.embed import embed
from proxysynth.training.load import Trained
from proxysynth.training.prepare import evaluation_transform, make_cache
from proxysynth.training.resources import Resources


def deformed(
    model: Trained, listing: Listing, deform: Deform | None = None, seed: int = 0, stream: int = 0
) -> Transform:
    """What makes these pictures the network's size, and deforms them, unless `deform` is None."""
    in_memory = listing.root is None
    transform: Transform = model.transform
    if in_memory:
        transform = evaluation_transform(model.run, model.embedder, listing)
    if deform is None:
        return transform
    return Deformed(transform, deform, model.embedder.image_size, seed, stream)


def make_loader(
    model: Trained,
    listing: Listing,
    transform: Transform,
    resources: Resources,
    cache: PictureCache | None,
) -> Loader:
    """Batches of these pictures."""
    return Loader(
        listing,
        transform,
        PIXELS[model.embedder.preprocess],
        resources.loader_workers,
        None if listing.root is None else cache,
    )


def embeddings_of(
    model: Trained,
    listing: Listing,
    *,
    resources: Resources | None = None,
    tick: Callable[[int, str], None] | None = None,
) -> Tensor:
    """The embeddings (n, d) of a listing's pictures, as in testing, float32 on the CPU."""
    resources = resources or Resources()
    cache = make_cache(model.run, model.embedder, resources)
    loader = make_loader(model, listing, deformed(model, listing), resources, cache)
    return embed(model.embedder, loader, tick=tick)
