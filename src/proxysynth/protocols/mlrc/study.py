"""A study from end to end: its folder, the search, then the repetitions: the best setting trained
with other seeds and measured on the unseen classes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from proxysynth.errors import WrongFolder
from proxysynth.files import LOCK, UNFINISHED, locked, write_json
from proxysynth.protocols.conventional import Conventional
from proxysynth.protocols.mlrc.search import (
    OBJECTIVE,
    Searched,
    Work,
    best_of,
    check_folds,
    importance,
    make_sampler,
    search,
    take_part,
    time_left,
    train_folds,
)
from proxysynth.protocols.mlrc.settings import Study
from proxysynth.protocols.mlrc.spaces import starts
from proxysynth.protocols.mlrc.workers import (
    Claimed,
    Queue,
    hide_password,
    import_optuna,
    open_storage,
    slots_of,
    storage_errors,
)
from proxysynth.provenance import provenance
from proxysynth.retrieval import evaluate
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.inference import load
from proxysynth.training.prepare import make_cache, open_splits, usable
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import make_folder
from proxysynth.values import describe_differences

if TYPE_CHECKING:
    from optuna.storages import BaseStorage
    from optuna.study import Study as OptunaStudy

FORMAT = 1
STUDY = "study.json"
FACTS = "proxysynth"  # the attribute of a study in the storage

MEASURED = "measured"
METRICS = ("precision@1", "r_precision", "map@r")


@dataclass(frozen=True)
class Measured:
    """P@1, R-precision and MAP@R of one repetition."""

    separated: dict[str, float]  # the mean over the models of the folds
    concatenated: dict[str, float]  # of the concatenated embeddings of all of them
    alone: int = 0  # queries left out because there is no second image of their class


@dataclass(frozen=True)
class Outcome:
    """The result of a study."""

    study: Study  # what was run
    trials: tuple[Searched, ...]  # of the search, in the order in which they began
    best: Searched  # the trial whose parameters were repeated
    repetitions: tuple[Measured, ...]  # the metrics on the unseen classes, one per repetition
    importance: dict[str, float]  # of each parameter in the search


def run_study(
    study: Study,
    folder: Path,
    *,
    storage: str | None = None,
    resources: Resources | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a study, join one that other workers run, or resume one that was interrupted.

    Any number of processes may call this with the same study at once, on one machine or on several
    that reach the storage. All return the same outcome when everything is done.

    Args:
        folder: of the study; its trainings are kept there.
        storage: a database URL or a journal file, see `open_storage`; default: an SQLite file in
            the folder.
    """
    folder = folder.expanduser().absolute()
    optuna = import_optuna()
    facts = {**study.facts(), "pictures": check_folds(study)}
    location = storage or f"sqlite:///{folder / 'study.db'}"
    make_folder(folder)
    work = Work(study, folder, resources or Resources(), progress or Silent())
    with storage_errors(location):
        with locked(folder, wait=True):  # the first worker creates the tables
            claim_folder(folder, study, facts)
            opened = open_storage(location)
            made = _join(opened, study, facts, location)
        count, known = study.scale.trials, made.get_trials(deepcopy=False)
        # Beyond the count there may be failed trials, of workers that were too late.
        states = [slot.current.state.name for slot in slots_of(known, len(known))[count:]]
        if "COMPLETE" in states or "PRUNED" in states:
            raise WrongFolder(f"the study has more than {count} trials already: raise --trials")
        searching = Queue(made, count)
        trials = search(work, searching)
        best = best_of(trials)
        again = optuna.create_study(
            storage=opened,
            study_name=f"{made.study_name} {study.key(best.params)}",
            direction="maximize",
            load_if_exists=True,
        )
        measured = repeat(work, Queue(again, study.scale.repetitions), searching, best.params)
        return Outcome(study, tuple(trials), best, tuple(measured), importance(made))


