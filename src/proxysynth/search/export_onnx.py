"""A model as an ONNX file, and such a file as a function."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from proxysynth.search.export import KEY, example, exporting
from proxysynth.training.load import Trained

MOST = 2_000_000_000  # bytes of weights: what one ONNX file can hold


def write_onnx(model: Trained, about: dict[str, Any], path: Path) -> None:
    """Write one file: input "images" (n, channels, h, w), output "embeddings" (n, d), any n.

    Its metadata holds what `describe` says, as JSON under the key "proxysynth".
    """
    onnx = _needed("onnx")
    _needed("onnxscript")
    size = sum(t.numel() * t.element_size() for t in model.embedder.state_dict().values())
    if size > MOST:
        raise ValueError(
            f"an ONNX file holds at most 2 GB of weights, the run has {size / 1e9:.1f} GB: use "
            "--to torch"
        )
    with exporting(model), _quietly():
        program = torch.onnx.export(
            model.embedder,
            (example(model, 2),),
            input_names=["images"],
            output_names=["embeddings"],
            dynamic_shapes={"images": {0: torch.export.Dim("n")}},
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    made = program.model_proto
    _strip(made.graph)
    entry = made.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(about)
    onnx.checker.check_model(made)
    onnx.save(made, path)


def onnx_embed(path: Path) -> Callable[[Tensor], Tensor]:
    """The embeddings of an ONNX file, computed by onnxruntime."""
    runtime = _needed("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def embed(images: Tensor) -> Tensor:
        (made,) = session.run(["embeddings"], {"images": images.numpy()})
        return torch.from_numpy(made)

    return embed


def _strip(graph: Any) -> None:
    """Take out where in whose source files each operation stands."""
    del graph.metadata_props[:]
    for part in (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.ClearField("doc_string")


def _needed(package: str) -> Any:
    import importlib

    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"exporting to ONNX needs {package}: pip install 'proxysynth[export]', or use "
            "--to torch"
        ) from error


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporter's talk: what matters of it is checked afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
