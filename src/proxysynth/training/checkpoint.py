"""Checkpoints: a folder each, written so that a kill at any moment leaves the last good one.

    checkpoint/step-000000480/tensors.safetensors    weights, proxies, the optimizer's memory
    checkpoint/step-000000480/proxies-0-of-2...      rows of sharded proxies, a file per rank
    checkpoint/step-000000480/state.json             where the run is, and checksums of them all

A checkpoint is written under another name, pushed to the disk and renamed; only then do older ones
go. The last two stay, so that one damaged on the disk costs an epoch and not the run. Nothing here
is ever unpickled: reading a checkpoint cannot run code.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
from torch import Tensor

from proxysynth.distributed.process_group import ALONE, Ranks
from proxysynth.distributed.sharded_checkpoint import (
    BrokenShard,
    ShardFile,
    is_of_proxies,
    read_rows,
    write_shard,
)
from proxysynth.errors import TrainingFailed, WrongFolder, cannot_write
from proxysynth.files import UNFINISHED, sync_folder, write_new

FORMAT = 2  # with shards; without, what is written is still format 1
KEPT = 2  # of the newest checkpoints
NAME = re.compile(r"step-(\d{9,})")


@dataclass(frozen=True)
class State:
    """Where a run is. With the tensors, all that is needed to go on.

    Args:
        run: the run's identity, as its `run.json` has it.
        epoch: how many epochs are over.
        batch: how many batches of the next one are.
        step: how many steps of the optimizer in all.
        loss_sum, loss_count: of the pictures since the last evaluation.
        history: the evaluations so far, the lines of `metrics.jsonl`.
        best_epoch, best_step: of the best evaluation so far; None before the first, or where the
            last epoch counts anyway.
        untrained: the metrics of the backbone before the first step.
        scaler: the memory of mixed precision; mostly empty.
        seconds: spent on the run so far.
    """

    run: str
    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    loss_count: int = 0
    history: tuple[dict[str, Any], ...] = ()
    best_epoch: int | None = None
    best_step: int | None = None
    untrained: dict[str, float] = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def after_step(self, loss: float, pictures: int) -> State:
        """The state after one more batch of so many pictures."""
        return replace(
            self,
            batch=self.batch + 1,
            step=self.step + 1,
            loss_sum=self.loss_sum + pictures * loss,
            loss_count=self.loss_count + pictures,
        )


class Loaded(NamedTuple):
    """A checkpoint from disk, and what was wrong with newer ones."""

    state: State
    tensors: dict[str, Tensor]
    faults: tuple[str, ...] = ()


class Damaged(Exception):
    """A checkpoint that is not what was written."""


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, in its folder `checkpoint`.

    Args:
        folder: where they are.
        rows: of sharded proxies, those of this rank: each writes and reads its own. None where
            the first rank writes all of them; then all are read, too.
        ranks: who train the run.
    """

    folder: Path
    rows: range | None = None
    ranks: Ranks = ALONE

    def save(self, state: State, tensors: Mapping[str, Tensor]) -> None:
        """Keep this state; afterwards, drop the ones that it replaces."""
        rows, ranks = self.rows, self.ranks
        if rows is None and not ranks.first:
            return
        place = self.folder / step_name(state.step)
        unfinished = self.folder / f"{UNFINISHED}{place.name}"
        own = {k: t for k, t in tensors.items() if rows is not None and is_of_proxies(k, t)}
        try:
            if ranks.first:
                self.folder.mkdir(parents=True, exist_ok=True)
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
            shards = []
            if rows is not None:
                ranks.wait()  # for the folder
                mine = write_shard(unfinished, own, rows, ranks.rank, ranks.world)
                shards = [ShardFile(**told) for told in ranks.ask(asdict(mine))]
            if ranks.first:
                rest = {k: t.detach().contiguous() for k, t in tensors.items() if k not in own}
                data = safetensors.torch.save(rest)
                write_new(unfinished / "tensors.safetensors", data)
                write_new(unfinished / "state.json", _state_bytes(state, zlib.crc32(data), shards))
                sync_folder(unfinished)
                if place.exists():  # damaged: one before it was resumed from
                    shutil.rmtree(place)
                os.rename(unfinished, place)
                sync_folder(self.folder)
        except OSError as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise cannot_write(place, error, self.describe_last()) from error
        if ranks.first:
            self.drop()

    def load(self, run: str) -> Loaded | None:
        """The newest whole checkpoint of the run of this identity; None where there is none yet.

        A damaged one is passed over for the one before; where all are damaged, or one is of another
        run, an error says so. Of ranks that read rows, what is damaged for one is so for all.
        """
        ranks = ALONE if self.rows is None else self.ranks
        faults: list[str] = []
        for step in reversed(ranks.tell(self.steps())):
            loaded, fault = None, None
            try:
                loaded = self.read(step, run)
            except Damaged as error:
                fault = str(error)
            told = next((told for told in ranks.ask(fault) if told is not None), None)
            if loaded is not None and told is None:
                return loaded._replace(faults=tuple(faults))
            faults.append(str(told))
        if faults:
            raise TrainingFailed(
                f"no checkpoint in {self.folder} can be read ({'; '.join(faults)}): put back what "
                "is missing, or delete the folder to begin the run again"
            )
        return None

    def read(self, step: int, run: str) -> Loaded:
        """One checkpoint of the run of this identity; `Damaged` if it is not whole."""
        place = self.folder / step_name(step)
        state, check, shards = _state(place)
        if state.run != run:
            raise WrongFolder(
                f"the checkpoint {place} belongs to another run ({state.run}, expected {run}): "
                "put the right one back, or delete the folder to begin again"
            )
        try:
            data = (place / "tensors.safetensors").read_bytes()
            if zlib.crc32(data) != check:
                raise Damaged(f"the tensors of {place.name} are not those that were written")
            tensors = safetensors.torch.load(data)
        except (OSError, safetensors.SafetensorError) as error:
            raise Damaged(f"{place.name} has no whole tensors.safetensors") from error
        try:
            return Loaded(state, {**tensors, **read_rows(place, shards, self.rows)})
        except BrokenShard as fault:
            raise Damaged(str(fault)) from fault

    def shards(self, step: int) -> tuple[Path, list[ShardFile]]:
        """Where a checkpoint's rows of proxies are; no files where they are not sharded."""
        place = self.folder / step_name(step)
        return place, _state(place)[2]

    def steps(self) -> list[int]:
        """The steps that have a checkpoint, rising."""
        if not self.folder.is_dir():
            return []
        found = (NAME.fullmatch(entry) for entry in os.listdir(self.folder))
        return sorted(int(match[1]) for match in found if match)

    def drop(self, newest: int = KEPT) -> None:
        """Delete what is unfinished, and all but the newest and what these call the best."""
        if not self.folder.is_dir():
            return
        steps = self.steps()
        kept = set(steps[len(steps) - newest :])
        kept |= {best for step in kept if (best := self._best_of(step)) is not None}
        for entry in os.listdir(self.folder):
            match = NAME.fullmatch(entry)
            if entry.startswith(UNFINISHED) or (match and int(match[1]) not in kept):
                shutil.rmtree(self.folder / entry, ignore_errors=True)

    def _best_of(self, step: int) -> int | None:
        try:
            return _state(self.folder / step_name(step))[0].best_step
        except (Damaged, WrongFolder):
            return None

    def describe_last(self) -> str:
        steps = self.steps()
        if not steps:
            return "there is no checkpoint yet"
        return f"the last good checkpoint is {self.folder / step_name(steps[-1])}"


