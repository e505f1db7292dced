"""The training loop: epochs, steps, evaluations, checkpoints, and the result at the end."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxysynth.data import Listing, Loader, Splits
from proxysynth.distributed.data_parallel import note_on_processes, shared_batches
from proxysynth.distributed.process_group import Ranks, join_process_group, own_device
from proxysynth.distributed.sharded_checkpoint import all_proxies
from proxysynth.errors import NotFinite, TrainingFailed, cannot_write
from proxysynth.files import CannotWrite, locked
from proxysynth.formatting import metric_name, percent
from proxysynth.models.embedder import Embedder
from proxysynth.provenance import provenance
from proxysynth.tensor_files import checksum, entry, read_tensors, write_tensors
from proxysynth.training.callbacks import Progress, Silent, open_tensorboard
from proxysynth.training.checkpoint import (
    Checkpoints,
    Damaged,
    State,
    checkpoint_at,
    newest_checkpoint,
)
from proxysynth.training.inference import (
    EmbeddingsNotFinite,
    Tested,
    calibrate_run,
    measure,
    usual_ks,
)
from proxysynth.training.interrupts import Interrupted, uninterrupted
from proxysynth.training.learner import Learner, load_weights, make_learner
from proxysynth.training.prepare import (
    Prepared,
    make_network,
    make_sampler,
    open_splits,
    prepare,
    side_in_memory,
    starts_as_published,
)
from proxysynth.training.resources import Resources, device_name, own_resources
from proxysynth.training.run import KINDS, Run
from proxysynth.training.run_folder import (
    CHECKPOINT,
    EMBEDDINGS,
    EVALUATED,
    METRICS,
    MODEL,
    RESULT,
    Result,
    append_metrics,
    claim,
    claim_for_all_classes,
    damaged_files,
    describe,
    find_run,
    make_folder,
    read_result,
    read_run,
    record_run,
    rewrite_metrics,
    tidy,
    write_result,
)
from proxysynth.training.start import Delivered, Start, interpolate, make_start, start_proxies
from proxysynth.values import decode, describe_differences, encode

NOT_FINITE = "not_finite.txt"
SHOWN = 8  # files named in a message


def train(
    run: Run,
    folder: str | os.PathLike[str],
    *,
    all_classes: bool = False,
    resources: Resources | None = None,
    progress: Progress | None = None,
) -> Result:
    """Train a run into a folder and return its result.

    A folder that holds the same run is resumed, bit for bit as if it had never stopped; a finished
    one returns its result at once; one that holds fewer epochs of it (`Run.extend`) is continued;
    one that holds another run is refused.

    Args:
        all_classes: train the run into `evaluated` inside the folder, then a run with the same
            settings on all classes into the folder itself. The result has the metrics of the first.
    """
    with join_process_group() as ranks:
        require_same_run(run, ranks)
        reporter = progress if ranks.first and progress else Silent()
        machine = own_resources(resources or Resources(), ranks)
        place = Path(folder).expanduser()
        if not all_classes:
            return _train(run, place, machine, reporter, ranks)
        if run.extended and run.report_epoch != "last":
            raise ValueError(
                "a training on all classes takes the best epoch of the evaluated one, so it cannot "
                "be extended: train into another folder"
            )
        if ranks.first:
            claim_for_all_classes(place)
        if run.init is not None and os.path.basename(run.init) == EVALUATED:
            run = replace(run, init=os.path.dirname(run.init))  # the evaluated run is resumed
        evaluated = None
        if open_splits(run).testable:
            reporter.say("First of two trainings: some classes are left out to evaluate on.")
            evaluated = _train(evaluated_run(run), place / EVALUATED, machine, reporter, ranks)
            reporter.say("Second training: on all classes.")
        return _train(on_all_classes(run, evaluated), place, machine, reporter, ranks, evaluated)


def evaluated_run(run: Run) -> Run:
    """The first of the two trainings. If it starts from an earlier run that was trained on all
    classes, it starts from that one's evaluated run instead, which had not seen them all."""
    if run.init is None or find_run(Path(run.init) / EVALUATED) is None:
        return run
    return replace(run, init=os.path.join(run.init, EVALUATED))


