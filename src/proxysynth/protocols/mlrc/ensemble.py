"""The repetitions: the best setting trained with other seeds, then measured on the unseen classes.

Nothing before this module opens an image of an unseen class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.protocols.conventional import Conventional
from proxysynth.retrieval import evaluate
from proxysynth.training.inference import load
from proxysynth.training.prepare import make_cache, open_splits, usable

from .search import Work, time_left, train_fold
from .workers import Claimed, Queue, Slot

METRICS = ("precision@1", "r_precision", "map@r")
REPETITIONS = "repetitions"
MEASURED = "measured"


@dataclass(frozen=True)
class Measured:
    """P@1, R-precision and MAP@R of one repetition."""

    separated: dict[str, float]  # the mean over the models of the folds
    concatenated: dict[str, float]  # of the concatenated embeddings of all of them
    alone: int = 0  # queries left out because there is no second image of their class


def repeat(
    work: Work, queue: Queue, searching: Queue, params: Mapping[str, float]
) -> list[Measured]:
    """Take part in the repetitions until all are done; returns their results in order."""
    done = sum(slot.done for slot in queue.slots())
    before, scale = searching.slots(), work.study.scale
    with work.progress.task("repetitions", queue.count, done) as tick:

        def show(finished: list[Slot]) -> None:
            nonlocal done
            tick(len(finished) - done, time_left(scale, before, queue.slots()))
            done = len(finished)

        def report(claimed: Claimed, value: float | None) -> None:
            if value is not None:
                work.progress.say(
                    f"Repetition {claimed.index + 1} of {queue.count}: MAP@R {100 * value:.2f} on "
                    f"the unseen classes, concatenated; {time_left(scale, before, queue.slots())}"
                )

        finished = queue.run(lambda claimed: _repetition(work, claimed, params), show, report)
    return [Measured(**slot.current.user_attrs[MEASURED]) for slot in finished if slot.current]


def _repetition(work: Work, claimed: Claimed, params: Mapping[str, float]) -> float:
    study, trial = work.study, claimed.trial
    # Not the seed of the search, which influenced the choice of the parameters.
    seed = study.seed + 1 + claimed.index
    home = work.folder / REPETITIONS / f"{study.key(params)}-seed{seed}"
    folders = [home / f"fold{fold}" for fold in range(study.scale.folds)]
    name = f"folds of repetition {claimed.index + 1}"
    with work.progress.task(name, study.scale.folds) as tick:
        for fold, folder in enumerate(folders):
            made = train_fold(work, params, fold, seed, folder, keep_model=True)
            trial.set_user_attr(f"fold{fold}", made)
            tick(1, f"validation MAP@R {100 * made['value']:.1f}")
        measured = measure_ensemble(work, folders)
    trial.set_user_attr(MEASURED, asdict(measured))
    return measured.concatenated["map@r"]


def measure_ensemble(work: Work, folders: Sequence[Path]) -> Measured:
    """Test the trained folds of one repetition on the unseen classes."""
    base, resources = work.study.base, work.resources
    models = [load(folder, resources.device, backbone=base.backbone) for folder in folders]
    run = replace(
        base, split=replace(base.split, fold=None), report_epoch="last", patience=0
    )  # the splits whose queries are the unseen classes
    cache = make_cache(run, models[0].embedder, resources)
    splits = usable(open_splits(run), run, cache, resources, work.progress)
    query, gallery = splits.query, splits.gallery
    total = len(models) * (len(query) + len(gallery or ()))
    with work.progress.task("unseen classes", total) as tick:
        protocol = Conventional(ks=(1,))
        tested = [protocol(m, query, gallery, resources=resources, tick=tick) for m in models]
    galleries = [item.gallery for item in tested if item.gallery is not None]
    joined = evaluate(
        concatenate([item.query for item in tested]),
        query.labels.copy(),
        gallery=None if gallery is None else concatenate(galleries),
        gallery_labels=None if gallery is None else gallery.labels.copy(),
        ks=(1,),
    )
    return Measured(
        separated={name: fmean(item.metrics[name] for item in tested) for name in METRICS},
        concatenated={name: joined[name] for name in METRICS},
        alone=int(joined["queries_without_positive"]),
    )


def concatenate(embeddings: Sequence[Tensor]) -> Tensor:
    """(n, d) of each model, each of unit length, side by side (n, sum of d), of unit length."""
    return F.normalize(torch.cat([F.normalize(x, dim=1) for x in embeddings], dim=1), dim=1)
