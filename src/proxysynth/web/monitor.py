"""What an operator sees of the service: metrics for Prometheus, logs, and an access log."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from logging.handlers import WatchedFileHandler
from typing import TextIO

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from starlette.datastructures import Headers
from starlette.types import Scope

from proxysynth.web.service import Service

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class NonBlockingHandler(logging.StreamHandler[TextIO]):
    """Writes lines to standard output or error, and drops those that a full pipe has no room for.

    A pipe that nobody reads would otherwise block the service. Long lines are cut.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if sys.platform == "win32":  # select is for sockets only
            super().emit(record)
        elif select.select([], [self.stream], [], 0)[1]:  # there is room for PIPE_BUF bytes
            line = self.format(record).encode("utf-8", "backslashreplace")
            os.write(self.stream.fileno(), line[: select.PIPE_BUF - 1] + b"\n")


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
            self._log.addHandler(NonBlockingHandler(sys.stdout))
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