def on_all_classes(run: Run, evaluated: Result | None) -> Run:
    """The same training on all classes: nothing is held out, so what the evaluated run chose on
    held-out classes (its epoch, its interpolation) is taken from there."""
    changes: dict[str, Any] = {"split": replace(run.split, unseen_fraction=0.0)}
    if run.report_epoch != "last":
        epochs = run.epochs if evaluated is None else evaluated.epoch
        extended = tuple(end for end in run.extended if end < epochs)
        changes |= {"report_epoch": "last", "patience": 0, "epochs": epochs, "extended": extended}
    if run.interpolate == "auto":
        changes["interpolate"] = None if evaluated is None else evaluated.interpolation["a"]
    return replace(run, **changes)


def _train(
    run: Run,
    folder: Path,
    resources: Resources,
    progress: Progress,
    ranks: Ranks,
    evaluated: Result | None = None,
) -> Result:
    """`train` on one of the ranks; only the first writes files.

    Args:
        evaluated: of a run on all classes, the result of the run that did not see the test classes.
    """
    if (result := _finished(folder, run, progress, ranks)) is not None:
        return result
    device = own_device(resources.torch_device(), ranks)
    if run.batch_size < ranks.world:
        raise ValueError(
            f"batch_size is divided over the processes, but {run.batch_size} images are too few "
            f"for {ranks.world} of them: start fewer, or raise batch_size"
        )
    with _first_rank_first(ranks):
        opened = open_splits(run)
    architecture = None if run.init is None else read_run(run.init).architecture
    net = make_network(run, side_in_memory(opened), run.init is not None, architecture)
    start = make_start(run, net)
    if ranks.first:
        make_folder(folder)  # only now: everything that was asked for is possible
    checkpoints = Checkpoints(folder / CHECKPOINT)
    lock = locked(folder) if ranks.first else nullcontext()
    with lock, _explained(checkpoints), _torch_settings(device, resources.threads):
        # Again: another process may have finished it before this one held the lock.
        if (result := _finished(folder, run, progress, ranks)) is not None:
            return result
        if ranks.first:
            tidy(folder)
        began = time.perf_counter()
        several = f", {ranks.world} processes" if ranks.world > 1 else ""
        progress.say(f"Training on {device_name(device)}{several}.")
        with _first_rank_first(ranks):
            ready = prepare(run, opened, net, resources, progress)
        ready = replace(ready, splits=start.with_remark(ready.splits))
        require_same_images(ready.splits.fingerprint(), ranks)
        progress.say(ready.splits.describe())
        sampler, images = make_sampler(run), ready.train.listing
        first = sampler(images.labels, 0, run.batch_size)
        learner = make_learner(run, ready.net, len(images.classes), len(first), device, ranks)
        checkpoints = Checkpoints(folder / CHECKPOINT, learner.rows, ranks)
        recorded = None
        if ranks.first:
            recorded = record_run(folder, claim(folder, run), run, ready, start.seen)
        identity = ranks.broadcast(recorded)
        state = _resume(checkpoints, identity, learner, progress)
        if state is None:
            if start.earlier is not None:
                drawn = learner.proxies.detach()
                drawn.copy_(start_proxies(start, drawn, ready, learner.rows, ranks))
            state = State(identity, untrained=_untrained(ready, run, progress, ranks))
        if ranks.first:
            rewrite_metrics(folder, state.history)
        tensorboard = open_tensorboard(folder, resources.tensorboard and ranks.first, state.step)
        earlier, tested = state.seconds, None
        saved, several_ranks = state.step, ranks.world > 1

        def failed(step: int) -> NotFinite:
            files = [ready.file(i) for i in batch.indices.tolist()]
            return _not_finite(step, epoch + 1, files, folder / NOT_FINITE, checkpoints)

        def check(state: State) -> None:
            if not learner.finite():  # a step may break the weights after a finite loss
                raise failed(state.step)

        def save(state: State) -> None:
            nonlocal saved
            seconds = earlier + time.perf_counter() - began
            scaler = learner.scaler.state_dict()
            with uninterrupted(ranks):
                checkpoints.save(replace(state, seconds=seconds, scaler=scaler), learner.tensors())
                saved = state.step

        @contextmanager
        def saved_if_interrupted() -> Iterator[None]:
            try:
                yield
            except Interrupted:
                # All ranks are here: where one can be interrupted alone, everything is saved.
                if resumable.step > saved:
                    with uninterrupted(ranks):  # the same signal may come twice
                        if learner.finite():
                            save(resumable)
                raise

        per_epoch = sum(map(len, first))
        done = state.epoch * per_epoch + sum(map(len, first[: state.batch]))
        resumable = state  # what the weights are; in an evaluation, its epoch is not over yet
        task = progress.task("training", run.epochs * per_epoch, done)
        with saved_if_interrupted(), task as tick:
            for epoch in range(state.epoch, run.epochs):
                if _patience_is_over(state, run):
                    progress.say(f"No improvement in {run.patience} evaluations: stopping early.")
                    break
                learner.begin_epoch(epoch)
                plan = sampler(images.labels, epoch, run.batch_size)
                left = plan[state.batch :]
                if several_ranks:
                    batches = shared_batches(ready.train, left, run.seed, epoch, ranks)
                else:
                    batches = ready.train.batches(left, run.seed, epoch)
                with uninterrupted(ranks) if several_ranks else nullcontext():
                    for batch in batches:
                        with uninterrupted(ranks):
                            loss = learner.step(batch, state.step)
                            if not math.isfinite(loss):
                                raise failed(state.step + 1)
                            n = len(batch.labels)
                            resumable = state = replace(
                                state,
                                batch=state.batch + 1,
                                step=state.step + 1,
                                loss_sum=state.loss_sum + n * loss,
                                loss_count=state.loss_count + n,
                            )
                        tick(n, f"epoch {epoch + 1}/{run.epochs}  loss {loss:.3f}")
                        every = resources.checkpoint_steps
                        if every and state.step % every == 0 and state.batch < len(plan):
                            check(state)
                            save(state)
                    check(state)
                    ends = (*run.extended, run.epochs)
                    evaluates = (epoch + 1) % run.evaluate_every == 0 or epoch + 1 in ends
                    if evaluates and several_ranks:
                        save(state)  # a rank that is interrupted in the evaluation leaves alone
                    state = replace(state, epoch=epoch + 1, batch=0)
                    if not evaluates:
                        save(state)
                if evaluates:
                    tick(0, f"epoch {epoch + 1}/{run.epochs}  testing")
                    try:
                        tested = _measure(ready, run, learner, ready.query)
                        validated = _validate(ready, run, learner, tested)
                    except EmbeddingsNotFinite as error:
                        raise failed(state.step) from error
                    state = _evaluated(state, run, tested, validated)
                    if ranks.first:
                        append_metrics(folder, state.history[-1])
                    tensorboard(state.history[-1])
                    progress.say(_epoch_line(state.history[-1], run))
                    save(state)
                resumable = state
        state = replace(state, seconds=earlier + time.perf_counter() - began)
        return _finish(run, folder, ready, start, learner, state, tested, evaluated)


