"""A sheet of pictures in all their deformed versions, to look at."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.data import PIXELS, Listing, picture
from proxysynth.data.transforms import Bytes, uniforms
from proxysynth.protocols.deformation import Deformation
from proxysynth.training.load import Trained
from proxysynth.training.prepare import make_cache
from proxysynth.training.resources import Resources

CELL = 1.1  # inches


def contact_sheet(
    model: Trained,
    query: Listing,
    protocol: Deformation | None = None,
    *,
    rows: int = 6,
    dpi: int = 150,
    resources: Resources | None = None,
) -> bytes:
    """A PNG: a row for each of some queries, a column for each version that the protocol tests.

    The pictures are those that the network is given, to the last pixel: same crop, same draws.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    made = versions(model, query, protocol or Deformation(), rows, resources or Resources())
    names, indices = list(made), some_pictures(query, rows)
    figure = Figure((CELL * len(names), CELL * len(indices) + 0.35), dpi=dpi)
    FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(indices), len(names), squeeze=False, gridspec_kw={"wspace": 0.05, "hspace": 0.05}
    )
    height = figure.get_figheight()
    figure.subplots_adjust(left=0.02, right=0.98, bottom=0.1 / height, top=1 - 0.3 / height)
    for column, name in enumerate(names):
        axes[0, column].set_title(name.replace("_", " "), fontsize=8, pad=4)
        for row, shown in enumerate(made[name]):
            _show(axes[row, column], shown)
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def versions(
    model: Trained, query: Listing, protocol: Deformation, rows: int, resources: Resources
) -> dict[str, list[Bytes]]:
    """The first pictures of some classes, by the name of the version."""
    cache = None if query.root is None else make_cache(model.run, model.embedder, resources)
    mode = PIXELS[model.embedder.preprocess].mode
    made: dict[str, list[Bytes]] = {}
    for name, transform in protocol.transforms(model, query).items():
        made[name] = []
        for index in some_pictures(query, rows).tolist():
            image = picture(query, index, cache)
            image = image if image.mode == mode else image.convert(mode)
            made[name].append(transform(image, uniforms(0, 0, index, transform.draws)))
    return made


def some_pictures(listing: Listing, count: int) -> NDArray[np.int64]:
    """The first picture of each of `count` classes spread over all of them."""
    classes, first = np.unique(listing.labels, return_index=True)
    chosen = np.linspace(0, len(classes) - 1, min(count, len(classes))).round().astype(int)
    return first[chosen]


def _show(axis: Any, shown: Bytes) -> None:
    axis.imshow(shown, cmap="gray", vmin=0, vmax=255, interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_color("0.7")
        spine.set_linewidth(0.5)
