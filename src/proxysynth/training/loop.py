"""The training loop: epochs, steps, evaluations, checkpoints, and the result at the end."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from proxysynth.data import Loader
from proxysynth.data.listing import NOTHING_TESTED
from proxysynth.distributed.data_parallel import note_on_processes, shared_batches
from proxysynth.distributed.process_group import Ranks, join_process_group, own_device
from proxysynth.errors import Damaged, NotFinite, TrainingFailed, cannot_write, first_line
from proxysynth.files import UNFINISHED, CannotWrite, locked
from proxysynth.formatting import duration, metric_name, percent
from proxysynth.models.embedder import Embedder
from proxysynth.provenance import provenance
from proxysynth.tensor_files import checksum, entry, read_tensors, write_tensors
from proxysynth.training import inference, prepare, run_folder
from proxysynth.training.callbacks import Progress, Silent, Tick, open_tensorboard
from proxysynth.training.checkpoint import Checkpoints, Loaded, State, all_proxies
from proxysynth.training.inference import NOT_TESTED, Tested
from proxysynth.training.interrupts import Interrupted, uninterrupted
from proxysynth.training.learner import Learner
from proxysynth.training.resources import Resources, device_name, own_resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, EVALUATED, MODEL, RESULT, Result
from proxysynth.training.start import POINTS, Start, class_means, make_start
from proxysynth.values import build, describe_differences, encode

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
    if not isinstance(run, Run):
        raise ValueError(f"train takes a Run, such as default_run('photos'), got {run!r}")
    with join_process_group() as ranks:
        reporter = progress if ranks.first and progress else Silent()
        machine = own_resources(resources or Resources(), ranks)
        place = Path(folder).expanduser()
        if not all_classes:
            return _train(run, place, machine, reporter, ranks)
        if run.extended and run.report_epoch != "last":
            best = f"report_epoch={run.report_epoch!r}"
            raise ValueError(f"{best} on all classes cannot be extended: choose another folder")
        if ranks.first:
            run_folder.claim_for_all_classes(place)
        if run.init is not None and os.path.basename(run.init) == EVALUATED:
            run = replace(run, init=os.path.dirname(run.init))  # the evaluated run is resumed
        evaluated = None
        if prepare.open_splits(run).testable:
            reporter.say("First of two training runs: some classes are held out for evaluation.")
            first, earlier = run, run.init and os.path.join(run.init, EVALUATED)
            if earlier and run_folder.find_run(Path(earlier)) is not None:
                # The earlier run was trained on all classes; its evaluated one has not seen them.
                first = replace(run, init=earlier)
            evaluated = _train(first, place / EVALUATED, machine, reporter, ranks)
            reporter.say("Second training run: on all classes.")
        # Nothing is held out: what is chosen on held-out classes is taken from the evaluated run.
        run = replace(run, split=replace(run.split, unseen_fraction=0.0))
        if run.report_epoch != "last":
            epochs = run.epochs if evaluated is None else evaluated.epoch
            run = replace(run, report_epoch="last", patience=0, epochs=epochs)
        if isinstance(run.interpolate, str) and evaluated is not None:
            run = replace(run, interpolate=evaluated.interpolation.get("a"))
        elif run.interpolate == "auto":
            run = replace(run, interpolate=None)
        return _train(run, place, machine, reporter, ranks, evaluated)


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
        least = f"batch_size must be at least the number of processes, {ranks.world}"
        raise ValueError(f"{least}, got {run.batch_size}: start fewer processes, or raise it")
    with _first_rank_first(ranks):
        opened = prepare.open_splits(run)
    start = make_start(run, prepare.side_in_memory(opened))
    if ranks.first:
        run_folder.make_folder(folder)  # only now: everything that was asked for is possible
    lock = locked(folder) if ranks.first else nullcontext()
    with lock, _session(folder, device, resources.threads):
        # Again: another process may have finished it before this one held the lock.
        if (result := _finished(folder, run, progress, ranks)) is not None:
            return result
        began = time.perf_counter()
        for unfinished in folder.glob(f"{UNFINISHED}*") if ranks.first else ():  # after a kill
            with contextlib.suppress(OSError):
                unfinished.unlink()
        several = f", {ranks.world} processes" if ranks.world > 1 else ""
        progress.say(f"Training on {device_name(device)}{several}.")
        with _first_rank_first(ranks):
            ready = prepare.prepare(run, opened, start.net, resources, progress)
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
        training = _Training(run, folder, ready, start, learner, resources, progress, began)
        training.begin()
        training.run_epochs(plan)
        return training.finish(evaluated)


@dataclass
class _Training:
    """A run on its way: its parts, and the state that its steps change."""

    run: Run
    folder: Path
    ready: prepare.Prepared
    start: Start
    learner: Learner
    resources: Resources
    progress: Progress
    began: float
    tested: Tested | None = None  # the last evaluation, if the weights are still those

    def begin(self) -> None:
        """Record the run, and load its newest intact checkpoint or start from scratch."""
        learner, ready = self.learner, self.ready
        ranks = self.ranks = learner.ranks
        self.checkpoints = Checkpoints(self.folder / CHECKPOINT, learner.rows, ranks)
        identity = ""
        if ranks.first:
            identity = run_folder.record_run(self.folder, self.run, ready, self.start.seen)
            self.checkpoints.drop()
        identity = ranks.broadcast(identity)
        loaded = self.checkpoints.load(identity)
        if loaded is not None:
            for fault in loaded.faults:
                self.progress.say(f"Skipped a damaged checkpoint: {fault}.")
            learner.load(loaded.tensors, loaded.state.scaler)
            state = loaded.state
            self.progress.say(f"Resuming after epoch {state.epoch}, step {state.step}.")
        else:
            if self.start.earlier is not None:
                drawn = learner.proxies.detach()
                drawn.copy_(self.start.proxies(drawn, ready, learner.rows, ranks))
            before = self._measure(ready.query, untrained=True)
            state = State(identity, untrained=before.metrics)
        self.state, self.saved = state, state.step
        self.began -= state.seconds  # of earlier sessions
        if ranks.first:
            run_folder.rewrite_metrics(self.folder, state.history)
        wanted = self.resources.tensorboard and ranks.first
        self.tensorboard = open_tensorboard(self.folder, wanted, state.step)

    def run_epochs(self, first: list[Any]) -> None:
        """All epochs that are left; `first` are the batches of one, as many as in every other. A
        signal ends them with a checkpoint."""
        run, state = self.run, self.state
        sampler, labels = prepare.make_sampler(run), self.ready.train.listing.labels
        per_epoch = sum(map(len, first))
        done = state.epoch * per_epoch + sum(map(len, first[: state.batch]))
        task = self.progress.task("training", run.epochs * per_epoch, done)
        try:
            with task as tick:
                for epoch in range(state.epoch, run.epochs):
                    best = self.state.best_epoch or run.epochs
                    since = sum(line["epoch"] > best for line in self.state.history)
                    if run.patience and since >= run.patience:
                        say = f"No improvement in {run.patience} evaluations: stopping early."
                        self.progress.say(say)
                        break
                    self.learner.begin_epoch(epoch)
                    if self._run_steps(sampler(labels, epoch, run.batch_size), tick):
                        tick(0, f"epoch {epoch + 1}/{run.epochs}  testing")
                        self._evaluate()
        except Interrupted:
            # All ranks are here: where one can be interrupted alone, everything is saved.
            if self.state.step > self.saved:
                with uninterrupted(self.ranks):  # the same signal may come twice
                    if self.learner.finite():
                        self._save()
            raise

    def _run_steps(self, plan: list[Any], tick: Tick) -> bool:
        """The steps of an epoch that are left; returns whether an evaluation, which then ends the
        epoch, follows."""
        run, ranks, epoch = self.run, self.ranks, self.state.epoch
        every = self.resources.checkpoint_steps
        ends = (*run.extended, run.epochs)
        evaluates = (epoch + 1) % run.evaluate_every == 0 or epoch + 1 in ends
        left = plan[self.state.batch :]
        self.indices = plan[self.state.batch - 1]  # of the last batch, for a message
        if ranks.world > 1:
            batches = shared_batches(self.ready.train, left, run.seed, epoch, ranks)
        else:
            batches = self.ready.train.batches(left, run.seed, epoch)
        with uninterrupted(ranks) if ranks.world > 1 else nullcontext():
            for batch in batches:
                with uninterrupted(ranks):
                    self.indices = batch.indices
                    loss = self.learner.step(batch, self.state.step)
                    if not math.isfinite(loss):
                        raise self._not_finite(self.state.step + 1)
                    n, state = len(batch.labels), self.state
                    self.state = replace(
                        state,
                        batch=state.batch + 1,
                        step=state.step + 1,
                        loss_sum=state.loss_sum + n * loss,
                        loss_count=state.loss_count + n,
                    )
                tick(n, f"epoch {epoch + 1}/{run.epochs}  loss {loss:.3f}")
                if every and self.state.step % every == 0 and self.state.batch < len(plan):
                    self._check()
                    self._save()
            self._check()
            if not evaluates:
                self.state = replace(self.state, epoch=epoch + 1, batch=0)
            if not evaluates or ranks.world > 1:
                self._save()  # a rank that is interrupted in the evaluation leaves alone
        return evaluates

    def _evaluate(self) -> None:
        """Add a line of metrics, choose the best epoch so far, and save a checkpoint."""
        try:
            self.tested = self._measure(self.ready.query)
            validated = self._validate(self.tested)
        except inference.EmbeddingsNotFinite as error:
            raise self._not_finite(self.state.step) from error
        run, state = self.run, replace(self.state, epoch=self.state.epoch + 1, batch=0)
        loss = state.loss_sum / state.loss_count
        line: dict[str, Any] = {"epoch": state.epoch, "step": state.step, "loss": loss}
        line |= self.tested.metrics
        line |= {"validation": validated.metrics} if validated.metrics else {}
        state = replace(state, history=(*state.history, line), loss_sum=0.0, loss_count=0)
        if run.report_epoch != "last":
            by = run.measured_best_by
            scores = [entry.get("validation", entry)[by] for entry in state.history]
            if max(scores) > max(scores[:-1], default=-1.0):
                state = replace(state, best_epoch=state.epoch, best_step=state.step)
        if self.ranks.first:
            run_folder.append_metrics(self.folder, line)
        self.tensorboard(line)
        first = "recall@1" if "recall@1" in line else "precision@1"
        keys = [key for key in ("accuracy", first, "map@r") if key in line]
        shown = [f"epoch {state.epoch}/{run.epochs}", f"loss {loss:.3f}"]
        shown += [f"{metric_name(key)} {percent(line[key])}" for key in keys]
        elapsed = time.perf_counter() - self.began
        left = elapsed * (run.epochs - state.epoch) / state.epoch
        times = f"{duration(elapsed, rough=True)} elapsed"
        times += f", {duration(left, rough=True)} left" if left else ""
        self.progress.say("  ".join([*shown, times]))
        self.state = state  # not before: interrupted, the evaluation is repeated
        self._save()

    def _measure(
        self, query: Loader | None, net: Embedder | None = None, untrained: bool = False
    ) -> Tested:
        """Retrieval and, in classification, accuracy on some images, of this network or another.
        `untrained` measures the backbone's features, since a new embedding layer is random; of an
        earlier run, the whole network."""
        learner, run = self.learner, self.run
        if query is None:
            return NOT_TESTED
        gallery = self.ready.gallery if query is self.ready.query else None
        classifies = run.task == "classification" and not untrained
        predict = inference.nearest_class(run.loss, learner.proxies) if classifies else None
        images = len(query.listing) + (0 if gallery is None else len(gallery.listing))
        task = self.progress.task if untrained else Silent().task
        with task("before training", images) as tick:
            return inference.measure(
                net or learner.net,
                query,
                gallery,
                ks=run.ks or inference.usual_ks(run.data),
                features=untrained and run.init is None,
                predict=predict,
                tick=tick,
                ranks=self.ranks,
            )

    def _validate(self, tested: Tested, net: Embedder | None = None) -> Tested:
        """The same for the images held out of training; `tested`, if they are the test images."""
        splits = self.ready.splits
        if self.ready.validation is not None and splits.validation is splits.query:
            return tested
        return self._measure(self.ready.validation, net)

    def _check(self) -> None:
        if not self.learner.finite():
            raise self._not_finite(self.state.step)

    def _save(self) -> None:
        with uninterrupted(self.ranks):
            scaler, seconds = self.learner.scaler.state_dict(), time.perf_counter() - self.began
            state = replace(self.state, seconds=seconds, scaler=scaler)
            self.checkpoints.save(state, self.learner.tensors())
            self.saved = state.step

    def _not_finite(self, step: int) -> NotFinite:
        """A non-finite loss as an error; all files of the batch are written to `NOT_FINITE`."""
        images = self.ready.train.listing.take(self.indices)
        files = tuple(map(str, images.paths())) or images.names
        record, more = self.folder / NOT_FINITE, ""
        with contextlib.suppress(OSError):
            record.write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
            more = f"; all are listed in {record}"
        shown = ", ".join(files[:SHOWN]) + (", ..." if files[SHOWN:] else "")
        return NotFinite(
            f"the loss is not finite in step {step} of epoch {self.state.epoch + 1}, in a batch of "
            f"{len(files)} images ({shown}{more}); {self.checkpoints.describe_last()}: check these "
            "images, or train into another folder with lower learning rates",
            step,
            files,
        )

    def finish(self, evaluated: Result | None) -> Result:
        """Write model, embeddings and result of the reported epoch: all ranks test, the first
        writes. See `_train` for `evaluated`."""
        run, ready, learner, ranks = self.run, self.ready, self.learner, self.ranks
        state, epoch, tested = self.state, self.state.epoch, self.tested
        seconds = time.perf_counter() - self.began
        if state.best_step not in (None, state.step):
            try:
                best = self.checkpoints.load(state.run, state.best_step)
            except Damaged as fault:
                advice = f"delete the folder {self.checkpoints.folder} to start the run over"
                raise TrainingFailed(f"the best epoch is lost: {fault}: {advice}") from fault
            learner.load_weights(cast(Loaded, best).tensors)
            epoch, tested = state.best_epoch or epoch, None
        if tested is None:
            tested = self._measure(ready.query)
        line = next(entry for entry in state.history if entry["epoch"] == epoch)
        validation = line.get("validation", {})
        net, means = learner.net, None
        interpolation: dict[str, Any] = {}
        a = run.interpolation(len(ready.splits.train.classes))
        if a is not None:
            net, tested, interpolation = self._interpolate(a, tested, validation)
            means = class_means(net, ready.tester(ready.splits.train), ranks)
        classifies, result = run.task == "classification", None
        held_out = NOT_TESTED if classifies else self._validate(tested, net)
        if ranks.first:
            (self.folder / RESULT).unlink(missing_ok=True)  # of a run that was extended
            checksums, calibration = self._write_tensors(net, means, tested, epoch), None
            if tested.metrics:
                proxies = learner.proxies.detach()
                if means is not None or learner.shards is not None:
                    proxies = read_tensors(self.folder / MODEL)[0]["proxies"]
                calibration = inference.calibrate_run(run, ready.splits, proxies, tested, held_out)
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
                data=run_folder.describe(ready.splits, self.start.seen),
                provenance=provenance(),
                notes=(*ready.splits.remarks(), *note_on_processes(learner.net, ranks)),
                checksums=checksums,
                calibration={} if calibration is None else asdict(calibration),
                interpolation=interpolation,
                backbone=run.backbone if prepare.starts_as_published(run) else "",
            )
            if evaluated is not None:
                result = _with_metrics_of(result, evaluated)
            run_folder.write_result(self.folder, result)
            self.checkpoints.drop(newest=1)  # the one before was in case the last had been lost
        return cast(Result, _shared_result(result, ranks))

    def _interpolate(
        self, a: float | Literal["auto"], trained: Tested, validation: dict[str, float]
    ) -> tuple[Embedder, Tested, dict[str, Any]]:
        """The network at an a, without a new embedding layer, its metrics, and those over a; at 1,
        where nothing is interpolated, without those. "auto" is the best a on the held-out classes.
        The layer is no candidate: its MAP@R on the few held-out classes says little about unseen
        ones. `trained` and `validation` are the metrics of the trained network."""
        run, ready, auto, best = self.run, self.ready, a == "auto", (-1.0, -1.0)
        by, pictures, points = run.measured_best_by, ready.tester(ready.splits.train), []
        chosen, tested = self.learner.net, trained
        for point in [1.0] if a == 1 else sorted({*POINTS, *([] if auto else [float(a)])}):
            net = self.start.interpolated(self.learner.net, point, pictures, run.seed)
            measured = self._measure(ready.query, net)
            held = self._measure(ready.validation if auto else None, net).metrics
            points.append({"a": point, "metrics": measured.metrics, "validation": held})
            score = held[by] if held else float(point == a)
            if (score, point) > best:
                best, chosen, tested = (score, point), net, measured
        about: dict[str, Any] = {"a": best[1], "by": by if auto else None, "points": points}
        held = validation if auto else {}
        about["trained"] = {"metrics": trained.metrics, "validation": held}
        return chosen, tested, about

    def _write_tensors(
        self, net: Embedder, means: Tensor | None, tested: Tested, epoch: int
    ) -> dict[str, int]:
        """Write network and proxies (`means`, if given; sharded ones are copied from the
        checkpoint), and the embeddings of the test images with their names and classes; returns
        the files' checksums."""
        learner, state, splits = self.learner, self.state, self.ready.splits
        about: dict[str, Any] = {"run": state.run, "epoch": epoch}
        entries = [entry(f"net.{key}", value) for key, value in net.state_dict().items()]
        if means is not None:
            several = learner.proxies.shape[1:-1]  # proxies per class, where there are several
            means = means.reshape(len(means), *(1 for _ in several), -1)
            entries.append(entry("proxies", means.expand(-1, *several, -1).contiguous()))
        elif learner.shards is None:
            entries.append(entry("proxies", learner.proxies))
        else:
            reported = state.step if state.best_step is None else state.best_step
            entries.append(all_proxies(*self.checkpoints.shards(reported)))
        checksums = {
            MODEL: write_tensors(self.folder / MODEL, entries, about),
            run_folder.METRICS: checksum(self.folder / run_folder.METRICS),
        }
        if tested.metrics:
            about |= {"classes": splits.query.classes, "query": splits.query.names}
            tensors = {"query": tested.query, "query_labels": tested.labels}
            if splits.gallery is not None:
                about["gallery"] = splits.gallery.names
                tensors["gallery"] = cast(Tensor, tested.gallery)
                tensors["gallery_labels"] = cast(Tensor, tested.gallery_labels)
            path = self.folder / run_folder.EMBEDDINGS
            checksums[run_folder.EMBEDDINGS] = write_tensors(path, tensors, about)
        return checksums


