"""Models and indexes for other programs.

A model becomes an ONNX file or a `torch.export` program whose metadata says how to prepare images;
an index becomes a Parquet table, a NumPy array with JSON lines, or a FAISS index. The ids in these
are the item numbers of the index.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxysynth.data import pixels_named
from proxysynth.data.transforms import MAX_ASPECT
from proxysynth.errors import cannot_write, import_optional
from proxysynth.files import UNFINISHED, move_into_place, write_bytes
from proxysynth.formatting import or_join
from proxysynth.search.index import Index
from proxysynth.training.inference import Trained

KEY = "proxysynth"  # of the JSON text in the metadata of a model
BATCHES = (1, 2, 5)  # sizes on which an exported model is compared with the original
TOLERANCE = 1e-5
ONNX = ("export", "--to onnx", "use --to torch")  # arguments of `import_optional`
BLOCK = 16384  # rows of an index in a record batch of a table

Embed = Callable[[Tensor], Tensor]


class NotTheSame(RuntimeError):
    """The exported model does not give the same embeddings as the run."""


@dataclass(frozen=True)
class Exported:
    """A written file.

    Args:
        difference: the largest difference to the original embeddings, relative to their length.
        about: for a model, its metadata; for an index, what was written.
    """

    file: Path
    difference: float
    about: dict[str, Any]


def export(source: Trained | Index, to: str, file: str | os.PathLike[str]) -> Exported:
    """Export a model (`to`: "onnx" or "torch") or an index ("parquet", "npy" or "faiss").

    The file is written under another name and renamed at the end. A model is loaded again before
    that and compared with the original on several batch sizes.
    """
    if not isinstance(source, Trained | Index):
        got = repr(source) if isinstance(source, str) else type(source).__name__
        advice = "open it with ps.load(folder) or ps.Index.open(file)"
        raise ValueError(f"export takes a model or an index, got {got}: {advice}")
    what, kinds = ("an index", _INDEX) if isinstance(source, Index) else ("a model", _MODEL)
    if to not in kinds:
        raise ValueError(f"{what} can be exported to {or_join(kinds)}, got {to!r}")
    out = Path(os.path.abspath(os.path.expanduser(file)))
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} to: create it first")
    unfinished = out.with_name(f"{UNFINISHED}{out.name}")
    try:
        if isinstance(source, Index):
            about: dict[str, Any] = {"items": len(source), "dim": source.dim}
            about |= _INDEX[to](source, unfinished)
            difference = 0.0
            if to == "npy":
                about["items_file"] = str(Path(file).with_name(_write_items(source, out).name))
        else:
            write, opened = _MODEL[to]
            # On the CPU, with the weights in the layout that other programs expect.
            net = source.embedder.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
            ready, about = replace(source, embedder=net.eval()), describe(source)
            write(ready, about, unfinished)
            difference = compare(ready, opened(unfinished), f"the {to} model")
        with open(unfinished, "rb+") as handle:
            os.fsync(handle.fileno())
        move_into_place(unfinished, out)
    except OSError as error:
        raise cannot_write(out, error, "nothing was written") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return Exported(Path(file), difference, about)


def describe(model: Trained) -> dict[str, Any]:
    """How to prepare an image for the network, and what comes out of it."""
    pixels, embedder = pixels_named(model.embedder.preprocess), model.embedder
    calibration = model.calibration
    constant = files("proxysynth.search").joinpath("templates/preprocessing.json").read_text()
    return {
        "input": ["n", pixels.channels, model.recorded.image_size, model.recorded.image_size],
        "output": ["n", embedder.dim],
        "normalized": embedder.normalize,
        "preprocessing": {
            "resize_short_side": model.recorded.short_side,
            "center_crop": model.recorded.image_size,
            "shrink_short_side": model.shrink,
            "max_aspect": MAX_ASPECT,
            "channels": pixels.order,
            "divide_by": pixels.unit,
            "mean": list(pixels.mean),
            "std": list(pixels.std),
            **json.loads(constant),
        },
        "backbone": model.run.backbone,
        "run": model.recorded.identity,
        "epoch": model.epoch,
        "thresholds": {} if calibration is None else calibration.thresholds,
    }


def example(model: Trained, n: int) -> Tensor:
    """n images of noise as the network takes them, (n, channels, h, w)."""
    pixels, side = pixels_named(model.embedder.preprocess), model.recorded.image_size
    noise = np.random.default_rng(n).integers(0, 256, (n, side, side, pixels.channels))
    numbers = pixels.normalize(torch.from_numpy(noise.astype(np.uint8)))
    return numbers.permute(0, 3, 1, 2).contiguous()


def compare(model: Trained, embed: Embed, what: str) -> float:
    """The largest difference of embeddings over several batch sizes; an error above 1e-5."""
    largest = 0.0
    for n in BATCHES:
        images = example(model, n)
        with torch.inference_mode():
            expected = model.embedder(images)
        got = embed(images)
        if got.shape != expected.shape or not torch.isfinite(got).all():
            raise NotTheSame(f"{what} fails for a batch of {n} images: nothing was written")
        length = max(1.0, float(expected.norm(dim=1).max()))
        largest = max(largest, float((got - expected).abs().max()) / length)
    if largest > TOLERANCE:
        how = f"differ from those of the run by {largest:.1e}, more than {TOLERANCE:.0e}"
        raise NotTheSame(f"the embeddings of {what} {how}: nothing was written")
    return largest


def write_onnx(model: Trained, about: dict[str, Any], path: Path) -> None:
    """Input "images" (n, channels, h, w), output "embeddings" (n, d), any n; `about` under KEY."""
    onnx, _ = (import_optional(name, *ONNX) for name in ("onnx", "onnxscript"))
    with _exporting(model):
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
    graph = made.graph
    del graph.metadata_props[:]  # paths and lines of source files
    for part in (*graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
        del part.metadata_props[:]
        part.ClearField("doc_string")
    entry = made.metadata_props.add()
    entry.key, entry.value = KEY, json.dumps(about)
    onnx.checker.check_model(made)
    onnx.save(made, path)


def open_onnx(path: Path) -> Embed:
    runtime = import_optional("onnxruntime", *ONNX)
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda images: torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def write_torch(model: Trained, about: dict[str, Any], path: Path) -> None:
    """A program from (n, channels, h, w) to (n, d), any n; `about` in the extra KEY.json."""
    shapes = {"images": {0: torch.export.Dim("n")}}
    with _exporting(model):
        program = torch.export.export(model.embedder, (example(model, 2),), dynamic_shapes=shapes)
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # paths and lines of source files
        # Through a stream: given a name, torch insists on the suffix .pt2.
        with open(path, "wb") as file:
            torch.export.save(program, file, extra_files={f"{KEY}.json": json.dumps(about)})


def open_torch(path: Path) -> Embed:
    with warnings.catch_warnings(), open(path, "rb") as file:
        warnings.simplefilter("ignore")
        module = torch.export.load(file).module()
    return torch.inference_mode()(lambda images: module(images))


def write_parquet(index: Index, path: Path) -> dict[str, Any]:
    """A table with the columns id, path, label and vector (a list of d float32)."""
    without = ("export", "--to parquet", "use --to npy")
    arrow, parquet = (import_optional(name, *without) for name in ("pyarrow", "pyarrow.parquet"))
    kinds = {"id": arrow.int64(), "path": arrow.string(), "label": arrow.string()}
    schema = arrow.schema(kinds | {"vector": arrow.list_(arrow.float32(), index.dim)})
    with parquet.ParquetWriter(path, schema) as writer:
        for at in range(0, len(index), BLOCK):
            rows = index.vectors(at, at + BLOCK).numpy()
            columns = [
                arrow.array(np.arange(at, at + len(rows))),
                arrow.array([_utf8(text) for text in index.paths[at : at + BLOCK]]),
                arrow.array([_utf8(text) for text in index.labels[at : at + BLOCK]], "string"),
                arrow.FixedSizeListArray.from_arrays(arrow.array(rows.reshape(-1)), index.dim),
            ]
            writer.write_batch(arrow.record_batch(columns, schema=schema))
    return {"columns": schema.names}


def write_npy(index: Index, path: Path) -> dict[str, Any]:
    """The embeddings (n, d) float32 in the order of the ids."""
    rows = index.vectors().numpy()
    with open(path, "wb") as file:  # given a name, numpy insists on the suffix .npy
        np.save(file, rows)
    return {"shape": list(rows.shape)}


def _write_items(index: Index, out: Path) -> Path:
    """A JSON object with id, path and label for each item, one per line."""
    lines = (
        json.dumps({"id": i, "path": _utf8(path), "label": _utf8(label)}) + "\n"
        for i, (path, label) in enumerate(zip(index.paths, index.labels, strict=True))
    )
    place = out.with_name(f"{out.name}.jsonl")
    write_bytes(place, "".join(lines).encode())
    return place


def write_faiss(index: Index, path: Path) -> dict[str, Any]:
    """An exact FAISS index by inner product, which is the cosine of unit vectors."""
    faiss = import_optional("faiss", "faiss", "--to faiss", "use --to npy")
    made = faiss.IndexFlatIP(index.dim)
    made.add(index.vectors().numpy())
    faiss.write_index(made, str(path))
    return {"metric": "inner product"}


_MODEL: dict[str, tuple[Callable[[Trained, dict[str, Any], Path], None], Callable[[Path], Embed]]]
_MODEL = {"onnx": (write_onnx, open_onnx), "torch": (write_torch, open_torch)}
_INDEX: dict[str, Callable[[Index, Path], dict[str, Any]]]
_INDEX = {"parquet": write_parquet, "npy": write_npy, "faiss": write_faiss}


def _utf8(text: str | None) -> str | None:
    """File names that are not UTF-8 cannot be written to a table: their bytes are escaped."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode()


@contextlib.contextmanager
def _exporting(model: Trained) -> Iterator[None]:
    """Without the messages of torch's exporter, which fill a page: a failure is one sentence."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    except OSError:
        raise
    except Exception as error:
        raise RuntimeError(
            f"the backbone {model.run.backbone} cannot be exported: torch reports "
            f"{type(error).__name__}; its code probably depends on the values or sizes of images"
        ) from error
    finally:
        logging.disable(before)
