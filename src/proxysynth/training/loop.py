"""The training loop: epochs, batches, steps, evaluations, checkpoints. All of it is in `train`."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from proxysynth.distributed.data_parallel import shared_batches
from proxysynth.distributed.process_group import Ranks, joined, own_device
from proxysynth.errors import NotFinite
from proxysynth.formatting import metric_name, percent
from proxysynth.training.agreement import (
    own_resources,
    require_pictures_for_all,
    require_same_pictures,
    require_same_run,
)
from proxysynth.training.allocator import Look, kept_memory
from proxysynth.training.board import open_board
from proxysynth.training.checkpoint import Checkpoints, State
from proxysynth.training.embed import EmbeddingsNotFinite, Tested, measure, usual_ks
from proxysynth.training.faults import explained, not_finite
from proxysynth.training.finish import finish
from proxysynth.training.learner import Learner, make_learner
from proxysynth.training.lock import locked
from proxysynth.training.metrics_log import append_metrics, rewrite_metrics
from proxysynth.training.prepare import (
    Prepared,
    make_network,
    make_sampler,
    open_splits,
    prepare,
    side_in_memory,
)
from proxysynth.training.progress import Progress, Silent
from proxysynth.training.record import Result, read_result
from proxysynth.training.resources import Resources, device_name
from proxysynth.training.resume import (
    after_the_first,
    newest_checkpoint,
    shared_result,
)
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, claim, make_folder, record_run, tidy

NOT_FINITE = "not_finite.txt"


def train(
    run: Run,
    folder: str | os.PathLike[str],
    *,
    resources: Resources | None = None,
    progress: Progress | None = None,
) -> Result:
    """Train a run into a folder and return its result.

    A folder that holds the same run goes on where it was, bit for bit as if it had never stopped; a
    finished one gives its result at once; one that holds another run is refused.
    """
    with joined() as ranks:
        require_same_run(run, ranks)
        speaker = progress if ranks.first and progress else Silent()
        machine = own_resources(resources or Resources(), ranks)
        return _train(run, Path(folder).expanduser(), machine, speaker, ranks)


def _train(
    run: Run, folder: Path, resources: Resources, progress: Progress, ranks: Ranks
) -> Result:
    """`train`, as one of the ranks that do it together; the first one alone writes files."""
    if (result := _finished(folder, run, ranks)) is not None:
        return result
    device = own_device(resources.torch_device(), ranks)
    require_pictures_for_all(run, ranks)
    with after_the_first(ranks):
        opened = open_splits(run)
    net = make_network(run, side_in_memory(opened))
    if ranks.first:
        make_folder(folder)  # from here on: what was asked for is possible
    checkpoints = Checkpoints(folder / CHECKPOINT)
    lock = locked(folder) if ranks.first else nullcontext()
    with lock, explained(checkpoints), _torch_for(device, resources.threads) as look:
        # Again: until the lock, another process may have been here.
        if (result := _finished(folder, run, ranks)) is not None:
            return result
        if ranks.first:
            tidy(folder)
        begun = time.perf_counter()
        several = f", {ranks.world} processes" if ranks.world > 1 else ""
        progress.say(f"Training on {device_name(device)}{several}.")
        with after_the_first(ranks):
            ready = prepare(run, opened, net, resources, progress)
        require_same_pictures(ready.splits.fingerprint(), ranks)
        progress.say(ready.splits.describe())
        sampler, pictures = make_sampler(run), ready.train.listing
        first = sampler(pictures.labels, 0, run.batch_size)
        learner = make_learner(run, ready.net, len(pictures.classes), len(first), device, ranks)
        checkpoints = Checkpoints(folder / CHECKPOINT, learner.rows, ranks)
        recorded = record_run(folder, claim(folder, run), run, ready) if ranks.first else None
        identity = ranks.tell(recorded)
        state = _resume(checkpoints, identity, learner, progress)
        if state is None:
            state = State(identity, untrained=_untrained(ready, run, progress, ranks))
        if ranks.first:
            rewrite_metrics(folder, state.history)
        board = open_board(folder, resources.tensorboard and ranks.first, state.step)
        earlier, tested = state.seconds, None

        def failed(step: int) -> NotFinite:
            files = [ready.file(i) for i in batch.indices.tolist()]
            return not_finite(step, epoch + 1, files, folder / NOT_FINITE, checkpoints)

        def check(state: State) -> None:
            if not learner.finite():  # a step may break the weights after a loss that was fine
                raise failed(state.step)

        def save(state: State) -> None:
            seconds = earlier + time.perf_counter() - begun
            scaler = learner.scaler.state_dict()
            checkpoints.save(replace(state, seconds=seconds, scaler=scaler), learner.tensors())

        per_epoch = sum(map(len, first))
        done = state.epoch * per_epoch + sum(map(len, first[: state.batch]))
        with progress.task("training", run.epochs * per_epoch, done) as tick:
            for epoch in range(state.epoch, run.epochs):
                if _patience_is_over(state, run):
                    progress.say(f"No better epoch for {run.patience} evaluations: it ends here.")
                    break
                learner.begin_epoch(epoch)
                plan = sampler(pictures.labels, epoch, run.batch_size)
                left = plan[state.batch :]
                for batch in shared_batches(ready.train, left, run.seed, epoch, ranks):
                    loss = learner.step(batch, state.step)
                    if not math.isfinite(loss):
                        raise failed(state.step + 1)
                    state = state.after_step(loss, len(batch.labels))
                    tick(len(batch.labels), f"epoch {epoch + 1}/{run.epochs}  loss {loss:.3f}")
                    look()
                    every = resources.checkpoint_steps
                    if every and state.step % every == 0 and state.batch < len(plan):
                        check(state)
                        save(state)
                state = replace(state, epoch=epoch + 1, batch=0)
                check(state)
                if state.epoch % run.evaluate_every == 0 or state.epoch == run.epochs:
                    tick(0, f"epoch {epoch + 1}/{run.epochs}  testing")
                    try:
                        tested = _test(ready, run, learner)
                        validated = _validate(ready, run, learner, tested)
                    except EmbeddingsNotFinite as error:
                        raise failed(state.step) from error
                    state = _evaluated(state, run, tested, validated)
                    if ranks.first:
                        append_metrics(folder, state.history[-1])
                    board(state.history[-1])
                    progress.say(_told(state.history[-1], run))
                save(state)
        seconds = earlier + time.perf_counter() - begun
        return finish(run, folder, ready, learner, replace(state, seconds=seconds), tested)


def _finished(folder: Path, run: Run, ranks: Ranks) -> Result | None:
    """The run's result if it is over; an error if the folder is not this run's."""
    if ranks.first:
        claim(folder, run)
    return shared_result(read_result(folder) if ranks.first else None, ranks)


def _untrained(ready: Prepared, run: Run, progress: Progress, ranks: Ranks) -> dict[str, float]:
    """The metrics of the backbone's features before the first step."""
    pictures = len(ready.splits.query) + len(ready.splits.gallery or ())
    with progress.task("untrained backbone", pictures) as tick:
        ks = run.ks or usual_ks(run.data)
        made = measure(
            ready.net, ready.query, ready.gallery, ks=ks, features=True, tick=tick, ranks=ranks
        )
    return made.metrics