def require_same(run: Run, images: str, ranks: Ranks) -> None:
    """An error on every rank unless all have the same settings and fingerprint of the images."""
    given = ranks.all_gather({**encode(run), "images": images})
    for number, other in enumerate(given):
        if other != given[0]:
            got = describe_differences(given[0], other, ("on rank 0", f"on rank {number}"))
            same = "all processes of a run must have the same settings and images"
            raise ValueError(f"{same}, got {got}: start all with the same command")


def _finished(folder: Path, run: Run, progress: Progress, ranks: Ranks) -> Result | None:
    """The result if the run is finished; an error if the folder belongs to another run.

    A finished run with a damaged file is to be finished again, from its checkpoint.
    """
    result = None
    if ranks.first:
        run_folder.claim(folder, run)
        result = run_folder.read_result(folder)
        if result and result.epochs != run.epochs:
            result = None  # it is extended
        paths = {folder / name: crc32 for name, crc32 in result.checksums.items()} if result else {}
        damaged = [path for path in paths if path.is_file() and checksum(path) != paths[path]]
        if damaged:
            fault = f"{damaged[0]} is damaged"
            if not Checkpoints(folder / CHECKPOINT).steps():
                advice = f"restore it, or delete {folder / RESULT} to train again"
                raise TrainingFailed(f"{fault}, and there is no checkpoint: {advice}")
            progress.say(f"{fault}: writing it again from the checkpoint.")
            result = None
    return _shared_result(result, ranks)