def require_same_run(run: Run, ranks: Ranks) -> None:
    """An error on every rank unless all were started with the same settings."""
    runs = ranks.all_gather(encode(run))
    for number, other in enumerate(runs):
        if other != runs[0]:
            what = describe_differences(decode(runs[0], KINDS), decode(other, KINDS))
            raise ValueError(
                f"all processes of a run must have the same settings, but rank {number} (here) "
                f"differs from rank 0 (there), {what}: start all with the same command"
            )


def require_same_images(fingerprint: str, ranks: Ranks) -> None:
    """An error on every rank unless all see the same images."""
    found = ranks.all_gather(fingerprint)
    for number, other in enumerate(found):
        if other != found[0]:
            raise ValueError(
                f"all processes of a run must see the same images, but ranks 0 and {number} do "
                f"not (hash {found[0]} and {other}): give all the same data"
            )


def _finished(folder: Path, run: Run, progress: Progress, ranks: Ranks) -> Result | None:
    """The result if the run is finished; an error if the folder belongs to another run.

    A finished run with a damaged file is to be finished again, from its checkpoint.
    """
    result = None
    if ranks.first:
        claim(folder, run)
        result = read_result(folder)
        if result is not None and result.epochs != run.epochs:
            result = None  # it is extended
        damaged = [] if result is None else damaged_files(folder, result)
        if damaged and not Checkpoints(folder / CHECKPOINT).steps():
            raise TrainingFailed(
                f"{damaged[0]} is damaged, and there is no checkpoint to repair it from: restore "
                f"it, or delete {folder / RESULT} to train again"
            )
        if damaged:
            progress.say(f"{damaged[0]} is damaged: writing it again from the checkpoint.")
            result = None
    return _shared_result(result, ranks)