def step_name(step: int) -> str:
    return f"step-{step:09d}"


def _state_bytes(state: State, tensors_crc32: int, shards: Sequence[ShardFile]) -> bytes:
    told = {"tensors_crc32": tensors_crc32, **asdict(state)}
    if shards:
        told["shards"] = [asdict(shard) for shard in shards]
    version = FORMAT if shards else 1
    return json.dumps({"format": version, "crc32": _check(told), "state": told}).encode()


def _state(place: Path) -> tuple[State, int, list[ShardFile]]:
    """The state in a checkpoint, the checksum of its tensors, and the files of its proxies."""
    try:
        file = json.loads((place / "state.json").read_bytes())
        version = file["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{place.name} has no whole state.json") from error
    if isinstance(version, int) and version > FORMAT:
        raise WrongFolder(
            f"{place} was written by a newer version of proxysynth (format {version}, this one "
            f"reads {FORMAT}): upgrade proxysynth"
        )
    try:
        told = dict(file["state"])
        if file["crc32"] != _check(told):
            raise Damaged(f"the state of {place.name} is not the one that was written")
        check = told.pop("tensors_crc32")
        shards = [ShardFile(**shard) for shard in told.pop("shards", ())]
        return State(**{**told, "history": tuple(told["history"])}), check, shards
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{place.name} has no whole state.json") from error


def _check(told: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(told, sort_keys=True).encode())
