"""The training loop: epochs, steps, evaluations and checkpoints."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from proxysynth.data import Loader
from proxysynth.data.folders import some_names
from proxysynth.data.listing import NOTHING_TESTED
from proxysynth.distributed.process_group import Ranks, join_process_group, own_device
from proxysynth.errors import NotFinite, TrainingFailed, cannot_write
from proxysynth.files import CannotWrite, locked
from proxysynth.formatting import duration, metric_name, percent
from proxysynth.models.embedder import Embedder
from proxysynth.tensor_files import checksum
from proxysynth.training import inference, prepare, run_folder
from proxysynth.training.callbacks import Progress, Silent, Tick, open_tensorboard
from proxysynth.training.checkpoint import Checkpoints, State
from proxysynth.training.finish import finish
from proxysynth.training.inference import NOT_TESTED, Tested
from proxysynth.training.interrupts import Interrupted, uninterrupted
from proxysynth.training.learner import Learner
from proxysynth.training.resources import Resources, device_name, own_resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, EVALUATED, RESULT, Result
from proxysynth.training.start import Start, make_start
from proxysynth.values import describe_differences, encode

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

    If the folder holds the same run, it is resumed, bit for bit as if it had never stopped; a
    finished run returns its result at once; a run of fewer epochs (`Run.extend`) is continued;
    another run is refused.

    Args:
        run: what to train; `proxysynth.training.default_run` makes one for a folder of images.
        folder: where to write; created if it does not exist.
        resources: a `proxysynth.training.Resources`: device, threads and caches of this machine;
            default: chosen automatically.
        progress: a `proxysynth.training.Progress`, which receives messages; default: silent.
        all_classes: train the run into `evaluated` inside the folder, then a run with the same
            settings on all classes into the folder itself. The result has the metrics of the first.
    """
    if not isinstance(run, Run):
        advice = "make one with Run() or proxysynth.training.default_run('photos')"
        raise ValueError(f"train takes a Run, got {run!r}: {advice}")
    if not isinstance(resources, Resources | None):
        raise ValueError(f"resources must be a proxysynth.training.Resources, got {resources!r}")
    if not isinstance(progress, Progress | None):
        raise ValueError(f"progress must be a proxysynth.training.Progress, got {progress!r}")
    with join_process_group() as ranks:
        reporter = progress if ranks.first and progress else Silent()
        machine = own_resources(resources or Resources(), ranks)
        both = _train_on_all_classes if all_classes else _train
        return both(run, Path(folder).expanduser(), machine, reporter, ranks)


def _train_on_all_classes(
    run: Run, folder: Path, resources: Resources, progress: Progress, ranks: Ranks
) -> Result:
    """Train and evaluate a run, then train it on all classes."""
    if run.extended and run.report_epoch != "last":
        raise ValueError("the best epoch on all classes cannot be extended: choose another folder")
    if ranks.first:
        run_folder.claim_for_all_classes(folder)
    if run.init is not None and os.path.basename(run.init) == EVALUATED:
        run = replace(run, init=os.path.dirname(run.init))  # the evaluated run is resumed
    evaluated = None
    if prepare.open_splits(run).testable:
        first, earlier = run, run.init and os.path.join(run.init, EVALUATED)
        if earlier and run_folder.find_run(Path(earlier)) is not None:
            # The earlier run was trained on all classes; its evaluated one has not seen them.
            first = replace(run, init=earlier)
        progress.say("First of two training runs: some classes are held out for evaluation.")
        evaluated = _train(first, folder / EVALUATED, resources, progress, ranks)
        progress.say("Second training run: on all classes.")
    # Nothing is held out: what is chosen on held-out classes is taken from the evaluated run.
    run = replace(run, split=replace(run.split, unseen_fraction=0.0))
    if run.report_epoch != "last":
        epochs = run.epochs if evaluated is None else evaluated.epoch
        run = replace(run, report_epoch="last", patience=0, epochs=epochs)
    if isinstance(run.interpolate, str) and evaluated is not None:
        run = replace(run, interpolate=evaluated.interpolation.get("a"))
    elif run.interpolate == "auto":
        run = replace(run, interpolate=None)
    return _train(run, folder, resources, progress, ranks, evaluated)