def _with_metrics_of(result: Result, evaluated: Result) -> Result:
    """The result of a run on all classes, with all that the evaluated one measured."""
    note = (
        f"The model was trained on all classes ({result.data['train']['classes']}, "
        f"{result.data['train']['pictures']} images). The metrics are those of the run in its "
        f"folder {EVALUATED}, which has the same settings and did not see the classes it was "
        "tested on."
    )
    tested = ("test_fingerprint", "shared_classes", "query", "gallery")
    return replace(
        result,
        metrics=evaluated.metrics,
        untrained=evaluated.untrained,
        validation=evaluated.validation,
        interpolation=evaluated.interpolation,
        calibration=evaluated.calibration,
        data=result.data | {key: evaluated.data[key] for key in tested if key in evaluated.data},
        notes=(note, *evaluated.notes),
        evaluated=evaluated.run,
    )


def _shared_result(result: Result | None, ranks: Ranks) -> Result | None:
    """The first rank's result, on every rank."""
    if ranks.world == 1:
        return result
    fields = ranks.broadcast(None if result is None else asdict(result))
    return None if fields is None else Result(**{**fields, "notes": tuple(fields["notes"])})


def _resume(
    checkpoints: Checkpoints, identity: str, learner: Learner, progress: Progress
) -> State | None:
    """Load the newest intact checkpoint into the learner; None at the very start."""
    loaded = newest_checkpoint(checkpoints, identity)
    if loaded is None:
        return None
    for fault in loaded.faults:
        progress.say(f"Skipped a damaged checkpoint: {fault}.")
    learner.load(loaded.tensors, loaded.state.scaler)
    progress.say(f"Resuming after epoch {loaded.state.epoch}, step {loaded.state.step}.")
    return loaded.state


def _ks(run: Run) -> tuple[int, ...]:
    return run.ks or usual_ks(run.data)


def _untrained(ready: Prepared, run: Run, progress: Progress, ranks: Ranks) -> dict[str, float]:
    """The metrics before the first step: of the backbone's features, since a new embedding layer
    is random, or of the whole network of an earlier run."""
    if ready.query is None:
        return {}
    images = len(ready.splits.query) + len(ready.splits.gallery or ())
    with progress.task("before training", images) as tick:
        made = measure(
            ready.net,
            ready.query,
            ready.gallery,
            ks=_ks(run),
            features=run.init is None,
            tick=tick,
            ranks=ranks,
        )
    return made.metrics


def _measure(
    ready: Prepared, run: Run, learner: Learner, query: Loader | None, net: Embedder | None = None
) -> Tested | None:
    """What is measured on some pictures, in their gallery; None where there are none."""
    gallery = ready.gallery if query is ready.query else None
    return None if query is None else learner.measure(query, gallery, _ks(run), net)


def _validate(
    ready: Prepared,
    run: Run,
    learner: Learner,
    tested: Tested | None,
    net: Embedder | None = None,
) -> Tested | None:
    if ready.validation is not None and ready.splits.validation is ready.splits.query:
        return tested
    return _measure(ready, run, learner, ready.validation, net)


def _evaluated(state: State, run: Run, tested: Tested | None, validated: Tested | None) -> State:
    """The state with one more line of history and, if it is better, a new best epoch."""
    line = {
        "epoch": state.epoch,
        "step": state.step,
        "loss": state.loss_sum / state.loss_count,
        **({} if tested is None else tested.metrics),
        **({"validation": validated.metrics} if validated is not None else {}),
    }
    state = replace(state, history=(*state.history, line), loss_sum=0.0, loss_count=0)
    if run.report_epoch == "last":
        return state
    scores = [entry.get("validation", entry)[run.measured_best_by] for entry in state.history]
    if max(scores) > max(scores[:-1], default=-1.0):
        return replace(state, best_epoch=state.epoch, best_step=state.step)
    return state


def _patience_is_over(state: State, run: Run) -> bool:
    if not run.patience or state.best_epoch is None:
        return False
    since = [line for line in state.history if line["epoch"] > state.best_epoch]
    return len(since) >= run.patience


