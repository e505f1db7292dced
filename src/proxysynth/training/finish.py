"""The end of a training: the reported weights, and the files that a finished run leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

from proxysynth.distributed.data_parallel import note_on_processes
from proxysynth.formatting import metric_name
from proxysynth.models.embedder import Embedder
from proxysynth.provenance import provenance
from proxysynth.tensor_files import checksum, write_tensors
from proxysynth.training import prepare, run_folder
from proxysynth.training.checkpoint import Loaded
from proxysynth.training.inference import NOT_TESTED, Tested, calibrate_run
from proxysynth.training.resources import device_name
from proxysynth.training.run import Run
from proxysynth.training.run_folder import EMBEDDINGS, EVALUATED, METRICS, MODEL, RESULT, Result
from proxysynth.training.start import POINTS, class_means

if TYPE_CHECKING:
    from proxysynth.training.loop import Training


def finish(training: Training, evaluated: Result | None) -> Result:
    """Write model, embeddings and result of the reported epoch: all ranks test, the first writes.
    For a run on all classes, `evaluated` is the result of the run that did not see the test
    classes."""
    run, ready, learner, state = training.run, training.ready, training.learner, training.state
    ranks, folder, splits = training.ranks, training.folder, training.ready.splits
    seconds = time.perf_counter() - training.began
    epoch = state.epoch
    net = learner.net
    tested = training.tested
    if state.best_step not in (None, state.step):
        best = training.checkpoints.load(state.run, state.best_step)
        learner.load_weights(cast(Loaded, best).tensors)
        epoch, tested = state.best_epoch or epoch, None
    tested = tested or training.measure(ready.query)
    line = next(entry for entry in state.history if entry["epoch"] == epoch)
    validation = line.get("validation", {})
    means = None
    interpolation: dict[str, Any] = {}
    if run.interpolate is not None:
        net, tested, interpolation = _interpolate(training, tested, validation)
        means = class_means(net, ready.tester(splits.train), ranks)
    result = None
    held_out = NOT_TESTED if run.task == "classification" else training.validate(tested, net)
    if ranks.first:
        (folder / RESULT).unlink(missing_ok=True)  # of a run that was extended
        proxies = _proxies(training, means)
        result = Result(
            run=state.run,
            metrics=tested.metrics,
            untrained=state.untrained,
            epoch=epoch,
            epochs=run.epochs,
            chosen=run.report_epoch,
            why=why_this_epoch(run, interpolation),
            validation=validation,
            seconds=round(seconds, 3),
            device=device_name(learner.device),
            data=run_folder.describe(splits, training.start.seen),
            provenance=provenance(),
            notes=(*splits.remarks(), *note_on_processes(learner.net, ranks)),
            checksums=_write_tensors(training, net, proxies, tested, epoch),
            calibration=calibrate_run(run, splits, proxies, tested, held_out),
            interpolation=interpolation,
            backbone=run.backbone if prepare.starts_as_published(run) else "",
        )
        if evaluated is not None:
            result = _with_metrics_of(result, evaluated)
        run_folder.write_result(folder, result)
        training.checkpoints.drop(newest=1)  # the one before was in case the last had been lost
    return cast(Result, ranks.broadcast(result))


def _interpolate(
    training: Training, trained: Tested, validation: dict[str, float]
) -> tuple[Embedder, Tested, dict[str, Any]]:
    """The network at the run's a without a new embedding layer, its test results, and the metrics
    at all points (at a = 1, only there). "auto" is the best a on the held-out classes. The trained
    network with its layer is no candidate: its MAP@R on the few held-out classes says little about
    unseen ones."""
    run, ready, net = training.run, training.ready, training.learner.net
    by, points, best, chosen = run.best_by, [], (-1.0, -1.0), (net, trained)
    seen = ready.splits.train
    images, a = ready.tester(seen), run.interpolation(len(seen.classes))
    auto = a == "auto"
    tried = set(POINTS) if auto else {*POINTS, float(cast(float, a))}
    for point in sorted({1.0} if a == 1 else tried):
        mixed = training.start.interpolated(net, point, images, run.seed)
        tested = training.measure(ready.query, mixed)
        held = training.measure(ready.validation if auto else None, mixed).metrics
        points.append({"a": point, "metrics": tested.metrics, "validation": held})
        score = held[by] if held else float(point == a)
        if (score, point) > best:
            best, chosen = (score, point), (mixed, tested)
    about: dict[str, Any] = {"a": best[1], "by": by if auto else None, "points": points}
    about["trained"] = {"metrics": trained.metrics, "validation": validation if auto else {}}
    return *chosen, about


def _proxies(training: Training, means: Tensor | None) -> Tensor:
    """The proxies that belong to the reported weights, all of them; those of an interpolated
    network are the mean embeddings of the classes, (c, d)."""
    learner, state = training.learner, training.state
    if means is not None:
        several = learner.proxies.ndim == 3
        return means[:, None].repeat(1, learner.proxies.shape[1], 1) if several else means
    if learner.rows is not None:
        step = state.step if state.best_step is None else state.best_step
        return training.checkpoints.all_proxies(step)
    return learner.proxies.detach()


def _write_tensors(
    training: Training, net: Embedder, proxies: Tensor, tested: Tested, epoch: int
) -> dict[str, int]:
    """Write network and proxies, and the embeddings of the test images with their names and
    classes; returns the checksums of the run's files."""
    folder, splits = training.folder, training.ready.splits
    about: dict[str, Any] = {"run": training.state.run, "epoch": epoch}
    weights = {f"net.{key}": value for key, value in net.state_dict().items()}
    checksums = {
        MODEL: write_tensors(folder / MODEL, {**weights, "proxies": proxies}, about),
        METRICS: checksum(folder / METRICS),
    }
    if tested.metrics:
        about |= {"classes": splits.query.classes, "query": splits.query.names}
        tensors = {"query": tested.query, "query_labels": tested.labels}
        if splits.gallery is not None:
            about["gallery"] = splits.gallery.names
            tensors["gallery"] = cast(Tensor, tested.gallery)
            tensors["gallery_labels"] = cast(Tensor, tested.gallery_labels)
        checksums[EMBEDDINGS] = write_tensors(folder / EMBEDDINGS, tensors, about)
    return checksums


