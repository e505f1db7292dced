"""Metrics for TensorBoard, where it is installed and wanted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def open_board(folder: Path, wanted: bool, step: int) -> Callable[[Mapping[str, Any]], None]:
    """A function that takes each line of the metrics; without a board it does nothing.

    Args:
        step: where the run goes on; what a board has of later steps is hidden.
    """
    if not wanted:
        return lambda line: None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError(
            "TensorBoard was asked for and is not installed: pip install tensorboard, "
            "or leave it out; metrics.jsonl has the same numbers"
        ) from error
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(line: Mapping[str, Any]) -> None:
        for name, value in _scalars(line).items():
            writer.add_scalar(name, value, line["step"])
        writer.flush()

    return write


def _scalars(line: Mapping[str, Any], part: str = "test") -> dict[str, float]:
    """{"recall@1": .9, "validation": {...}} as {"test/recall@1": .9, "validation/...": ...}."""
    scalars: dict[str, float] = {}
    for name, value in line.items():
        if isinstance(value, Mapping):
            scalars |= _scalars(value, name)
        elif name == "loss":
            scalars["train/loss"] = value
        elif name not in ("step", "queries", "queries_without_positive"):
            scalars[f"{part}/{name}"] = value
    return scalars
