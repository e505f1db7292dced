"""Clients that ask as fast as they are answered, and how long they waited."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARM_UP = 0.2
"""The part of the time that is not counted: first connections, first allocations."""


@dataclass(frozen=True)
class Request:
    """A request and what its answer must be.

    Args:
        path, body, headers: of the POST.
        right: whether the JSON of an answer is right.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]
    right: Callable[[dict[str, Any]], bool]


@dataclass
class Load:
    """What the clients saw.

    Attributes:
        seconds: over which was counted.
        waits: seconds of each answer that was right.
        lost: requests without an answer, or with a wrong one.
        changes: how often the index that answers was another than before.
    """

    seconds: float
    waits: list[float] = field(default_factory=list)
    lost: int = 0
    changes: int = 0

    @property
    def answered(self) -> int:
        return len(self.waits)

    def percentile(self, part: float) -> float:
        """Milliseconds; not a number where nothing was answered."""
        return float(np.percentile(self.waits, part)) * 1000 if self.waits else float("nan")


def drive(port: int, requests: Sequence[Request], clients: int, seconds: float) -> Load:
    """Let so many clients ask for so many seconds, each its next as soon as it has an answer."""
    start = time.perf_counter()
    counted_from = start + WARM_UP * seconds
    end = counted_from + seconds
    load, lock = Load(seconds), threading.Lock()
    generations: list[tuple[float, str]] = []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        waits, lost, turn = [], 0, number
        seen: list[tuple[float, str]] = []
        while (asked := time.perf_counter()) < end:
            request = requests[turn % len(requests)]
            turn += clients
            told = _ask(connection, request)
            done = time.perf_counter()
            if told is None:
                lost += 1
                connection.close()
                continue
            if not seen or seen[-1][1] != told["generation"]:
                seen.append((done, told["generation"]))
            if asked >= counted_from:
                waits.append(done - asked)
        connection.close()
        with lock:
            load.waits += waits
            load.lost += lost
            generations.extend(seen)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    load.seconds = max(1e-9, min(time.perf_counter(), end) - counted_from)
    load.changes = _changes(generations, clients)
    return load


def _ask(connection: http.client.HTTPConnection, request: Request) -> dict[str, Any] | None:
    """The answer if it is right, else None."""
    try:
        connection.request("POST", request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        data = response.read()
        told: dict[str, Any] = json.loads(data)
        return told if response.status == 200 and request.right(told) else None
    except (OSError, ValueError, KeyError, IndexError, http.client.HTTPException):
        return None


def _changes(seen: list[tuple[float, str]], clients: int) -> int:
    """Changes of the index that every client saw."""
    return len(seen) // max(1, clients) - 1 if seen else 0