def _train(
    run: Run,
    folder: Path,
    resources: Resources,
    progress: Progress,
    ranks: Ranks,
    evaluated: Result | None = None,
) -> Result:
    """`train` on one of the ranks; only the first writes files. For a run on all classes,
    `evaluated` is the result of the run that did not see the test classes."""
    if (result := _finished(folder, run, progress, ranks)) is not None:
        return result
    device = own_device(resources.torch_device(), ranks)
    if run.batch_size < ranks.world:
        raise ValueError(f"batch_size={run.batch_size} is too small for {ranks.world} processes")
    with _first_rank_first(ranks):
        splits = prepare.open_splits(run)
    start = make_start(run, prepare.side_in_memory(splits))
    if ranks.first:
        run_folder.make_folder(folder)  # only now: everything that was asked for is possible
    lock = locked(folder) if ranks.first else nullcontext()
    with lock, _session(folder, device, resources.threads):
        began = time.perf_counter()
        several = f", {ranks.world} processes" if ranks.world > 1 else ""
        progress.say(f"Training on {device_name(device)}{several}.")
        if run.warmup_epochs >= run.epochs:
            warm = f"warmup_epochs ({run.warmup_epochs}) >= epochs ({run.epochs})"
            progress.say(f"Warning: the backbone is never trained: {warm}.")
        with _first_rank_first(ranks):
            ready = prepare.prepare(run, splits, start.net, resources, progress)
        ready = replace(ready, splits=start.with_remark(ready.splits))
        require_same(run, ready.splits.fingerprint(), ranks)
        about = ready.splits.describe()
        if evaluated is not None:
            where = f'the metrics come from the evaluated run in "{folder / EVALUATED}".'
            about = about.replace(NOTHING_TESTED, f"This training uses all classes: {where}")
        progress.say(about)
        images = ready.train.listing
        plan = prepare.make_sampler(run)(images.labels, 0, run.batch_size)
        learner = Learner(run, ready.net, len(images.classes), len(plan), device, ranks)
        training = Training(run, folder, ready, start, learner, resources, progress, began)
        training.run_epochs()
        return finish(training, evaluated)