def _epoch_line(line: dict[str, float], run: Run) -> str:
    """An evaluation as one line for the terminal."""
    first = "recall@1" if "recall@1" in line else "precision@1"
    keys = [key for key in ("accuracy", first, "map@r") if key in line]
    measured = "  ".join(f"{metric_name(key)} {percent(line[key])}" for key in keys)
    return f"epoch {line['epoch']}/{run.epochs}  loss {line['loss']:.3f}  {measured}"


# The end of a run: which epoch is reported, its model, its embeddings, its result.


def _finish(
    run: Run,
    folder: Path,
    ready: Prepared,
    start: Start,
    learner: Learner,
    state: State,
    tested: Tested | None,
    evaluated: Result | None,
) -> Result:
    """Write model, embeddings and result of the reported epoch. All ranks test, the first writes.

    Args:
        state: after the last epoch.
        tested: the last evaluation, if it was made just now.
        evaluated: see `_train`.
    """
    ranks = learner.ranks
    checkpoints = Checkpoints(folder / CHECKPOINT, learner.rows, ranks)
    epoch = state.epoch
    if state.best_step is not None and state.best_step != state.step:
        _load_best(checkpoints, state, learner)
        epoch, tested = state.best_epoch or epoch, None
    if tested is None:
        tested = _measure(ready, run, learner, ready.query)
    line = next(entry for entry in state.history if entry["epoch"] == epoch)
    validation = line.get("validation", {})
    made = Delivered(learner.net, None, tested)
    if run.interpolate is not None:

        def measure(net: Embedder, query: Loader | None) -> Tested | None:
            return _measure(ready, run, learner, query, net)

        made = interpolate(run, start, made, validation, ready, measure, ranks)
    held_out = None
    if run.task != "classification":
        held_out = _validate(ready, run, learner, made.tested, made.net)
    result, calibration = None, None
    if ranks.first:
        (folder / RESULT).unlink(missing_ok=True)  # of a run that was extended
        about = {"run": state.run, "epoch": epoch}
        reported = state.step if state.best_step is None else state.best_step
        checksums = {
            MODEL: _write_model(folder / MODEL, made, learner, checkpoints, reported, about),
            METRICS: checksum(folder / METRICS),
        }
        if made.tested is not None:
            path = folder / EMBEDDINGS
            checksums[EMBEDDINGS] = _write_embeddings(path, ready.splits, made.tested, about)
            proxies = learner.proxies.detach()
            if made.proxies is not None or learner.shards is not None:
                proxies = read_tensors(folder / MODEL)[0]["proxies"]
            calibration = calibrate_run(run, ready.splits, proxies, made.tested, held_out)
        result = Result(
            run=state.run,
            metrics={} if made.tested is None else made.tested.metrics,
            untrained=state.untrained,
            epoch=epoch,
            epochs=run.epochs,
            chosen=run.report_epoch,
            why=why_this_epoch(run) + _why_this_a(made.interpolation),
            validation=validation,
            seconds=round(state.seconds, 3),
            device=device_name(learner.device),
            data=describe(ready.splits, start.seen),
            provenance=provenance(),
            notes=(*ready.splits.remarks(), *note_on_processes(learner.net, ranks)),
            checksums=checksums,
            calibration={} if calibration is None else asdict(calibration),
            interpolation=made.interpolation,
            backbone=run.backbone if starts_as_published(run) else "",
        )
        if evaluated is not None:
            result = _with_metrics_of(result, evaluated)
        write_result(folder, result)
        checkpoints.drop(newest=1)  # the one before was in case the last had been lost
    shared = _shared_result(result, ranks)
    assert shared is not None
    return shared


def _write_model(
    path: Path,
    made: Delivered,
    learner: Learner,
    checkpoints: Checkpoints,
    step: int,
    about: dict[str, Any],
) -> int:
    """Network and proxies in one file; sharded proxies are copied from the checkpoint."""
    entries = [entry(f"net.{key}", value) for key, value in made.net.state_dict().items()]
    if made.proxies is not None:
        several = learner.proxies.shape[1:-1]  # proxies per class, where there are several
        means = made.proxies.reshape(len(made.proxies), *(1 for _ in several), -1)
        entries.append(entry("proxies", means.expand(-1, *several, -1).contiguous()))
    elif learner.shards is None:
        entries.append(entry("proxies", learner.proxies))
    else:
        entries.append(all_proxies(*checkpoints.shards(step)))
    return write_tensors(path, entries, about)


