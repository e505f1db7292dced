"""Checkpoints: a folder each, written so that a kill at any moment leaves the last good one.

    checkpoint/step-000000480/tensors.safetensors    weights, proxies, optimizer state
    checkpoint/step-000000480/proxies-0-of-2...      rows of sharded proxies, a file per rank
    checkpoint/step-000000480/state.json             the position in the run, and all checksums

A checkpoint is written under another name, flushed to disk and renamed; only then are older ones
deleted. The last two are kept, so that a damaged one costs an epoch and not the run. Each rank
writes its own rows of sharded proxies, and any number of ranks can read them. Nothing is unpickled:
reading a checkpoint cannot run code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, cast

import safetensors
import torch
from torch import Tensor

from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.errors import Damaged, TrainingFailed, WrongFolder, cannot_write, newer_version
from proxysynth.files import UNFINISHED, seal, sync_folder, write_new
from proxysynth.tensor_files import checksum, read_tensors, write_stream
from proxysynth.values import build

FORMAT = 2  # 1, of earlier versions, has no shards
KEPT = 2  # newest checkpoints
NAME = re.compile(r"step-(\d{9,})")


@dataclass(frozen=True)
class State:
    """The position in a run. With the tensors, all that is needed to resume."""

    run: str  # its identity, as its `run.json` has it
    epoch: int = 0  # completed epochs
    batch: int = 0  # completed batches of the next epoch
    step: int = 0  # optimizer steps in all
    loss_sum: float = 0.0  # over the images since the last evaluation
    loss_count: int = 0
    history: tuple[dict[str, Any], ...] = ()  # evaluations so far, the lines of `metrics.jsonl`
    # Of the best evaluation so far; None before the first, or where the last epoch is reported.
    best_epoch: int | None = None
    best_step: int | None = None
    untrained: dict[str, float] = field(default_factory=dict)  # metrics before the first step
    scaler: dict[str, Any] = field(default_factory=dict)  # empty unless training in float16
    seconds: float = 0.0  # spent on the run so far


class Loaded(NamedTuple):
    """A checkpoint from disk, and why newer ones were skipped."""

    state: State
    tensors: dict[str, Tensor]
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in its folder `checkpoint`.

    With sharded proxies, each rank writes and reads its own `rows`. Without (None), the first rank
    writes and reads everything.
    """

    folder: Path
    rows: range | None = None
    ranks: Ranks = ALONE

    def save(self, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Save this state, then delete the checkpoints that it replaces."""
        if self.rows is None and not self.ranks.first:
            return
        place = self.folder / step_name(state.step)
        unfinished = self.folder / f"{UNFINISHED}{place.name}"
        try:
            self._write(unfinished, state, tensors)
            if self.ranks.first:
                if place.exists():  # it was damaged, or an evaluation has been added
                    shutil.rmtree(place)
                os.rename(unfinished, place)
                sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise cannot_write(place, error, self.describe_last()) from error
        if self.ranks.first:
            self.drop()

    def _write(self, folder: Path, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Write the files of a checkpoint: this rank's rows, and on the first rank all others."""
        rows, ranks = self.rows, self.ranks
        if ranks.first:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        own, shards = {}, []
        if rows is not None:
            ranks.barrier()  # until the folder is there
            # The proxies and their optimizer state, except its step count.
            names = [k for k in tensors if k == "proxies" or k.startswith("optimizer.proxies.")]
            own = {name: tensors[name] for name in names if tensors[name].ndim}
            file = f"proxies-{ranks.rank}-of-{ranks.world}.safetensors"
            crc32 = write_stream(folder / file, own, {})
            shards = ranks.all_gather(asdict(ShardFile(file, rows.start, rows.stop, crc32)))
        if ranks.first:
            rest = {name: tensor for name, tensor in tensors.items() if name not in own}
            crc32 = write_stream(folder / "tensors.safetensors", rest, {})
            fields = {"tensors_crc32": crc32, **asdict(state), "shards": shards}
            about = {"format": FORMAT, "crc32": seal(fields), "state": fields}
            write_new(folder / "state.json", json.dumps(about).encode())
            sync_folder(folder)

    def load(self, run: str, step: int | None = None) -> Loaded | None:
        """The newest intact checkpoint of the run with this identity, or that of a step, on every
        rank; None if there is none.

        A checkpoint that is damaged for any rank is skipped for the one before. It is an error if
        all are damaged, or if one belongs to another run.
        """
        ranks = self.ranks
        faults: list[str] = []
        # Without rows the first rank sends what it reads: the others need not have the folder.
        reads = ranks.first or self.rows is not None
        for number in reversed(ranks.broadcast(self.steps() if step is None else [step])):
            loaded, fault = None, ""
            try:
                loaded = self.read(number, run) if reads else None
            except Damaged as error:
                fault = str(error)
            if any(found := ranks.all_gather(fault)):
                faults.append(next(filter(None, found)))
                continue
            if self.rows is None:
                state, names = ranks.broadcast(loaded and (loaded.state, list(loaded.tensors)))
                held = loaded.tensors if loaded else {}
                loaded = Loaded(state, {name: ranks.broadcast(held.get(name)) for name in names})
            return cast(Loaded, loaded)._replace(faults=tuple(faults))
        if not faults:
            return None
        damaged = f"no checkpoint in {self.folder} can be read ({'; '.join(faults)})"
        raise TrainingFailed(f"{damaged}: restore the files, or delete the folder to start over")

    def read(self, step: int, run: str) -> Loaded:
        """One checkpoint of the run with this identity; `Damaged` if it is not intact."""
        place = self.folder / step_name(step)
        state, check, shards = _state(place)
        if state.run != run:
            other = f"{place} belongs to another run ({state.run})"
            raise WrongFolder(f"{other}: restore the checkpoints, or delete them to start over")
        try:
            tensors, _ = read_tensors(place / "tensors.safetensors", check)
        except TrainingFailed as error:
            raise Damaged(f"{place.name} has no intact tensors.safetensors") from error
        return Loaded(state, {**tensors, **read_rows(place, shards, self.rows)})

    def all_proxies(self, step: int) -> Tensor:
        """The sharded proxies of a checkpoint in one tensor."""
        place = self.folder / step_name(step)
        return read_rows(place, _state(place)[2], None, ["proxies"])["proxies"]

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, in order."""
        entries = os.listdir(self.folder) if self.folder.is_dir() else []
        return sorted(int(match[1]) for match in map(NAME.fullmatch, entries) if match)

    def drop(self, newest: int = KEPT) -> None:
        """Delete unfinished checkpoints, and all but the newest ones and their best ones."""
        kept = {step_name(step) for step in self.steps()[-newest:]}
        for name in tuple(kept):
            with suppress(Damaged, WrongFolder):
                if (best := _state(self.folder / name)[0].best_step) is not None:
                    kept.add(step_name(best))
        for entry in os.listdir(self.folder) if self.folder.is_dir() else ():
            if entry.startswith(UNFINISHED) or (NAME.fullmatch(entry) and entry not in kept):
                shutil.rmtree(self.folder / entry, ignore_errors=True)

    def describe_last(self) -> str:
        steps = self.steps()
        if not steps:
            return "there is no checkpoint yet"
        return f"the last good checkpoint is {self.folder / step_name(steps[-1])}"


def step_name(step: int) -> str:
    return f"step-{step:09d}"


def _state(place: Path) -> tuple[State, int, list[ShardFile]]:
    """A checkpoint's state, the checksum of its tensors, and its files of sharded proxies."""
    try:
        file = json.loads((place / "state.json").read_bytes())
        version = file["format"]
        if isinstance(version, int) and version > FORMAT:
            raise newer_version(place, version, FORMAT)
        fields = dict(file["state"])
        if file["crc32"] != seal(fields):
            raise KeyError("crc32")
        check = fields.pop("tensors_crc32")
        shards = [ShardFile(**shard) for shard in fields.pop("shards", ())]
        return build(State, fields, {}), check, shards
    except WrongFolder:
        raise
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{place.name} has no intact state.json") from error


@dataclass(frozen=True)
class ShardFile:
    """The file of a checkpoint, beside `state.json`, with rows start to stop of the proxies."""

    name: str
    start: int
    stop: int
    crc32: int


def read_rows(
    folder: Path, files: Sequence[ShardFile], rows: range | None, names: Sequence[str] = ()
) -> dict[str, Tensor]:
    """These rows (None: all) of the tensors with these names (default: all) in the files."""
    pieces = defaultdict[str, list[Tensor]](list)
    for file in files:
        low = file.start if rows is None else max(file.start, rows.start)
        high = file.stop if rows is None else min(file.stop, rows.stop)
        if low >= high:
            continue
        own = slice(low - file.start, high - file.start)
        try:
            if checksum(folder / file.name) != file.crc32:
                raise ValueError("the checksum differs")
            with safetensors.safe_open(folder / file.name, framework="pt") as held:
                for name in names or held.keys():
                    pieces[name].append(held.get_slice(name)[own])
        except (OSError, ValueError, safetensors.SafetensorError) as error:
            raise Damaged(f"{folder.name} has no intact {file.name}") from error
    return {name: torch.cat(parts) for name, parts in pieces.items()}


def part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {key.removeprefix(prefix): t for key, t in tensors.items() if key.startswith(prefix)}
