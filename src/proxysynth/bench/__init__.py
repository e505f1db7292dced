"""Side-by-side measurements against peers; each module's `run(quick)` gives rows of a table."""

from __future__ import annotations

import importlib
from typing import Any

BENCHES = {
    "step": "time of one step: plain, peers, reference, fused",
    "memory": "memory of one step over the number of classes",
    "neighbours": "evaluation against faiss and pytorch-metric-learning",
    "loader": "pictures per second of the loader against plain Pillow",
    "training": "pictures per second of training against a plain loop",
    "scale": "a training step from a thousand classes to a million, on one to four processes",
    "serve": "requests per second of the search service, eight clients",
}


def measure(name: str, quick: bool = False) -> list[dict[str, Any]]:
    """The rows of one bench, made now. Nothing else should run meanwhile."""
    rows = importlib.import_module(f"proxysynth.bench.{name}").run(quick=quick)
    return [{"bench": name, **row} for row in rows]