def _join(
    storage: BaseStorage, study: Study, facts: Mapping[str, Any], location: str
) -> OptunaStudy:
    """The search in the storage, which keeps the facts; an error if it has others."""
    import optuna

    name, scale = study.name_with_scale, study.scale
    there = {it.study_name: it.user_attrs for it in optuna.get_all_study_summaries(storage, False)}
    if there.get(study.name, {}).get(FACTS) == facts:
        name = study.name  # from an earlier version, which left the scale out
    first = starts(study.space) if scale.near else None
    made = optuna.create_study(
        storage=storage,
        study_name=name,
        sampler=make_sampler(study.seed, scale.random_trials, first),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=0),
        direction="maximize",
        load_if_exists=True,
    )
    if FACTS not in made.user_attrs:
        made.set_user_attr(FACTS, json.loads(json.dumps(facts)))
    elif made.user_attrs[FACTS] != facts:
        place = f"the storage {hide_password(location)}"
        raise _other_study(f"{place}, as {name!r},", "storage", made.user_attrs[FACTS], facts)
    return made


def check_folder(folder: Path, facts: Mapping[str, Any]) -> None:
    """An error if the study in the folder differs in one of these facts."""
    path = folder / STUDY
    try:
        kept = json.loads(path.read_bytes())["facts"]
        there = {name: kept.get(name) for name in facts}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise WrongFolder(f"{path} cannot be read as a study: choose another folder") from error
    if there != facts:
        raise _other_study(str(folder), "folder with --out", there, facts)


def _other_study(place: str, other: str, there: Any, here: Any) -> WrongFolder:
    return WrongFolder(
        f"{place} holds another study ({describe_differences(there, here)}): choose another "
        f"{other}, or use that study's settings to resume it"
    )


def claim_folder(folder: Path, study: Study, facts: Mapping[str, Any]) -> None:
    """Write `study.json`, or check that the folder belongs to this study."""
    path = folder / STUDY
    if path.exists():
        check_folder(folder, facts)
        return
    ours = (UNFINISHED, "study.")  # how the names of a new study's files begin
    names = [item.name for item in folder.iterdir() if item.name != LOCK]
    others = [name for name in names if not name.startswith(ours)]
    if others:
        raise WrongFolder(f"{folder} holds {min(others)!r} and no study: choose another --out")
    about = {"format": FORMAT, "name": study.name, "scale": study.scale_name, "facts": facts}
    write_json(path, {**about, "provenance": provenance()})


def repeat(
    work: Work, queue: Queue, searching: Queue, params: Mapping[str, float]
) -> list[Measured]:
    """Take part in the repetitions until all are done; returns their results in order.

    Nothing before this opens an image of an unseen class.
    """
    study, searched = work.study, searching.slots()

    def repetition(claimed: Claimed, update: Callable[[], None]) -> float:
        # Not the seed of the search, which influenced the choice of the parameters.
        seed, trial = study.seed + 1 + claimed.index, claimed.trial
        home = work.folder / "repetitions" / f"{study.key(params)}-seed{seed}"
        name = f"repetition {claimed.index + 1}"
        train_folds(work, name, trial, params, seed, home, lambda *_: update(), keep_models=True)
        measured = measure_ensemble(work, [home / f"fold{i}" for i in range(study.scale.folds)])
        trial.set_user_attr(MEASURED, asdict(measured))
        return measured.concatenated[OBJECTIVE]

    def note() -> str:
        return time_left(study.scale, searched, queue.slots())

    finished = take_part(work, queue, "repetition", repetition, note)
    return [Measured(**slot.current.user_attrs[MEASURED]) for slot in finished]


def measure_ensemble(work: Work, folders: Sequence[Path]) -> Measured:
    """Test the trained folds of one repetition on the unseen classes."""
    base, resources = work.study.base, work.resources
    models = [load(folder, resources.device, backbone=base.backbone) for folder in folders]
    # The splits whose queries are the unseen classes.
    run = replace(base, split=replace(base.split, fold=None), report_epoch="last", patience=0)
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
