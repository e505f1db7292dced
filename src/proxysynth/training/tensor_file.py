"""Tensors in a file with a few words about them: safetensors, which cannot run code.

model.safetensors        weights and proxies of the reported epoch
embeddings.safetensors   of the test pictures at that epoch, with labels, names and classes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from proxysynth.errors import TrainingFailed
from proxysynth.files import write_bytes

MODEL, EMBEDDINGS = "model.safetensors", "embeddings.safetensors"


def write_tensors(
    path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, Any] | None = None
) -> None:
    """A safetensors file; `about` is kept as JSON in its header."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    told = {name: json.dumps(value) for name, value in (about or {}).items()}
    write_bytes(path, safetensors.torch.save(held, metadata=told))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a file that `write_tensors` wrote, and what it says about them."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            told = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, {name: json.loads(text) for name, text in told.items()}
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise TrainingFailed(
            f"{path} cannot be read ({error}): train the run again in another folder"
        ) from error