def _with_metrics_of(result: Result, evaluated: Result) -> Result:
    """The result of a run on all classes, with all that the evaluated one measured."""
    trained = result.data["train"]
    note = (
        f"The model was trained on all {trained['classes']} classes ({trained['pictures']} "
        f'images). The metrics are those of the run in its folder "{EVALUATED}", which has the '
        "same settings and did not see the classes it was tested on."
    )
    parts = ("test_fingerprint", "shared_classes", "query", "gallery")
    measured = ("metrics", "untrained", "validation", "interpolation", "calibration")
    return replace(
        result,
        **{name: getattr(evaluated, name) for name in measured},
        data=result.data | {key: evaluated.data[key] for key in parts if key in evaluated.data},
        notes=(note, *evaluated.notes),
        evaluated=evaluated.run,
    )


def why_this_epoch(run: Run, interpolation: Mapping[str, Any] | None = None) -> str:
    """How the reported epoch, and the interpolation, was chosen, for people."""
    by = run.best_by if run.best_by == "accuracy" else metric_name(run.best_by)
    held_out = "classes held out of the seen ones"
    if run.report_epoch == "best_on_test":
        on = "the test classes themselves, which is optimistic"
    elif run.split.fold is not None:
        on = "the fold held out, which is also what is tested"
    else:
        on = "images held out of training" if run.task == "classification" else held_out
    why = "the last epoch" if run.report_epoch == "last" else f"the best epoch by {by} on {on}"
    if interpolation and (interpolation["a"] != 1 or interpolation["by"]):
        why += f", with weights interpolated at a = {interpolation['a']:g} between the initial "
        why += "and the trained network"
        why += f", chosen on {held_out}" if interpolation["by"] else ""
    return why
