"""A model as a program of torch.export, and such a program as a function."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxysynth.search.export import KEY, example, exporting
from proxysynth.training.load import Trained

ABOUT = f"{KEY}.json"  # of the text that is kept in the file


def write_torch(model: Trained, about: dict[str, Any], path: Path) -> None:
    """Write a program from (n, channels, h, w) to (n, d), any n; torch.export.load reads it.

    What `describe` says is kept in the file as the text "proxysynth.json".
    """
    shapes = {"images": {0: torch.export.Dim("n")}}
    with exporting(model), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(model.embedder, (example(model, 2),), dynamic_shapes=shapes)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # where in whose source files it stands
        # Through a stream: by name, torch insists on its own ending.
        with open(path, "wb") as file:
            torch.export.save(program, file, extra_files={ABOUT: json.dumps(about)})


def torch_embed(path: Path) -> Callable[[Tensor], Tensor]:
    """The embeddings of an exported program."""
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        module = torch.export.load(file).module()

    def embed(images: Tensor) -> Tensor:
        with torch.inference_mode():
            made: Tensor = module(images)
        return made

    return embed
