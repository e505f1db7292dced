"""Joining the other processes of a run, as `torchrun` started them, and what to say of lost ones.

torchrun puts RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT into the environment; anything else that
does so will do. Ranks talk by gloo on the CPU and by nccl on GPUs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist

from proxysynth.training.faults import TrainingFailed
from proxysynth.training.ranks import Ranks
from proxysynth.training.resources import Resources
from proxysynth.training.run import KINDS, Run
from proxysynth.training.run_folder import differences
from proxysynth.values import decode, encode

START = timedelta(minutes=5)  # until all processes have found each other
TIMEOUT = timedelta(minutes=30)  # for any one exchange; the first rank may be testing meanwhile
FAREWELL = 2.0  # seconds that the keeper of the board of notes waits for the others to read it
FAULT = "fault"

_joined: list[Ranks] = []  # at most one: a process is one rank of one group


@contextmanager
def joined(timeout: timedelta = TIMEOUT) -> Iterator[Ranks]:
    """This process among the others of its run; alone, if it was started alone.

    Inside another `joined` it gives the same ranks. A rank that goes away ends the others with one
    sentence.
    """
    if _joined:
        yield _joined[-1]
        return
    if dist.is_available() and dist.is_initialized():  # the caller's own group: his to end
        with _explaining():
            yield Ranks(dist.get_rank(), dist.get_world_size())
        return
    ranks = _join(timeout)
    if ranks.world == 1:
        yield ranks
        return
    _joined.append(ranks)
    try:
        with _explaining():
            yield ranks
            ranks.wait()  # an early end would look like a death to the others
    finally:
        _joined.pop()
        leave()


def leave() -> None:
    """Cut the connections to the other ranks, which end if they still wait for this one."""
    with contextlib.suppress(RuntimeError, ValueError):
        if dist.is_initialized():
            dist.destroy_process_group()


def speaks(ranks: Ranks) -> bool:
    """Whether this rank is the one to tell why the run failed: the first that asks is.

    The others hear of it by a cut connection, and need not add to it.
    """
    if ranks.world == 1 or ranks.store is None:
        return True
    try:
        mine = ranks.store.add(FAULT, 1) == 1
        if ranks.first and "TORCHELASTIC_RUN_ID" not in os.environ:
            # This process keeps the notes: the others must be able to read that it has spoken.
            leave()
            end = time.monotonic() + FAREWELL
            while ranks.store.add(FAULT, 0) < ranks.world and time.monotonic() < end:
                time.sleep(0.02)
        return mine
    except RuntimeError:  # whoever kept the notes is gone
        return True


def own_device(device: torch.device, ranks: Ranks) -> torch.device:
    """The device of this rank: each has a GPU of its own."""
    if ranks.world == 1 or device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(
            f"several processes train on cuda or cpu, got the device {device}: "
            "choose one of these, or start one process"
        )
    if device.index is None:
        here, there = int(os.environ.get("LOCAL_RANK", ranks.rank)), torch.cuda.device_count()
        if here >= there:
            raise ValueError(
                f"each process needs a GPU of its own, but this machine has {there} for process "
                f"{here + 1}: start at most {there} here, or choose --device cpu"
            )
        device = torch.device("cuda", here)
    torch.cuda.set_device(device)
    return device


def own_resources(resources: Resources, ranks: Ranks) -> Resources:
    """This rank's part of its machine: the ranks on it share the threads that decode pictures."""
    if ranks.world == 1 or resources.workers is not None:
        return resources
    here = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
    return replace(resources, workers=max(1, resources.loader_workers // here))


def require_same_run(run: Run, ranks: Ranks) -> None:
    """An error on every rank unless all were started with the same settings."""
    told = ranks.ask(encode(run))
    for number, other in enumerate(told):
        if other != told[0]:
            what = differences(decode(told[0], KINDS), decode(other, KINDS))
            raise ValueError(
                f"all processes of a run must have the same settings, but rank {number} (here) "
                f"differs from rank 0 (there), {what}: start all with the same command"
            )


def require_pictures_for_all(run: Run, ranks: Ranks) -> None:
    """An error where a batch has not a picture for each rank."""
    if run.batch_size < ranks.world:
        raise ValueError(
            f"batch_size is divided over the processes, but {run.batch_size} pictures do not go "
            f"round {ranks.world} of them: start fewer, or raise batch_size"
        )


def require_same_pictures(fingerprint: str, ranks: Ranks) -> None:
    """An error on every rank unless all see the same pictures."""
    told = ranks.ask(fingerprint)
    for number, other in enumerate(told):
        if other != told[0]:
            raise ValueError(
                f"all processes of a run must see the same pictures, but ranks 0 and {number} do "
                f"not (hash {told[0]} and {other}): give all the same data"
            )


def _join(timeout: timedelta) -> Ranks:
    """The group that the environment tells of."""
    world, rank = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK"))
    if not world or not rank or world == "1":
        return Ranks()
    try:
        store, number, size = next(iter(dist.rendezvous("env://", timeout=START)))
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if nccl else "gloo",
            store=dist.PrefixStore("group", store),
            rank=number,
            world_size=size,
            timeout=timeout,
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise TrainingFailed(
            f"the {world} processes of this run cannot find each other "
            f"({' '.join(str(error).split())[:200]}): start all of them with torchrun"
        ) from error
    return Ranks(number, size, dist.PrefixStore("notes", store))


@contextmanager
def _explaining() -> Iterator[None]:
    """A rank that is gone, told in one sentence."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise TrainingFailed(
            "another process of this run ended or no longer answers; checkpoints are kept: give "
            "the same command again to go on from the last one"
        ) from error


def _is_lost(error: RuntimeError) -> bool:
    """Whether this is how gloo or nccl tell of a peer that is gone, or too late."""
    text = str(error).lower()
    words = ("gloo", "nccl", "connection", "peer", "timed out", "broken pipe")
    return isinstance(error, dist.DistError) or any(word in text for word in words)