def _with_metrics_of(result: Result, evaluated: Result) -> Result:
    """The result of a run on all classes, with all that the evaluated one measured."""
    trained = result.data["train"]
    note = (
        f"The model was trained on all classes ({trained['classes']}, {trained['pictures']} "
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


def _shared_result(result: Result | None, ranks: Ranks) -> Result | None:
    """The first rank's result, on every rank."""
    if ranks.world == 1:
        return result
    fields = ranks.broadcast(result and asdict(result))
    return fields and build(Result, fields, {})


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
        why += f", {100 * interpolation['a']:g} % of the way from the network before "
        why += "training to the trained one"
        why += f", chosen on {held_out}" if interpolation["by"] else ""
    return why


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
    Report a full or read-only disk, or too little memory, in one sentence."""
    before, last_good = torch.get_num_threads(), Checkpoints(folder / CHECKPOINT).describe_last
    torch.set_num_threads(threads or before)
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    except CannotWrite as error:
        raise cannot_write(Path(error.filename), error, last_good()) from error
    except (MemoryError, RuntimeError) as error:
        # torch has its own exception for GPUs, and none for CPUs.
        named = isinstance(error, (MemoryError, torch.OutOfMemoryError))
        if not named and "can't allocate memory" not in str(error):
            raise
        raise TrainingFailed(
            f"out of memory ({first_line(error)}); {last_good()}: choose a smaller batch_size, "
            "image_size or backbone"
        ) from error
    finally:
        torch.set_num_threads(before)
