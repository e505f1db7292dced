"""Two folders of one run, compared bit for bit."""

from __future__ import annotations

from pathlib import Path

import torch

from proxysynth.tensor_files import read_tensors
from proxysynth.training import read_metrics, read_result
from proxysynth.training.checkpoint import Checkpoints
from proxysynth.training.run_folder import CHECKPOINT, EMBEDDINGS, MODEL, read_run


def assert_same_outcome(one: Path, other: Path) -> None:
    """Weights, optimizer, embeddings, metrics and result agree in every bit."""
    for name in (MODEL, EMBEDDINGS):
        assert_same_tensors(read_tensors(one / name)[0], read_tensors(other / name)[0])
    a, b = (Checkpoints(f / CHECKPOINT).load(read_run(f).identity) for f in (one, other))
    assert a is not None
    assert b is not None
    assert_same_tensors(a.tensors, b.tensors)
    assert (one / "metrics.jsonl").read_bytes() == (other / "metrics.jsonl").read_bytes()
    assert read_metrics(one)
    first, second = read_result(one), read_result(other)
    assert first.metrics == second.metrics
    assert first.untrained == second.untrained
    assert (first.epoch, first.validation) == (second.epoch, second.validation)


def assert_same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert torch.equal(tensor, other[name]), name
