"""The end of a run: which epoch counts, its model, its embeddings, its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from proxysynth.data import Listing, Splits
from proxysynth.distributed.data_parallel import about_ranks
from proxysynth.distributed.sharded_checkpoint import write_merged
from proxysynth.errors import TrainingFailed
from proxysynth.formatting import metric_name
from proxysynth.provenance import provenance
from proxysynth.training.checkpoint import Checkpoints, Damaged, State
from proxysynth.training.embed import Tested, usual_ks
from proxysynth.training.learner import Learner, load_weights
from proxysynth.training.prepare import Prepared
from proxysynth.training.record import Result, write_result
from proxysynth.training.resources import device_name
from proxysynth.training.resume import checkpoint_at, shared_result
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, describe
from proxysynth.training.tensor_file import EMBEDDINGS, MODEL, write_tensors


def finish(
    run: Run,
    folder: Path,
    ready: Prepared,
    learner: Learner,
    state: State,
    tested: Tested | None,
) -> Result:
    """Write model, embeddings and result of the reported epoch. All ranks test, the first writes.

    Args:
        state: after the last epoch.
        tested: the last evaluation, if it was made just now.
    """
    checkpoints = Checkpoints(folder / CHECKPOINT, learner.rows, learner.ranks)
    epoch = state.epoch
    if state.best_step is not None and state.best_step != state.step:
        _go_back(checkpoints, state, learner)
        epoch, tested = state.best_epoch or epoch, None
    if tested is None:
        ks = run.ks or usual_ks(run.data)
        tested = learner.measure(ready.query, ready.gallery, ks)
    if not learner.ranks.first:
        return _shared(None, learner)
    about = {"run": state.run, "epoch": epoch}
    line = next(entry for entry in state.history if entry["epoch"] == epoch)
    result = Result(
        run=state.run,
        metrics=tested.metrics,
        untrained=state.untrained,
        epoch=epoch,
        epochs=run.epochs,
        chosen=run.report_epoch,
        why=why_this_epoch(run),
        validation=line.get("validation", {}),
        seconds=round(state.seconds, 3),
        device=device_name(learner.device),
        data=describe(ready.splits),
        provenance=provenance(),
        notes=(*ready.splits.remarks(), *about_ranks(learner.net, learner.ranks)),
    )
    reported = state.step if state.best_step is None else state.best_step
    _write_model(folder / MODEL, learner, checkpoints, reported, about)
    _write_embeddings(folder / EMBEDDINGS, ready.splits, tested, about)
    write_result(folder, result)
    checkpoints.drop(newest=1)  # the one before was for the case that the last had been lost
    return _shared(result, learner)


def _shared(result: Result | None, learner: Learner) -> Result:
    told = shared_result(result, learner.ranks)
    assert told is not None
    return told


def _write_model(
    path: Path, learner: Learner, checkpoints: Checkpoints, step: int, about: dict[str, Any]
) -> None:
    """Network and proxies in one file; the rows of sharded ones come from the checkpoint."""
    weights = {f"net.{key}": value for key, value in learner.net.state_dict().items()}
    if learner.shards is None:
        write_tensors(path, {**weights, "proxies": learner.proxies}, about)
    else:
        write_merged(path, weights, about, *checkpoints.shards(step))


def _go_back(checkpoints: Checkpoints, state: State, learner: Learner) -> None:
    assert state.best_step is not None
    try:
        best = checkpoint_at(checkpoints, state.best_step, state.run)
    except Damaged as fault:
        raise TrainingFailed(
            f"the best epoch ({state.best_epoch}) cannot be read again, {fault}: delete the folder "
            f"{checkpoints.folder} to begin the run again"
        ) from fault
    load_weights(learner.net, learner.proxies, best.tensors)


def _write_embeddings(path: Path, splits: Splits, tested: Tested, about: dict[str, Any]) -> None:
    """query, query_labels (and gallery, gallery_labels), with the pictures' names and classes."""
    tensors = {"query": tested.query, "query_labels": _labels(splits.query)}
    about = {**about, "classes": splits.query.classes, "query": splits.query.names}
    if splits.gallery is not None and tested.gallery is not None:
        tensors |= {"gallery": tested.gallery, "gallery_labels": _labels(splits.gallery)}
        about["gallery"] = splits.gallery.names
    write_tensors(path, tensors, about)


def _labels(listing: Listing) -> torch.Tensor:
    return torch.from_numpy(listing.labels.copy())


def why_this_epoch(run: Run) -> str:
    """The choice of the epoch, told as it is."""
    if run.report_epoch == "last":
        return "the last epoch"
    by = run.best_by
    best = f"the best epoch by {by if by == 'accuracy' else metric_name(by)}"
    if run.report_epoch == "best_on_test":
        return f"{best} on the test classes themselves, which flatters the result"
    if run.split.fold is not None:
        return f"{best} on the fold held out, which is also what is tested"
    if run.task == "classification":
        return f"{best} on pictures held out of training"
    return f"{best} on classes held out of the seen ones"
