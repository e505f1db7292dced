"""The deformation protocol: how well retrieval survives changes that training never showed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from proxysynth.data import Listing, Loader, Transform
from proxysynth.data.deformations import DEFORMATIONS, Deform, Zoom
from proxysynth.protocols.loaders import deformed, make_loader
from proxysynth.training.embed import measure, usual_ks
from proxysynth.training.load import Trained
from proxysynth.training.prepare import make_cache
from proxysynth.training.resources import Resources
from proxysynth.values import look_up

UNDEFORMED = "undeformed"
QUERY, GALLERY = 0, 1  # streams of random numbers: pictures of one index are deformed differently


@dataclass(frozen=True)
class Deformation:
    """Query and gallery are deformed alike, after the crop, and looked up as ever.   [Table 3]

    Args:
        names: which deformations, of `DEFORMATIONS`; the pictures as they are always come first.
        seed: of what is drawn for each picture.
        opposite_zoom: read the percentages of the two zooms the other way, see `Zoom`.
        ks: of Recall@k; empty for those the literature prints for the run's data set.
    """

    names: tuple[str, ...] = tuple(DEFORMATIONS)
    seed: int = 0
    opposite_zoom: bool = False
    ks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            look_up(name, DEFORMATIONS, "deformation")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(
                f"Deformation: seed must be a whole number from 0 on, got {self.seed!r}"
            )

    def __call__(
        self,
        model: Trained,
        query: Listing,
        gallery: Listing | None = None,
        *,
        resources: Resources | None = None,
        tick: Callable[[int, str], None] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Metrics by the name of the deformation, "undeformed" first.

        Args:
            model: a trained run.
            query, gallery: pictures with labels, such as `open_data(...).query`.
            tick: called with the pictures of each batch; each deformation goes through all.
        """
        resources = resources or Resources()
        cache = make_cache(model.run, model.embedder, resources)

        def loader(listing: Listing, deform: Deform | None, stream: int) -> Loader:
            transform = deformed(model, listing, deform, self.seed, stream)
            return make_loader(model, listing, transform, resources, cache)

        return {
            name: measure(
                model.embedder,
                loader(query, deform, QUERY),
                None if gallery is None else loader(gallery, deform, GALLERY),
                ks=self.ks or model.run.ks or usual_ks(model.run.data),
                tick=tick,
            ).metrics
            for name, deform in self.versions()
        }

    def versions(self) -> Iterator[tuple[str, Deform | None]]:
        """Every version of a picture by name, the undeformed one first."""
        yield UNDEFORMED, None
        for name in self.names:
            deform = DEFORMATIONS[name]
            if isinstance(deform, Zoom):
                deform = replace(deform, opposite=self.opposite_zoom)
            yield name, deform

    def transforms(self, model: Trained, listing: Listing) -> dict[str, Transform]:
        """What is done to the queries' pictures, by the name of the version."""
        return {
            name: deformed(model, listing, deform, self.seed, QUERY)
            for name, deform in self.versions()
        }