def _test(ready: Prepared, run: Run, learner: Learner) -> Tested:
    ks = run.ks or usual_ks(run.data)
    return learner.measure(ready.query, ready.gallery, ks)


def _validate(ready: Prepared, run: Run, learner: Learner, tested: Tested) -> Tested | None:
    if ready.validation is None or ready.splits.validation is ready.splits.query:
        return None if ready.validation is None else tested
    ks = run.ks or usual_ks(run.data)
    return learner.measure(ready.validation, None, ks)


def _evaluated(state: State, run: Run, tested: Tested, validated: Tested | None) -> State:
    """The state with a line more in its history and, where it counts, a new best epoch."""
    line = {
        "epoch": state.epoch,
        "step": state.step,
        "loss": state.loss_sum / state.loss_count,
        **tested.metrics,
        **({"validation": validated.metrics} if validated is not None else {}),
    }
    state = replace(state, history=(*state.history, line), loss_sum=0.0, loss_count=0)
    if run.report_epoch == "last":
        return state
    # Recall@1 is P@1, which is there whatever the ks.
    by = "precision@1" if run.best_by == "recall@1" else run.best_by
    scores = [entry.get("validation", entry)[by] for entry in state.history]
    if max(scores) > max(scores[:-1], default=-1.0):
        return replace(state, best_epoch=state.epoch, best_step=state.step)
    return state


def _patience_is_over(state: State, run: Run) -> bool:
    """Whether so many evaluations passed without a better one."""
    if not run.patience or state.best_epoch is None:
        return False
    since = [line for line in state.history if line["epoch"] > state.best_epoch]
    return len(since) >= run.patience


def _resume(
    checkpoints: Checkpoints, identity: str, learner: Learner, progress: Progress
) -> State | None:
    """Put the learner where its newest whole checkpoint is; None at the very start."""
    loaded = newest_checkpoint(checkpoints, identity)
    if loaded is None:
        return None
    for fault in loaded.faults:
        progress.say(f"A checkpoint is damaged and was passed over: {fault}.")
    learner.load(loaded.tensors, loaded.state.scaler)
    progress.say(f"Going on after epoch {loaded.state.epoch}, step {loaded.state.step}.")
    return loaded.state


def _told(line: dict[str, float], run: Run) -> str:
    """An evaluation for people."""
    first = "recall@1" if "recall@1" in line else "precision@1"
    keys = [key for key in ("accuracy", first, "map@r") if key in line]
    measured = "  ".join(f"{metric_name(key)} {percent(line[key])}" for key in keys)
    return f"epoch {line['epoch']}/{run.epochs}  loss {line['loss']:.3f}  {measured}"


@contextmanager
def _torch_for(device: torch.device, threads: int | None) -> Iterator[Look]:
    """So many threads, if they are said, and memory that is kept from step to step.

    These and torch's random numbers are given back after.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        fork = torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
        with fork, kept_memory(device) as look:
            yield look
    finally:
        torch.set_num_threads(before)
