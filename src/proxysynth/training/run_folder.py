"""The folder of a run: its files, and which run it belongs to.

run.json                 the run, written first; its data and classes
metrics.jsonl            a line of JSON per evaluation, readable while the run is training
checkpoint/              see `checkpoint`
model.safetensors        weights and proxies of the reported epoch
embeddings.safetensors   of the test images at that epoch, with labels, names and classes
result.json              written last, so it marks a finished run
evaluated/               where the run is trained on all classes: the folder of the run that did not
                         see the test classes, whose metrics the result has
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from proxysynth.data import Splits
from proxysynth.data.folders import existing_folder
from proxysynth.data.listing import NOTHING_TESTED
from proxysynth.errors import TrainingFailed, WrongFolder, cannot_write, newer_version
from proxysynth.files import LOCK, UNFINISHED, check_seal, write_bytes, write_sealed
from proxysynth.formatting import and_join, count, metric_keys, metric_name, percent
from proxysynth.provenance import provenance
from proxysynth.training.checkpoint import Checkpoints
from proxysynth.training.prepare import Prepared, resized_side
from proxysynth.training.run import KINDS, Run
from proxysynth.values import KIND, build, describe_differences, encode

FORMAT = 1  # of run.json and result.json
MOST_PIXELS = 2**14  # the side of an image that a network is given
RUN, RESULT, METRICS = "run.json", "result.json", "metrics.jsonl"
MODEL, EMBEDDINGS = "model.safetensors", "embeddings.safetensors"
CHECKPOINT, EVALUATED, REPORT = "checkpoint", "evaluated", "report.html"


@dataclass(frozen=True)
class Recorded:
    """The content of a `run.json`."""

    run: Run
    identity: str  # its hash at its start, as the version that wrote the file computed it
    data: dict[str, Any]  # see `describe`
    classes: tuple[str, ...]  # names of the seen classes, in the order of the proxies
    image_size: int  # side of the central square that is cropped from an image
    short_side: int  # to which the image's short side is resized before
    # Of an `hf:` backbone, so that it can be built without its folder; else None.
    architecture: dict[str, Any] | None = None
    earlier: tuple[str, ...] = ()  # classes that the weights it started from had been trained on

    @property
    def all_seen(self) -> tuple[str, ...]:
        """The classes that the network has been trained on, here or before."""
        return tuple(dict.fromkeys((*self.classes, *self.earlier)))


def read_run(folder: str | os.PathLike[str]) -> Recorded:
    """The content of the folder's `run.json`; an error if it has none."""
    found = find_run(Path(folder))
    if found is None:
        advice = "give a folder that `proxysynth train` wrote"
        raise WrongFolder(f"{existing_folder(folder, advice)} is not the folder of a run: {advice}")
    return found


def find_run(folder: Path) -> Recorded | None:
    """The content of the folder's `run.json`; None if there is none."""
    path = Path(os.path.expanduser(folder)) / RUN
    found: Recorded | None = _read(path, Recorded, WrongFolder, "choose another folder")
    if found and not all(0 < n <= MOST_PIXELS for n in (found.image_size, found.short_side)):
        raise WrongFolder(f"{path} is damaged (its images are too large): choose another folder")
    return found


def _read(path: Path, kind: type, error: type[ValueError], advice: str) -> Any:
    """The value in a file that `write_sealed` wrote, with its fields in their declared types; None
    if there is no such file."""
    try:
        fields = json.loads(path.read_bytes())
        version = fields["format"]
        newer = version > FORMAT
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as cause:
        raise error(f"{path} is damaged or unreadable: {advice}") from cause
    if newer:
        raise newer_version(path, version, FORMAT)
    check_seal(path, fields)
    try:
        known = {f.name: fields[f.name] for f in dataclasses.fields(kind) if f.name in fields}
        return build(kind, known, KINDS)
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as cause:
        raise error(f"{path} is damaged ({cause}): {advice}") from cause


