"""The deformation protocol: does retrieval survive changes that training never showed?"""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from proxysynth.data import Listing
from proxysynth.data.deformations import DEFORMATIONS, Deform, Zoom
from proxysynth.protocols.conventional import make_loader
from proxysynth.training.callbacks import Tick
from proxysynth.training.inference import Trained, measure, reported_ks
from proxysynth.training.resources import Resources
from proxysynth.values import check_integers, look_up

UNDEFORMED = "undeformed"
QUERY, GALLERY = 0, 1  # random streams: query i and gallery image i are deformed differently
CELL = 1.1  # inches of the contact sheet


@dataclass(frozen=True)
class Deformation:
    """Query and gallery are deformed in the same way, after the crop.   [Table 3]

    Args:
        names: which deformations, of `DEFORMATIONS`; the undeformed images always come first.
        seed: of what is drawn for each image.
        opposite_zoom: read the percentages of the two zooms the other way, see `Zoom`.
        ks: of Recall@k; default: those the literature reports for the run's dataset.
    """

    names: tuple[str, ...] = tuple(DEFORMATIONS)
    seed: int = 0
    opposite_zoom: bool = False
    ks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            look_up(name, DEFORMATIONS, "deformation")
        check_integers(self, seed=0)

    def __call__(
        self,
        model: Trained,
        query: Listing,
        gallery: Listing | None = None,
        *,
        resources: Resources | None = None,
        tick: Tick | None = None,
    ) -> dict[str, dict[str, float]]:
        """Metrics by the name of the deformation, "undeformed" first; `tick` is called with the
        number of images of each batch."""
        resources = resources or Resources()
        metrics = {}
        for name, deform in self.versions():
            loaders = [
                make_loader(model, part, resources, deform, self.seed, stream)
                for part, stream in ((query, QUERY), (gallery, GALLERY))
                if part is not None
            ]
            ks = self.ks or reported_ks(model.run)
            metrics[name] = measure(model.embedder, *loaders, ks=ks, tick=tick).metrics
        return metrics

    def versions(self) -> Iterator[tuple[str, Deform | None]]:
        """Every version of an image by name, the undeformed one first."""
        yield UNDEFORMED, None
        for name in self.names:
            deform = DEFORMATIONS[name]
            if isinstance(deform, Zoom):
                deform = replace(deform, opposite=self.opposite_zoom)
            yield name, deform


def contact_sheet(
    model: Trained,
    query: Listing,
    protocol: Deformation | None = None,
    *,
    rows: int = 6,
    dpi: int = 150,
    resources: Resources | None = None,
) -> bytes:
    """A PNG with a row for each of some queries and a column for each version that is tested.

    The images are those that the network is given, to the last pixel: same crop, same draws.
    """
    from matplotlib.figure import Figure

    protocol, resources = protocol or Deformation(), resources or Resources()
    chosen, versions = some_images(query, rows), list(protocol.versions())
    height = CELL * len(chosen) + 0.5
    figure = Figure((CELL * len(versions), height), dpi=dpi)
    space = {"wspace": 0.05, "hspace": 0.05}
    axes = figure.subplots(len(chosen), len(versions), squeeze=False, gridspec_kw=space)
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.1 / height, top=1 - 0.45 / height)
    for column, (name, deform) in zip(axes.T, versions, strict=True):
        summary = deform.summary.format(deform) if deform else ""
        column[0].set_title(f"{name.replace('_', ' ')}\n{summary}", fontsize=8, pad=4)
        loader = make_loader(model, query, resources, deform, protocol.seed, QUERY)
        (batch,) = loader.batches([chosen])
        for axis, image in zip(column, batch.images.permute(0, 2, 3, 1).numpy(), strict=True):
            axis.imshow(image, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set(color="0.7", linewidth=0.5)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def some_images(listing: Listing, count: int) -> NDArray[np.int64]:
    """The first image of each of `count` classes spread over all of them."""
    classes, first = np.unique(listing.labels, return_index=True)
    chosen = np.linspace(0, len(classes) - 1, min(count, len(classes))).round().astype(int)
    return first[chosen]