def _load_best(checkpoints: Checkpoints, state: State, learner: Learner) -> None:
    assert state.best_step is not None
    try:
        best = checkpoint_at(checkpoints, state.best_step, state.run)
    except Damaged as fault:
        raise TrainingFailed(
            f"the checkpoint of the best epoch ({state.best_epoch}) cannot be read, {fault}: "
            f"delete the folder {checkpoints.folder} to start the run over"
        ) from fault
    load_weights(learner.net, learner.proxies, best.tensors)


def _write_embeddings(path: Path, splits: Splits, tested: Tested, about: dict[str, Any]) -> int:
    """query, query_labels (and gallery, gallery_labels), with the images' names and classes."""
    tensors = {"query": tested.query, "query_labels": _labels(splits.query)}
    about = {**about, "classes": splits.query.classes, "query": splits.query.names}
    if splits.gallery is not None and tested.gallery is not None:
        tensors |= {"gallery": tested.gallery, "gallery_labels": _labels(splits.gallery)}
        about["gallery"] = splits.gallery.names
    return write_tensors(path, tensors, about)


def _why_this_a(interpolation: Mapping[str, Any]) -> str:
    """The end of the sentence about the reported epoch."""
    if not interpolation:
        return ""
    how = "" if interpolation["by"] is None else ", chosen on classes held out of the seen ones"
    if interpolation["a"] is None:
        return f", not interpolated{how}"
    return f", interpolated with the network before training at a = {interpolation['a']:g}{how}"


def _labels(listing: Listing) -> Tensor:
    return torch.from_numpy(listing.labels.copy())


def why_this_epoch(run: Run) -> str:
    """How the reported epoch was chosen, for people."""
    if run.report_epoch == "last":
        return "the last epoch"
    by = run.best_by
    best = f"the best epoch by {by if by == 'accuracy' else metric_name(by)}"
    if run.report_epoch == "best_on_test":
        return f"{best} on the test classes themselves, which flatters the result"
    if run.split.fold is not None:
        return f"{best} on the fold held out, which is also what is tested"
    if run.task == "classification":
        return f"{best} on images held out of training"
    return f"{best} on classes held out of the seen ones"


# The surroundings of a run: ranks in order, torch's settings, errors as sentences.


@contextmanager
def _first_rank_first(ranks: Ranks) -> Iterator[None]:
    """Run the block on the first rank before the others: it fills the caches that they use."""
    if not ranks.first:
        ranks.barrier()
    yield
    if ranks.first:
        ranks.barrier()


@contextmanager
def _torch_settings(device: torch.device, threads: int | None) -> Iterator[None]:
    """Set torch's threads, if a number is given; restore them and its random state afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _explained(checkpoints: Checkpoints) -> Iterator[None]:
    """Report a full or read-only disk, or too little memory, in one sentence."""
    try:
        yield
    except CannotWrite as error:
        raise cannot_write(Path(error.filename), error, checkpoints.describe_last()) from error
    except (MemoryError, RuntimeError) as error:
        # torch has its own exception for GPUs, and none for CPUs.
        named = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not named and "can't allocate memory" not in str(error):
            raise
        reason = (str(error).strip() or "none is left").splitlines()[0]
        raise TrainingFailed(
            f"out of memory ({reason}); "
            f"{checkpoints.describe_last()}: choose a smaller batch_size, image_size or backbone"
        ) from error


def _not_finite(
    step: int, epoch: int, files: list[str], record: Path, checkpoints: Checkpoints
) -> NotFinite:
    """A non-finite loss as an error; all files of the batch are written to `record`."""
    shown = ", ".join(files[:SHOWN])
    more = ""
    with contextlib.suppress(OSError):
        record.write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
        more = f"; all are listed in {record}"
    return NotFinite(
        f"the loss is not finite in step {step} of epoch {epoch}, in a batch of {len(files)} "
        f"images ({shown}{', ...' if files[SHOWN:] else ''}{more}); "
        f"{checkpoints.describe_last()}: check these images, or train into another folder with "
        "lower learning rates",
        step,
        tuple(files),
    )