@dataclass(eq=False)
class Training:
    """A run in training: its parts, and the state that its steps change.

    It starts from the newest intact checkpoint in its folder, or from scratch.
    """

    run: Run
    folder: Path
    ready: prepare.Prepared
    start: Start
    learner: Learner
    resources: Resources
    progress: Progress
    began: float  # on time.perf_counter
    tested: Tested | None = None  # the last evaluation, if the weights are still those

    def __post_init__(self) -> None:
        self.ranks = self.learner.ranks
        self.checkpoints = Checkpoints(self.folder / CHECKPOINT, self.learner.rows, self.ranks)
        identity = ""
        if self.ranks.first:
            identity = run_folder.record_run(self.folder, self.run, self.ready, self.start.seen)
            self.checkpoints.drop()
        self.state = self._first_state(self.ranks.broadcast(identity))
        self.saved = self.state.step
        self.began -= self.state.seconds  # of earlier sessions
        if self.ranks.first:
            run_folder.write_metrics(self.folder, self.state.history)
        wanted = self.resources.tensorboard and self.ranks.first
        self.tensorboard = open_tensorboard(self.folder, wanted, self.state.step)

    def _first_state(self, identity: str) -> State:
        """The state of the newest intact checkpoint, which is loaded, or before the first step."""
        learner, ready = self.learner, self.ready
        loaded = self.checkpoints.load(identity)
        if loaded is None:
            if self.start.earlier is not None:
                drawn = learner.proxies.detach()
                drawn.copy_(self.start.proxies(drawn, ready, learner.rows, self.ranks))
            return State(identity, untrained=self.measure(ready.query, untrained=True).metrics)
        for fault in loaded.faults:
            self.progress.say(f"Skipped a damaged checkpoint: {fault}.")
        state = loaded.state
        learner.load(loaded.tensors, state.scaler)
        self.progress.say(f"Resuming after epoch {state.epoch}, step {state.step}.")
        return state

    def run_epochs(self) -> None:
        """Run the epochs that are left. A signal ends them with a checkpoint."""
        run, labels = self.run, self.ready.train.listing.labels
        sampler = prepare.make_sampler(run)
        per_epoch = sum(map(len, sampler(labels, 0, run.batch_size)))
        done = self.state.epoch * per_epoch + self.state.batch * run.batch_size
        try:
            with self.progress.task("training", run.epochs * per_epoch, done) as tick:
                for epoch in range(self.state.epoch, run.epochs):
                    if self._out_of_patience():
                        early = f"No improvement in {run.patience} evaluations: stopping early."
                        self.progress.say(early)
                        break
                    self.plan = sampler(labels, epoch, run.batch_size)  # the epoch's batches
                    self._run_epoch(epoch, tick)
        except Interrupted:
            # All ranks are here: where one can be interrupted alone, everything is saved.
            if self.state.step > self.saved:
                with uninterrupted(self.ranks):  # the same signal may come twice
                    if self.learner.finite():
                        self._save()
            raise

    def _out_of_patience(self) -> bool:
        best = self.state.best_epoch or self.run.epochs
        since = sum(line["epoch"] > best for line in self.state.history)
        return 0 < self.run.patience <= since

    def _run_epoch(self, epoch: int, tick: Tick) -> None:
        """The steps of an epoch that are left, and the evaluation, if one is due."""
        run, ranks, every = self.run, self.ranks, self.resources.checkpoint_steps
        last = (epoch + 1) in (*run.extended, run.epochs)
        evaluates = last or (epoch + 1) % run.evaluate_every == 0
        self.learner.begin_epoch(epoch)
        train, left = self.ready.train, self.plan[self.state.batch :]
        own = [indices[ranks.part(len(indices))] for indices in left]
        batches = train.batches(own, run.seed, epoch)
        with uninterrupted(ranks) if ranks.world > 1 else nullcontext():
            for indices, batch in zip(left, batches, strict=True):
                # This rank's images, with the labels of the whole batch.
                shared = batch._replace(labels=torch.from_numpy(train.listing.labels[indices]))
                with uninterrupted(ranks):
                    state, n = self.state, len(indices)
                    loss = self.learner.step(shared, state.step)
                    if not math.isfinite(loss):
                        raise self._not_finite(state.batch + 1)
                    self.state = replace(
                        state,
                        batch=state.batch + 1,
                        step=state.step + 1,
                        loss_sum=state.loss_sum + n * loss,
                        loss_count=state.loss_count + n,
                    )
                tick(n, f"epoch {epoch + 1}/{run.epochs}  loss {loss:.3f}")
                if every and self.state.step % every == 0 and self.state.batch < len(self.plan):
                    self._require_finite()
                    self._save()
            self._require_finite()
            if not evaluates:
                self.state = replace(self.state, epoch=epoch + 1, batch=0)
            if not evaluates or ranks.world > 1:
                self._save()  # a rank that is interrupted in the evaluation leaves alone
        if evaluates:
            self._evaluate()

    def _evaluate(self) -> None:
        """End an epoch: add a line of metrics, choose the best epoch so far, save a checkpoint."""
        try:
            self.tested = self.measure(self.ready.query)
            validation = self.validate(self.tested).metrics
        except inference.EmbeddingsNotFinite as error:
            raise self._not_finite(self.state.batch) from error
        run, state = self.run, self.state
        epoch, loss = state.epoch + 1, state.loss_sum / state.loss_count
        line: dict[str, Any] = {"epoch": epoch, "step": state.step, "loss": loss}
        line |= self.tested.metrics
        line |= {"validation": validation} if validation else {}
        state = replace(
            state, epoch=epoch, batch=0, loss_sum=0.0, loss_count=0, history=(*state.history, line)
        )
        if run.report_epoch != "last":
            scores = [past.get("validation", past)[run.best_by] for past in state.history]
            *earlier, score = scores
            if score > max(earlier, default=-1.0):
                state = replace(state, best_epoch=epoch, best_step=state.step)
        if self.ranks.first:
            run_folder.write_metrics(self.folder, state.history)
        self.tensorboard(line)
        self.progress.say(self._progress_line(line))
        self.state = state  # not before: interrupted, the evaluation is repeated
        self._save()

    def _progress_line(self, line: dict[str, Any]) -> str:
        """An epoch's loss, metrics and times for people."""
        epoch, epochs = line["epoch"], self.run.epochs
        shown = [f"epoch {epoch}/{epochs}", f"loss {line['loss']:.3f}"]
        keys = [key for key in ("accuracy", "recall@1", "map@r") if key in line]
        shown += [f"{metric_name(key)} {percent(line[key])}" for key in keys]
        elapsed = time.perf_counter() - self.began
        left = elapsed * (epochs - epoch) / epoch
        times = f"{duration(elapsed, rough=elapsed < 59.5)} elapsed"
        times += f", {duration(left, rough=True)} left" if left else ""
        return "  ".join([*shown, times])

    def measure(
        self, query: Loader | None, net: Embedder | None = None, untrained: bool = False
    ) -> Tested:
        """Retrieval and, in classification, accuracy on some images. `untrained` measures the
        backbone's features, since a new embedding layer is random; of an earlier run, all of it."""
        learner, run = self.learner, self.run
        if query is None:
            return NOT_TESTED
        gallery = self.ready.gallery if query is self.ready.query else None
        classifies = run.task == "classification" and not untrained
        predict = inference.nearest_class(run.loss, learner.proxies) if classifies else None
        images = len(query.listing) + (0 if gallery is None else len(gallery.listing))
        ks = inference.reported_ks(run)
        with self.progress.task("testing", images) as tick:
            return inference.measure(
                net or learner.net,
                query,
                gallery,
                ks=ks if 1 in ks else (1, *ks),
                features=untrained and run.init is None,
                predict=predict,
                tick=tick,
                ranks=self.ranks,
            )

    def validate(self, tested: Tested, net: Embedder | None = None) -> Tested:
        """The same for the images held out of training; `tested`, if they are the test images."""
        splits = self.ready.splits
        if self.ready.validation is not None and splits.validation is splits.query:
            return tested
        return self.measure(self.ready.validation, net)

    def _save(self) -> None:
        with uninterrupted(self.ranks):
            scaler, seconds = self.learner.scaler.state_dict(), time.perf_counter() - self.began
            state = replace(self.state, seconds=seconds, scaler=scaler)
            self.checkpoints.save(state, self.learner.tensors())
            self.saved = state.step

    def _require_finite(self) -> None:
        """Raise unless all weights are finite: a step may break them after a finite loss."""
        if not self.learner.finite():
            raise self._not_finite(self.state.batch)

    def _not_finite(self, batch: int) -> NotFinite:
        """The error for non-finite numbers in this batch (from 1) of the epoch; its files are
        written to `not_finite.txt`."""
        step, epoch = self.state.step - self.state.batch + batch, self.state.epoch + 1
        images = self.ready.train.listing.take(self.plan[batch - 1])
        files = tuple(map(str, images.paths())) or images.names
        record, more = self.folder / NOT_FINITE, ""
        with suppress(OSError):
            record.write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
            more = f"; all are listed in {record}"
        shown = some_names(files, SHOWN)
        return NotFinite(
            f"the loss is not finite in step {step} of epoch {epoch}, in a batch of "
            f"{len(files)} images ({shown}{more}); {self.checkpoints.describe_last()}: check these "
            "images, or train into another folder with lower learning rates",
            step,
            files,
        )


