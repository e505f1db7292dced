"""What an operator sees of the service: metrics for Prometheus, logs, and an access log."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from logging.handlers import WatchedFileHandler
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from starlette.datastructures import Headers
from starlette.types import Scope

from .service import Service

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
WAITING = 10_000  # lines that a stream may be behind


class StreamInBackground(logging.Handler):
    """Writes lines to a stream in a thread of its own.

    A pipe that nobody reads blocks whoever writes to it, which must not be the event loop. While
    too many lines wait, further ones are dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._lines: queue.Queue[str] = queue.Queue(WAITING)
        threading.Thread(target=self._write, args=(stream.fileno(),), daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def flush(self) -> None:
        """Wait for the lines, but not for long: at exit the stream may still be blocked."""
        with self._lines.all_tasks_done:
            self._lines.all_tasks_done.wait_for(lambda: not self._lines.unfinished_tasks, 1.0)

    def _write(self, handle: int) -> None:
        # Not through the stream: its lock would block the end of the process.
        while True:
            with contextlib.suppress(OSError):  # the reader is gone
                os.write(handle, f"{self._lines.get()}\n".encode("utf-8", "backslashreplace"))
            self._lines.task_done()


class Monitor:
    """Counts requests, and writes one JSON line for each if there is an access log.

    The log is a file, which may be moved away by a log rotation, or "-" for standard output.
    """

    def __init__(self, service: Service, access_log: str | None = None) -> None:
        self.service = service
        self.registry = CollectorRegistry()
        about, labels = "Requests by method, route and status.", ("method", "route", "status")
        self._requests = Counter("proxysynth_requests", about, labels, registry=self.registry)
        self._seconds = Histogram(
            "proxysynth_request_seconds",
            "Time until the whole response was sent.",
            ("route",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.registry.register(self)
        self._log = logging.Logger("proxysynth.access")  # not the root's: only these lines
        if access_log == "-":
            self._log.addHandler(StreamInBackground(sys.stdout))
        elif access_log is not None:
            self._log.addHandler(WatchedFileHandler(access_log, encoding="utf-8"))

    def collect(self) -> Iterator[Metric]:
        """The state at the moment, asked for by the registry."""
        about = "Queries that wait, by stage."
        queues = GaugeMetricFamily("proxysynth_queue", about, labels=["stage"])
        queues.add_metric(["embed"], len(self.service.embedder))
        queues.add_metric(["search"], len(self.service.searcher))
        yield queues
        index, loads = self.service.current.index, self.service.loads
        yield GaugeMetricFamily("proxysynth_index_items", "Images in the index.", len(index))
        yield GaugeMetricFamily("proxysynth_index_loads", "How often an index was loaded.", loads)
        generation = {"generation": index.generation}
        yield InfoMetricFamily("proxysynth_index", "The index that is served.", generation)

    def record(self, scope: Scope, method: str, status: int, sent: int, seconds: float) -> None:
        """Count a request that is finished, with `sent` bytes of a body.

        The route's template, not the path, labels the metrics.
        """
        route = getattr(scope.get("route"), "path", "other")
        known = method if method in ("GET", "HEAD", "POST", "OPTIONS") else "other"
        self._requests.labels(known, route, status).inc()
        self._seconds.labels(route).observe(seconds)
        if not self._log.handlers:
            return
        line = {
            "time": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            "client": (scope.get("client") or [None])[0],
            "forwarded_for": Headers(scope=scope).get("x-forwarded-for"),
            "method": method,
            "path": scope["path"],
            "status": status,
            "bytes": sent,
            "seconds": round(seconds, 6),
        }
        self._log.info(json.dumps(line))
