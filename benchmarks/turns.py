"""Time several methods alternately, each in a process of its own.

Methods in one process would share its heap: what one leaves behind decides whether the next finds
free memory or has to ask the system for every page, so their ratio would depend on a third one.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

import torch

from proxysynth.cli.memory import keep_freed_memory

Step = Callable[[], Any]
Maker = Callable[[str, int], Step]
"""From the name of a method and a size (the number of classes) to its step."""


class Turns:
    """One process per method, each waiting for its turn.

    Args:
        make: returns the step of a method; called in the method's process.
        names: the methods.
        kept: methods whose processes keep freed memory, as `proxysynth train` does.
    """

    def __init__(self, make: Maker, names: Iterable[str], kept: Iterable[str] = ()) -> None:
        self.make, self.names, self.kept = make, tuple(names), frozenset(kept)
        self.stack = ExitStack()
        self.players: dict[str, Connection] = {}

    def __enter__(self) -> Turns:
        # A server that has imported torch and done nothing else: its children start at once.
        fresh: Any = multiprocessing.get_context(
            "spawn" if sys.platform == "win32" else "forkserver"
        )
        if sys.platform != "win32":
            fresh.set_forkserver_preload(["torch", "benchmarks.step"])
        for name in self.names:
            here, there = fresh.Pipe()
            given = (there, self.make, name, name in self.kept, dict(os.environ))
            player = fresh.Process(target=_play, args=given, daemon=True)
            player.start()
            there.close()
            self.players[name] = here
            self.stack.callback(player.join)
            self.stack.callback(here.close)  # which ends the player
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.stack.close()

    def seconds(self, size: int, threads: int, rounds: int, steps: int) -> dict[str, float]:
        """The median seconds of each method's step, over all rounds: see `taken`."""
        taken = self.taken(size, threads, rounds, steps)
        return {name: statistics.median(each) for name, each in taken.items()}

    def taken(self, size: int, threads: int, rounds: int, steps: int) -> dict[str, list[float]]:
        """The seconds of each method's steps.

        In its turn a method takes `steps` steps, if they are several after one that warms the
        caches: a single step is a large one, which fills them itself. The order is shuffled in each
        round.
        """
        for name in self.names:
            self._ask(name, (size, threads))
        found: dict[str, list[float]] = {name: [] for name in self.names}
        order, draw = list(self.names), random.Random(0)
        for turn in range(rounds + 1):
            draw.shuffle(order)
            for name in order:
                taken = self._ask(name, steps)
                if turn:  # the first round warms up
                    found[name] += taken
        return found

    def _ask(self, name: str, what: object) -> list[float]:
        try:
            self.players[name].send(what)
            answer = self.players[name].recv()
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
        with turns() as players:
            for name, taken in players.taken(size, threads, rounds, steps).items():
                found.setdefault(name, []).extend(taken)
    return {name: statistics.median(taken) for name, taken in found.items()}


def _play(
    line: Connection, make: Maker, name: str, kept: bool, environment: dict[str, str]
) -> None:
    """A process: builds the step that it is asked for and takes it when it is its turn."""
    os.environ.update(environment)
    step: Step = lambda: None  # noqa: E731
    if kept:
        keep_freed_memory()
    while True:
        try:
            asked = line.recv()
        except (EOFError, OSError):  # the measurement is over
            return
        try:
            if isinstance(asked, tuple):
                size, threads = asked
                torch.set_num_threads(threads)
                step = make(name, size)
                line.send([])
            else:
                if asked > 1:
                    step()
                line.send([_timed(step) for _ in range(asked)])
        except Exception as error:
            line.send(f"{type(error).__name__}: {error}")


def _timed(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start
