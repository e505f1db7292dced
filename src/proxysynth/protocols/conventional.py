"""The conventional protocol: retrieve pictures of classes that were never trained on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from proxysynth.data import Listing, Loader, Splits
from proxysynth.protocols.loaders import deformed, make_loader
from proxysynth.training.embed import Tested, measure, nearest_class, usual_ks
from proxysynth.training.load import Trained
from proxysynth.training.prepare import make_cache, open_splits, usable
from proxysynth.training.progress import Progress, Silent
from proxysynth.training.resources import Resources


@dataclass(frozen=True)
class Conventional:
    """Every query looks for its class among the other queries, or in a gallery.  [Section 4.2]

    Args:
        ks: of Recall@k; empty for those the literature prints for the run's data set.
        nmi: also cluster the embeddings and compare with the classes; without a gallery only.
    """

    ks: tuple[int, ...] = ()
    nmi: bool = False

    def __call__(
        self,
        model: Trained,
        query: Listing,
        gallery: Listing | None = None,
        *,
        resources: Resources | None = None,
        tick: Callable[[int, str], None] | None = None,
    ) -> Tested:
        """Embeddings and metrics of these pictures: Recall@k, P@1, R-precision, MAP@R.

        Args:
            model: a trained run.
            query, gallery: pictures with labels, such as `open_data(...).query`.
            tick: called with the pictures of each batch.
        """
        resources = resources or Resources()
        cache = make_cache(model.run, model.embedder, resources)

        def loader(listing: Listing) -> Loader:
            return make_loader(model, listing, deformed(model, listing), resources, cache)

        return measure(
            model.embedder,
            loader(query),
            None if gallery is None else loader(gallery),
            ks=self.ks or model.run.ks or usual_ks(model.run.data),
            nmi=self.nmi,
            predict=_predict(model, query),
            tick=tick,
        )


def own_splits(
    model: Trained, resources: Resources | None = None, progress: Progress | None = None
) -> Splits:
    """The pictures that the run itself was trained and tested on, without those it skipped."""
    resources = resources or Resources()
    cache = make_cache(model.run, model.embedder, resources)
    return usable(open_splits(model.run), model.run, cache, resources, progress or Silent())


def _predict(model: Trained, query: Listing) -> Callable[[Tensor], Tensor] | None:
    """Accuracy is measured where the task is to tell the seen classes apart."""
    if model.run.task != "classification" or query.classes != model.classes:
        return None
    return nearest_class(model.run.loss, model.proxies)
