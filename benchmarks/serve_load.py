"""Closed-loop clients: each sends its next request as soon as it has a response."""

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
"""Fraction of the time before counting starts: first connections, first allocations."""


@dataclass(frozen=True)
class Request:
    """A request and a check of its response.

    Args:
        path, body, headers: of the POST.
        is_correct: whether the JSON of a response is correct.
    """

    path: str
    body: bytes
    headers: Mapping[str, str]
    is_correct: Callable[[dict[str, Any]], bool]


@dataclass
class Load:
    """What the clients measured.

    Attributes:
        seconds: how long responses were counted.
        waits: latency in seconds of each correct response.
        lost: requests without a response, or with a wrong one.
        changes: how often the index was replaced, as seen by the clients.
    """

    seconds: float
    waits: list[float] = field(default_factory=list)
    lost: int = 0
    changes: int = 0

    @property
    def answered(self) -> int:
        return len(self.waits)

    def percentile(self, part: float) -> float:
        """Latency in milliseconds."""
        if not self.waits:
            raise RuntimeError(f"the server answered none of {self.lost} requests correctly")
        return float(np.percentile(self.waits, part)) * 1000


def drive(port: int, requests: Sequence[Request], clients: int, seconds: float) -> Load:
    """Send requests from concurrent clients for some seconds and measure the latency."""
    start = time.perf_counter()
    counted_from = start + WARM_UP * seconds
    end = counted_from + seconds
    load, lock = Load(seconds), threading.Lock()
    generations: list[tuple[float, str]] = []

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        waits, lost, turn = [], 0, number
        seen: list[tuple[float, str]] = []
        while (sent := time.perf_counter()) < end:
            request = requests[turn % len(requests)]
            turn += clients
            response = _send(connection, request)
            done = time.perf_counter()
            if response is None:
                lost += 1
                connection.close()
                continue
            if not seen or seen[-1][1] != response["generation"]:
                seen.append((done, response["generation"]))
            if sent >= counted_from:
                waits.append(done - sent)
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


def _send(connection: http.client.HTTPConnection, request: Request) -> dict[str, Any] | None:
    """The response if it is correct, else None."""
    try:
        connection.request("POST", request.path, request.body, dict(request.headers))
        response = connection.getresponse()
        data = response.read()
        content: dict[str, Any] = json.loads(data)
        return content if response.status == 200 and request.is_correct(content) else None
    except (OSError, ValueError, KeyError, IndexError, http.client.HTTPException):
        return None


def _changes(seen: list[tuple[float, str]], clients: int) -> int:
    """Changes of the index that every client saw."""
    return len(seen) // max(1, clients) - 1 if seen else 0