def write_run(folder: Path, recorded: Recorded) -> None:
    fields = {name: value for name, value in encode(recorded).items() if value not in (None, [])}
    del fields[KIND]
    write_sealed(folder / RUN, {"format": FORMAT, **fields, "provenance": provenance()})


def record_run(folder: Path, run: Run, ready: Prepared, earlier: tuple[str, ...]) -> str:
    """Write `run.json`, or check that the data still matches it; returns the identity."""
    recorded, data = claim(folder, run), describe(ready.splits, earlier)
    if recorded is None:
        size, train = ready.net.image_size, ready.splits.train
        side = resized_side(run, ready.net, in_memory=train.root is None)
        architecture = getattr(ready.net.backbone, "architecture", None)
        fixed = (train.classes, size, side, architecture, earlier)
        recorded = Recorded(run, run.identity, data, *fixed)
        write_run(folder, recorded)
    elif recorded.data["fingerprint"] != data["fingerprint"]:
        changed = f"the images of {run.data} have changed since the run in {folder} started"
        raise WrongFolder(f"{changed}: restore them, or choose another folder")
    elif recorded.run != run:  # it is extended
        write_run(folder, replace(recorded, run=run))
    return recorded.identity


def describe(splits: Splits, earlier: tuple[str, ...] = ()) -> dict[str, Any]:
    """Name, hashes, how many test classes are also trained on (`earlier`: before this run), and
    images and classes of each part. Runs with the same `test_fingerprint` can be compared."""
    seen = {*splits.train.classes, *earlier}
    about: dict[str, Any] = {
        "name": splits.name,
        "fingerprint": splits.fingerprint(),
        "test_fingerprint": replace(splits, train=splits.query, validation=None).fingerprint(),
        "shared_classes": len(seen & set(splits.query.classes)),
    }
    for name, part in splits.parts.items():
        about[name] = {"pictures": len(part), "classes": len(part.classes)}
    return about


def claim(folder: Path, run: Run) -> Recorded | None:
    """Make sure that the folder is free, holds this run or one that this run extends; returns its
    `run.json`.

    A folder with other files is not free: `--out ~/Pictures` is a mistake. One whose run failed
    before it learned anything is free. The lock tells whether another process is training into it.
    """
    found = find_run(folder)
    if found is not None:
        if not _has_learned(folder):
            return None
        # Interpolation comes after training, so it may change where a run is extended.
        earlier = replace(found.run, interpolate=run.interpolate)
        extends = run.epochs > earlier.epochs and run == earlier.extend(run.epochs)
        kept = {name: getattr(earlier, name) for name in ("epochs", "warmup_epochs", "extended")}
        differs = found.run != run and not extends
        same_end = run.epochs == earlier.epochs and run.extended != earlier.extended
        longer = run.epochs > earlier.epochs or same_end
        whole = folder.parent if folder.name == EVALUATED else folder
        if differs and longer and replace(run, **kept) == earlier:
            steps = [count(epochs, "epoch") for epochs in (*earlier.extended, earlier.epochs)]
            advice = f"use `proxysynth train --resume --out {whole} --epochs {run.epochs}`"
            raise WrongFolder(
                f"{whole} holds this run with {', extended to '.join(steps)}: {advice}, or in "
                "Python Run.extend"
            )
        if differs:
            resume = f"`proxysynth train --resume --out {whole}`"
            other = f"{folder} holds another run ({describe_differences(found.run, run)})"
            raise WrongFolder(f"{other}: choose another folder, or resume it with {resume}")
        return found
    ours = (LOCK, EVALUATED) if find_run(folder / EVALUATED) else (LOCK,)
    entries = sorted(os.listdir(folder)) if folder.is_dir() else []
    others = [name for name in entries if name not in ours and not name.startswith(UNFINISHED)]
    if others:
        raise WrongFolder(f"{folder} holds other files ({others[0]!r}): choose another folder")
    return None