def require_same(run: Run, images: str, ranks: Ranks) -> None:
    """An error on every rank unless all have the same settings and fingerprint of the images."""
    given = ranks.all_gather({**encode(run), "images": images})
    for number, other in enumerate(given):
        if other != given[0]:
            got = describe_differences(given[0], other, ("on rank 0", f"on rank {number}"))
            raise ValueError(f"the processes differ, {got}: start all with the same command")


def _finished(folder: Path, run: Run, progress: Progress, ranks: Ranks) -> Result | None:
    """The result if the run is finished; an error if the folder belongs to another run.

    A run with a damaged file counts as unfinished: it is written again from the checkpoint.
    """
    result = None
    if ranks.first:
        run_folder.claim(folder, run)
        result = run_folder.read_result(folder)
        if result and result.epochs != run.epochs:
            result = None  # it is extended
        for name, crc32 in result.checksums.items() if result else ():
            path = folder / name
            if not path.is_file() or checksum(path) == crc32:
                continue
            if not Checkpoints(folder / CHECKPOINT).steps():
                advice = f"restore it, or delete {folder / RESULT} to train again"
                raise TrainingFailed(f"{path} is damaged, and there is no checkpoint: {advice}")
            progress.say(f"{path} is damaged: writing it again from the checkpoint.")
            result = None
    return cast(Result | None, ranks.broadcast(result))


@contextmanager
def _first_rank_first(ranks: Ranks) -> Iterator[None]:
    """Run the block on the first rank before the others: it fills the caches that they use."""
    if not ranks.first:
        ranks.barrier()
    yield
    if ranks.first:
        ranks.barrier()


@contextmanager
def _session(folder: Path, device: torch.device, threads: int | None) -> Iterator[None]:
    """Set torch's threads, if a number is given; restore them and its random state afterwards.
    Report a full or read-only disk with the last good checkpoint."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    except CannotWrite as error:
        last_good = Checkpoints(folder / CHECKPOINT).describe_last()
        raise cannot_write(Path(error.filename), error, last_good) from error
    finally:
        torch.set_num_threads(before)
