"""metrics.jsonl: a line of JSON per evaluation, readable while the run goes on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from proxysynth.files import append_line, write_bytes

METRICS = "metrics.jsonl"


def append_metrics(folder: Path, line: Mapping[str, Any]) -> None:
    append_line(folder / METRICS, _line(line))


def rewrite_metrics(folder: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """The evaluations up to a checkpoint, whatever a kill left behind them."""
    write_bytes(folder / METRICS, "".join(_line(line) + "\n" for line in lines).encode())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, also while it is being trained; a half-written last line is not
    one."""
    try:
        text = (folder / METRICS).read_bytes()
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text.split(b"\n")[:-1]]


def _line(values: Mapping[str, Any]) -> str:
    return json.dumps(values, allow_nan=False)
