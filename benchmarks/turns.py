"""Time several methods alternately, each in its own process.

Methods in one process would share its heap: what one leaves behind decides whether the next finds
free memory or has to request every page from the system, so the ratio of two methods would depend
on a third.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any

import torch

from benchmarks.timing import timed
from proxysynth.memory import keep_freed_memory

Step = Callable[[], Any]
Maker = Callable[[str, int], Step]
"""From the name of a method and a size (the number of classes) to its step."""


class Turns:
    """One process per method; they run in turns.

    Args:
        make: returns the step of a method; called in the method's process.
        names: the methods.
        keep_memory: methods whose processes keep freed memory, as `proxysynth train` does.
    """

    def __init__(self, make: Maker, names: Iterable[str], keep_memory: Iterable[str] = ()) -> None:
        self.make, self.names, self.keep_memory = make, tuple(names), frozenset(keep_memory)
        self.stack = ExitStack()
        self.workers: dict[str, Connection] = {}

    def __enter__(self) -> Turns:
        # The server has imported torch and nothing else, so its children start quickly.
        fresh: Any = multiprocessing.get_context(
            "spawn" if sys.platform == "win32" else "forkserver"
        )
        if sys.platform != "win32":
            fresh.set_forkserver_preload(["torch", "benchmarks.step"])
        for name in self.names:
            here, there = fresh.Pipe()
            arguments = (there, self.make, name, name in self.keep_memory, dict(os.environ))
            worker = fresh.Process(target=_work, args=arguments, daemon=True)
            worker.start()
            there.close()
            self.workers[name] = here
            self.stack.callback(worker.join)
            self.stack.callback(here.close)  # which ends the worker
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()

    def seconds(self, size: int, threads: int, rounds: int, steps: int) -> dict[str, float]:
        """The median seconds of each method's step, over all rounds: see `taken`."""
        taken = self.taken(size, threads, rounds, steps)
        return {name: statistics.median(each) for name, each in taken.items()}

    def taken(self, size: int, threads: int, rounds: int, steps: int) -> dict[str, list[float]]:
        """The seconds of each method's steps.

        In its turn a method takes `steps` steps; if there are several, one more comes first to warm
        the caches (a single step is a large one, which fills them itself). The order is shuffled in
        each round.
        """
        for name in self.names:
            self._request(name, (size, threads))
        found: dict[str, list[float]] = {name: [] for name in self.names}
        order, draw = list(self.names), random.Random(0)
        for turn in range(rounds + 1):
            draw.shuffle(order)
            for name in order:
                taken = self._request(name, steps)
                if turn:  # the first round warms up
                    found[name] += taken
        return found

    def _request(self, name: str, what: object) -> list[float]:
        try:
            self.workers[name].send(what)
            answer = self.workers[name].recv()
        except (EOFError, OSError) as error:
            raise RuntimeError(
                f"the process for {name} ended unexpectedly, perhaps out of memory"
            ) from error
        if isinstance(answer, str):
            raise RuntimeError(f"the measurement of {name} failed: {answer}")
        return list(answer)


def seconds_over_lives(
    turns: Callable[[], Turns], lives: int, size: int, threads: int, rounds: int, steps: int
) -> dict[str, float]:
    """The median seconds of each method's step over `lives` fresh sets of processes.

    Where a process places its first allocations affects all later ones; more rounds in the same
    process would not average that out.
    """
    found: dict[str, list[float]] = {}
    for _ in range(lives):
        with turns() as processes:
            for name, taken in processes.taken(size, threads, rounds, steps).items():
                found.setdefault(name, []).extend(taken)
    return {name: statistics.median(taken) for name, taken in found.items()}


def _work(
    connection: Connection, make: Maker, name: str, keep_memory: bool, environment: dict[str, str]
) -> None:
    """The loop of a process: a tuple (size, threads) builds the step, a number times it."""
    os.environ.update(environment)
    step: Step = lambda: None  # noqa: E731
    if keep_memory:
        keep_freed_memory()
    while True:
        try:
            request = connection.recv()
        except (EOFError, OSError):  # the measurement is over
            return
        try:
            if isinstance(request, tuple):
                size, threads = request
                torch.set_num_threads(threads)
                step = make(name, size)
                connection.send([])
            else:
                if request > 1:
                    step()
                connection.send([timed(step) for _ in range(request)])
        except Exception as error:
            connection.send(f"{type(error).__name__}: {error}")
