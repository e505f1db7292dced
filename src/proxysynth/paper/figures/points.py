"""The vectors that a picture of the embedding space shows, taken from a trained model."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.data import Listing
from proxysynth.data.listing import shuffled_names
from proxysynth.losses.functional import unit
from proxysynth.protocols.conventional import Conventional
from proxysynth.regularizers.proxy_synthesis import ProxySynthesis
from proxysynth.training.load import Trained
from proxysynth.training.prepare import open_splits

KINDS = ("train", "proxy", "test", "synthetic", "synthetic proxy")


@dataclass(frozen=True)
class Selection:
    """Which classes and pictures are shown.

    Args:
        classes: so many of the seen and as many of the unseen, drawn by the seed.
        pictures: at most so many of each class.
        above: only classes with more pictures than this, as long as there are any.
        mu: synthetics made per embedding that is shown.
        lam: of all synthetics. Training draws it anew for each batch, mostly near 0 or 1, where a
            picture could not tell a synthetic from its nearer parent.
        seed: of the classes and of the synthetics.
    """

    classes: int = 10
    pictures: int = 16
    above: int = 0
    mu: float = 2.0
    lam: float = 0.6
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Points:
    """Vectors of unit length with what they are.

    x: (n, d).  kind: (n,), one of `KINDS`.  label: (n,), the class among those shown, or -1 for
    synthetics.  note: what could not be shown as asked, "" if nothing.
    """

    x: Tensor
    kind: NDArray[np.str_]
    label: NDArray[np.int64]
    note: str = ""

    def of(self, *kinds: str) -> Tensor:
        """The vectors of these kinds, in their order here."""
        return self.x[torch.from_numpy(np.isin(self.kind, kinds))]


def chosen(listing: Listing, selection: Selection) -> tuple[Listing, str]:
    """The pictures to show, and a sentence where there are not enough large classes."""
    size = dict(zip(listing.classes, listing.counts().tolist(), strict=True))
    names = [name for name in shuffled_names(listing.classes, selection.seed) if size[name] >= 2]
    large = [name for name in names if size[name] > selection.above]
    note = ""
    if selection.above and len(large) < selection.classes:
        note = f"{len(large)} of {len(names)} classes have more than {selection.above} pictures"
        if not large:  # then the largest there are
            large = sorted(names, key=lambda name: -size[name])[: selection.classes]
            most = max(size[name] for name in large)
            note += f", so that {len(large)} with up to {most} are shown"
    listing = listing.of_classes(large[: selection.classes])
    place = np.zeros(len(listing), np.int64)  # of a picture within its class
    for number in range(len(listing.classes)):
        of_class = np.flatnonzero(listing.labels == number)
        place[of_class] = np.arange(len(of_class))
    return listing.take(np.flatnonzero(place < selection.pictures)), note


def points_of(model: Trained, selection: Selection) -> Points:
    """Embeddings of seen and unseen classes, the seen ones' proxies, and synthetics of both.

    Synthetics are made of the shown pictures, as one batch, by the run's own Proxy Synthesis but
    for the selection's mu and lam.
    """
    splits = open_splits(model.run)
    train, missing_train = chosen(splits.train, selection)
    test, missing_test = chosen(splits.query, selection)
    x, unseen = (unit(Conventional()(model, part).query) for part in (train, test))
    rows = [model.classes.index(name) for name in train.classes]
    p = unit(model.proxies.detach().float().cpu())[rows]
    made_x, made_p = _synthetics(model, x, torch.from_numpy(train.labels.copy()), p, selection)
    none = np.full(len(made_x), -1)
    parts = (x, p, unseen, made_x, made_p)
    labels = (train.labels, np.arange(len(p)), test.labels, none, np.full(len(made_p), -1))
    notes = [
        f"Among the {which} classes, {text}."
        for which, text in (("seen", missing_train), ("unseen", missing_test))
        if text
    ]
    return Points(
        torch.cat(parts),
        np.repeat(np.array(KINDS), [len(part) for part in parts]),
        np.concatenate(labels),
        " ".join(notes),
    )


def _synthetics(
    model: Trained, x: Tensor, y: Tensor, p: Tensor, selection: Selection
) -> tuple[Tensor, Tensor]:
    """Synthetic embeddings (m, d) and proxies (u, d); a proxy made several times is told once."""
    loss = model.run.loss
    if not isinstance(loss, ProxySynthesis):
        raise ValueError(
            f"synthetics are drawn from a run with Proxy Synthesis, got the loss {loss!r}"
        )
    shown = replace(loss, mu=selection.mu, lam=selection.lam)
    made = shown.synthesize(x, y, p, torch.Generator().manual_seed(selection.seed))
    return made.x, torch.unique(made.p, dim=0)