def claim_for_all_classes(folder: Path) -> None:
    """Make sure that the folder is free or holds a run on all classes, before the first of its two
    trainings; `claim` compares the settings."""
    found = find_run(folder)
    if found is None:
        claim(folder, Run())  # whichever run
    elif found.run.split.unseen_fraction != 0 and _has_learned(folder):
        raise WrongFolder(f"{folder} holds a run on some classes only: choose another folder")


def _has_learned(folder: Path) -> bool:
    """Whether there are weights that would be lost."""
    files = any((folder / name).exists() for name in (MODEL, RESULT))
    return files or bool(Checkpoints(folder / CHECKPOINT).steps())


def make_folder(folder: Path) -> None:
    """Create a folder with its parents, if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error, "nothing was changed") from error


COMPARED = ("accuracy", "recall@1", "r_precision", "map@r")  # in the verdict
LEAST_CHANGE = 0.005  # a smaller one says nothing about other classes


@dataclass(frozen=True)
class Result:
    """The result of a run. Metrics are fractions in [0, 1]."""

    run: str  # the run's identity
    metrics: dict[str, float]  # on the classes never seen in training; empty if nothing was tested
    untrained: dict[str, float]  # the same for the backbone's features before the first step
    epoch: int  # the reported one, counted from 1
    epochs: int  # of the run
    chosen: str  # how the epoch was chosen: "last", "best" or "best_on_test"
    why: str  # the same in words
    validation: dict[str, float] = field(default_factory=dict)  # metrics on held-out seen classes
    seconds: float = 0.0  # spent on the run, over all its sessions
    device: str = ""  # what it was trained on
    data: dict[str, Any] = field(default_factory=dict)  # see `describe`
    provenance: dict[str, str] = field(default_factory=dict)  # commit, machine, versions, date
    notes: tuple[str, ...] = ()  # sentences about the data and the processes
    checksums: dict[str, int] = field(default_factory=dict)  # CRC-32 of the other files, by name
    calibration: dict[str, Any] = field(default_factory=dict)  # a `retrieval.Calibration`, if any
    # Empty if the trained network is saved as it is; else its "a", the metric "by" which that was
    # chosen, and the metrics, and those of held-out classes ("validation"), at all "points" and of
    # the "trained" network with its embedding layer.
    interpolation: dict[str, Any] = field(default_factory=dict)
    # Of a run on all classes: the identity of the run in the folder `evaluated`, which measured.
    evaluated: str = ""
    backbone: str = ""  # if `proxysynth index` can use it untrained, as this run started from it

    def __post_init__(self) -> None:
        # A file may hold anything; the fields' own types were checked when it was read.
        for part in self.data.values():
            if isinstance(part, dict) and not all(type(n) is int for n in part.values()):
                raise ValueError(f"expected numbers of images and classes, got {part!r}")
        if not set(self.checksums) <= {MODEL, EMBEDDINGS, METRICS}:
            raise ValueError(f"unknown files {sorted(self.checksums)}")
        if held := self.interpolation:
            for point in (*held["points"], {**held["trained"], "a": held["a"] or 0.0}):
                numbers = {**point["metrics"], "a": point["a"]}
                for value in (*numbers.values(), *point["validation"].values()):
                    float(value)

    @property
    def changes(self) -> dict[str, float]:
        """By how much training raised each metric that the verdict may praise."""
        before, after = self.untrained, self.metrics
        return {key: after[key] - before[key] for key in COMPARED if key in after and key in before}

    @property
    def worse(self) -> tuple[str, ...]:
        """The metrics that training lowered by more than `least_change`."""
        before, after, least = self.untrained, self.metrics, self.least_change
        return tuple(k for k in metric_keys(after) if before.get(k, 0) - after[k] > least)

    @property
    def least_change(self) -> float:
        """The largest change of a metric that shows nothing: `LEAST_CHANGE`, or one image."""
        images = self.data.get("query", {}).get("pictures", 0)
        return max(LEAST_CHANGE, 1.5 / images) if images else LEAST_CHANGE

    @property
    def better_backbone(self) -> str:
        """The backbone to use instead, if training only made it worse; else empty."""
        helped = any(gain > self.least_change for gain in self.changes.values())
        return self.backbone if self.worse and not helped else ""

    @property
    def tested(self) -> str:
        """Which classes the metrics are about: unseen ones, or other images of the seen ones."""
        shared = self.data.get("shared_classes", 0)
        if "accuracy" in self.metrics or (0 < shared == self.data["query"]["classes"]):
            return "seen classes"
        return "seen and unseen classes" if shared else "unseen classes"

    @property
    def _helps(self) -> str:
        """What may give a better result."""
        new = "" if self.interpolation.get("by") else "with `--set interpolate=auto`, "
        layer = "with `--set dim=none` (no embedding layer), "
        return f"train again {new}{layer}with other `--epochs` or with more classes"

    @property
    def verdict(self) -> str:
        """Trained against untrained, in one sentence, and what to do if training did not help."""
        if not self.metrics:
            return NOTHING_TESTED

        def change(key: str) -> str:
            return f"{metric_name(key)} from {percent(before[key])} to {percent(after[key])}"

        before, after = self.untrained, self.metrics
        better = [key for key, gain in self.changes.items() if gain > self.least_change]
        lowered, raised = and_join(map(change, self.worse)), and_join(map(change, better))
        tested, images = self.tested, self.data.get("query", {}).get("pictures", 0)
        if 0 < images < 1 / LEAST_CHANGE:
            one = f"one image counts for {percent(1 / images)} points"
            tested += f" ({count(images, 'image')}, so {one})"
        if not lowered and not raised:
            same = f"changed no metric on {tested} by more than {percent(self.least_change)} points"
            alone = f" {self.backbone} alone may be enough." if self.backbone else ""
            return f"Training {same}.{alone}"
        if not lowered:
            return f"On {tested}, training raised {raised}."
        if raised:
            mixed = f"it lowered {lowered}, and raised {raised}. It may help to {self._helps}."
            return f"Training had mixed results on {tested}: {mixed}"
        made_worse = f"Training made the results on {tested} worse: it lowered {lowered}"
        if not self.backbone:  # nothing else to use
            return f"{made_worse}. It may help to {self._helps}."
        instead = f"the network before training, {self.backbone}, is better"
        return f"{made_worse}, so {instead}. Use that, or {self._helps}."

    def to_json(self) -> dict[str, Any]:
        fields = {"format": FORMAT, **asdict(self)}
        return {**fields, "made_worse": bool(self.worse), "verdict": self.verdict}


def write_result(folder: Path, result: Result) -> None:
    write_sealed(folder / RESULT, result.to_json())


def read_result(folder: Path) -> Result | None:
    """The result of a run; None if it is not finished."""
    advice = "delete it and rerun, which writes it again"
    return cast(Result | None, _read(folder / RESULT, Result, TrainingFailed, advice))


def write_metrics(folder: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    text = "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in lines)
    write_bytes(folder / METRICS, text.encode())


def read_metrics(folder: Path, crc32: int | None = None) -> list[dict[str, Any]]:
    """The evaluations of a run, even while it is training; a finished one knows the file's `crc32`.
    An incomplete last line, of earlier versions, is skipped."""
    path = folder / METRICS
    try:
        data = path.read_bytes()
        if crc32 is not None and zlib.crc32(data) != crc32:
            raise ValueError("it does not match its checksum")
        return [dict(json.loads(line)) for line in data.split(b"\n")[:-1]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, RecursionError) as error:
        raise TrainingFailed(f"{path} is damaged ({error}): restore it") from error
