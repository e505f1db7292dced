"""The conventional protocol: retrieve images of classes that were never trained on."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from proxysynth.data import Listing, Loader, Splits, Transform, pixels_named
from proxysynth.data.deformations import Deform, Deformed
from proxysynth.training.callbacks import Progress, Silent, Tick
from proxysynth.training.inference import (
    Tested,
    Trained,
    embed,
    measure,
    nearest_class,
    reported_ks,
)
from proxysynth.training.prepare import evaluation_transform, make_cache, open_splits, usable
from proxysynth.training.resources import Resources


@dataclass(frozen=True)
class Conventional:
    """Every query searches for its class among the other queries, or in a gallery.  [Section 4.2]

    Args:
        ks: of Recall@k; default: those the literature reports for the run's dataset.
        nmi: also cluster the embeddings and compare with the classes; only without a gallery.
        rerank: methods of `retrieval.reranking`, such as "query_expansion"; default: none.
    """

    ks: tuple[int, ...] = ()
    nmi: bool = False
    rerank: str | None = None

    def __call__(
        self,
        model: Trained,
        query: Listing,
        gallery: Listing | None = None,
        *,
        resources: Resources | None = None,
        tick: Tick | None = None,
    ) -> Tested:
        """Embeddings and metrics of these images: Recall@k, P@1, R-precision, MAP@R; `tick` is
        called with the number of images of each batch."""
        resources = resources or Resources()
        # Accuracy is measured where the task is to tell the seen classes apart.
        classify = model.run.task == "classification" and query.classes == model.classes
        return measure(
            model.embedder,
            make_loader(model, query, resources),
            None if gallery is None else make_loader(model, gallery, resources),
            ks=self.ks or reported_ks(model.run),
            nmi=self.nmi,
            rerank=self.rerank,
            predict=nearest_class(model.run.loss, model.proxies) if classify else None,
            tick=tick,
        )


def own_splits(
    model: Trained, resources: Resources | None = None, progress: Progress | None = None
) -> Splits:
    """The images that the run itself was trained and tested on, without those it skipped."""
    resources = resources or Resources()
    cache = make_cache(model.run, model.embedder, resources)
    return usable(open_splits(model.run), model.run, cache, resources, progress or Silent())


def embeddings_of(
    model: Trained,
    listing: Listing,
    *,
    resources: Resources | None = None,
    tick: Tick | None = None,
) -> Tensor:
    """The embeddings (n, d) of a listing's images, as in testing, float32 on the CPU."""
    return embed(model.embedder, make_loader(model, listing, resources or Resources()), tick=tick)


def make_loader(
    model: Trained,
    listing: Listing,
    resources: Resources,
    deform: Deform | None = None,
    seed: int = 0,
    stream: int = 0,
) -> Loader:
    """Batches of these images as the model is tested on them, deformed if `deform` is given; what
    a deformation draws depends on `seed` and `stream`."""
    transform: Transform = model.transform
    cache = None
    if listing.root is None:  # images in memory
        transform = evaluation_transform(model.run, model.embedder, listing)
    else:
        cache = make_cache(model.run, model.embedder, resources)
    if deform is not None:
        transform = Deformed(transform, deform, model.embedder.image_size, seed, stream)
    pixels = pixels_named(model.embedder.preprocess)
    return Loader(listing, transform, pixels, resources.loader_workers, cache)
