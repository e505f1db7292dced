"""The processes that train one run together: joining, exchanging values, failing together.

torchrun, or whatever else starts them, puts RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT into the
environment. Ranks talk by gloo on the CPU and by nccl on GPUs. The first rank writes the files and
the messages. With one process every exchange returns its input, so that no caller has to ask how
many there are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate, pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from proxysynth.errors import TrainingFailed

START = timedelta(minutes=5)  # until all processes have found each other
TIMEOUT = timedelta(minutes=30)  # for any one exchange; the first rank may be testing meanwhile
LINGER = 2.0  # seconds for which the process that keeps the store stays for the others


@dataclass(frozen=True)
class Ranks:
    """Which process of how many this one is."""

    rank: int = 0
    world: int = 1
    # By which the ranks agree on the one that reports a failure.
    store: dist.Store | None = field(default=None, compare=False, repr=False)

    @property
    def first(self) -> bool:
        return self.rank == 0

    def counts(self, n: int) -> list[int]:
        """How many of n rows each rank has: the first n % world ranks have one more."""
        return [n // self.world + (rank < n % self.world) for rank in range(self.world)]

    def parts(self, n: int) -> list[slice]:
        """Each rank's range of n rows."""
        return [slice(a, b) for a, b in pairwise(accumulate(self.counts(n), initial=0))]

    def part(self, n: int) -> slice:
        """This rank's range of n rows."""
        return self.parts(n)[self.rank]

    def gather(self, own: Tensor, counts: Sequence[int]) -> Tensor:
        """All ranks' rows in one tensor; rank r contributes `counts[r]`. Gradients flow back."""
        return own if self.world == 1 else cast(Tensor, _Gather.apply(own, counts, self))

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the ranks."""
        if self.world == 1:
            return values
        made = values.contiguous().clone()
        dist.all_reduce(made)
        return made

    def max(self, number: int) -> int:
        """The largest of the ranks' numbers."""
        held = torch.tensor(number)
        if self.world > 1:
            dist.all_reduce(held, dist.ReduceOp.MAX)
        return int(held)

    def broadcast(self, value: Any) -> Any:
        """The first rank's value, on every rank; of tensors, those on the CPU."""
        values = [value]
        if self.world > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        values = [value] * self.world
        if self.world > 1:
            dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.all_gather(None)


ALONE = Ranks()
"""One process."""


class _Gather(torch.autograd.Function):
    """Forward: the rows of all ranks. Backward: own rows of the gradient's sum over the ranks,
    since every rank computes the same loss of the whole batch.

    Why not torch.distributed.nn.functional.all_gather: it needs equal shapes, while the last batch
    of an epoch may leave a rank with fewer rows or none, and with gloo its backward pass takes one
    scatter for each rank instead of one all_reduce.
    """

    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: Sequence[int], ranks: Ranks) -> Tensor:
        start = sum(counts[: ranks.rank])
        ctx.rows, ctx.ranks = slice(start, start + len(own)), ranks
        # Collectives want equal shapes: smaller parts are padded.
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ranks.sum(grads[0])[ctx.rows], None, None


def gather_with_gradient(own: Tensor) -> Tensor:
    """The rows of all processes of torch's default group, for your own training loop.

    Every process may have another number of rows. Give embeddings and labels to it and compute the
    same loss of the whole batch on every process, with the same random state: the gradients that
    arrive at the network are world times too large, which DistributedDataParallel's mean corrects.
    Without a process group, or with one process, it returns its argument.
    """
    if not dist.is_available() or not dist.is_initialized():
        return own
    ranks = Ranks(dist.get_rank(), dist.get_world_size())
    return ranks.gather(own, ranks.all_gather(len(own)))


@contextmanager
def join_process_group() -> Iterator[Ranks]:
    """Join the other processes of the run for the duration of the block. If one goes away, the
    others end with an error."""
    joined = dist.is_available() and dist.is_initialized()  # before, or the caller's own group
    ranks = Ranks(dist.get_rank(), dist.get_world_size()) if joined else _join()
    try:
        yield ranks
        if not joined:
            ranks.barrier()  # leaving early would look like a crash to the others
    except RuntimeError as error:
        text = str(error).lower()  # this is how gloo and nccl report a peer that is gone or late
        signs = ("gloo", "nccl", "connection", "peer", "timed out", "broken pipe")
        known = any(sign in text for sign in signs)
        if ranks.world == 1 or not (known or isinstance(error, dist.DistError)):
            raise
        raise TrainingFailed(
            "another process of this run ended or no longer answers: run the same command to resume"
        ) from error
    finally:
        if not joined:
            leave()


def leave() -> None:
    """Leave the process group; ranks that still wait for this one then end, too."""
    with suppress(RuntimeError, ValueError):
        if dist.is_initialized():
            dist.destroy_process_group()


def reports_failure(ranks: Ranks) -> bool:
    """Whether this rank is to report why the run failed: the first that asks is. The others only
    notice a closed connection."""
    if ranks.store is None:
        return True
    try:
        mine = ranks.store.add("failures", 1) == 1
        if ranks.first and "TORCHELASTIC_RUN_ID" not in os.environ:
            # This process keeps the store, which the others still have to ask.
            leave()
            end = time.monotonic() + LINGER
            while ranks.store.add("failures", 0) < ranks.world and time.monotonic() < end:
                time.sleep(0.02)
        return mine
    except RuntimeError:  # the process that kept the store is gone
        return True


def own_device(device: torch.device, ranks: Ranks) -> torch.device:
    """The device of this rank: each has its own GPU."""
    if ranks.world == 1 or device.type == "cpu":
        return device
    if device.type != "cuda":
        raise ValueError(f"several processes train on cuda or cpu, got {device}: choose one")
    if device.index is None:
        here, there = int(os.environ.get("LOCAL_RANK", ranks.rank)), torch.cuda.device_count()
        if here >= there:
            few = f"process {here + 1} has no GPU of its own: this machine has {there}"
            raise ValueError(f"{few}: start fewer processes, or choose --device cpu")
        device = torch.device("cuda", here)
    torch.cuda.set_device(device)
    return device


def _join() -> Ranks:
    """Join the process group that the environment describes."""
    world, rank = (os.environ.get(name, "") for name in ("WORLD_SIZE", "RANK"))
    by_torchrun = "TORCHELASTIC_RUN_ID" in os.environ  # scripts may need a group of one, too
    if not world or not rank or (world == "1" and not by_torchrun):
        return Ranks()
    # This module has `group.WORLD` as a default argument, and the first step of an optimizer
    # imports it. Imported after the group exists, it would hold the group for good, and a thread of
    # gloo that is alive at exit can abort the process. Imported now, the default is None.
    import torch.distributed.nn.functional

    try:
        store, number, size = next(iter(dist.rendezvous("env://", timeout=START)))
        nccl = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if nccl else "gloo",
            store=dist.PrefixStore("group", store),
            rank=number,
            world_size=size,
            timeout=TIMEOUT,
        )
        shared = dist.PrefixStore("notes", store)
        # A process that fails and leaves at once must not break the others' connecting.
        if shared.add("connected", 1) == size:
            shared.set("all connected", "")
        shared.wait(["all connected"], START)
    except (RuntimeError, ValueError, OSError) as error:
        why = " ".join(str(error).split())[:200]
        failed = f"the {world} processes of this run cannot find each other ({why})"
        raise TrainingFailed(f"{failed}: start all of them with torchrun") from error
    return Ranks(number, size, shared)
