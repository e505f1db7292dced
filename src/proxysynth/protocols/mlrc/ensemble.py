"""The unseen classes, asked of the models of all folds: each alone, and joined to one.

Only the repetitions come here: nothing before them opens a picture of an unseen class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.data import Listing, Splits
from proxysynth.protocols.conventional import Conventional
from proxysynth.retrieval import evaluate
from proxysynth.training.load import Trained, load
from proxysynth.training.prepare import make_cache, open_splits, usable
from proxysynth.training.progress import Progress
from proxysynth.training.resources import Resources

from .study import Study

MEASURES = ("precision@1", "r_precision", "map@r")


@dataclass(frozen=True)
class Measured:
    """P@1, R-precision and MAP@R of one repetition.

    Args:
        separated: the mean over the models of the folds.
        concatenated: of the embeddings of all of them, joined.
        alone: queries left out, for there is no second picture of their class.
    """

    separated: dict[str, float]
    concatenated: dict[str, float]
    alone: int = 0


def measure_ensemble(
    study: Study, folders: Sequence[Path], resources: Resources, progress: Progress
) -> Measured:
    """Test the trained folds of one repetition on the unseen classes."""
    models = [load(folder, resources.device) for folder in folders]
    splits = unseen(study, models[0], resources, progress)
    query, gallery = splits.query, splits.gallery
    total = len(models) * (len(query) + len(gallery or ()))
    with progress.task("unseen classes", total) as tick:
        protocol = Conventional(ks=(1,))
        tested = [protocol(m, query, gallery, resources=resources, tick=tick) for m in models]
    joined = evaluate(
        join([item.query for item in tested]),
        _labels(query),
        gallery=None if gallery is None else join([_there(item.gallery) for item in tested]),
        gallery_labels=None if gallery is None else _labels(gallery),
        ks=(1,),
    )
    return Measured(
        separated={name: fmean(item.metrics[name] for item in tested) for name in MEASURES},
        concatenated={name: joined[name] for name in MEASURES},
        alone=int(joined["queries_without_positive"]),
    )


def join(embeddings: Sequence[Tensor]) -> Tensor:
    """(n, d) of each model, each of unit length, side by side (n, sum of d), of unit length."""
    return F.normalize(torch.cat([F.normalize(x, dim=1) for x in embeddings], dim=1), dim=1)


def unseen(study: Study, model: Trained, resources: Resources, progress: Progress) -> Splits:
    """The splits whose queries are the unseen classes."""
    run = replace(
        study.base,
        split=replace(study.base.split, fold=None),
        report_epoch="last",
        patience=0,
    )
    cache = make_cache(run, model.embedder, resources)
    return usable(open_splits(run), run, cache, resources, progress)


def _labels(listing: Listing) -> Tensor:
    return torch.from_numpy(listing.labels.copy())


def _there(x: Tensor | None) -> Tensor:
    assert x is not None
    return x
