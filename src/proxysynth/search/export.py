"""A trained model for other programs: a file that holds the network and says how to feed it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from proxysynth.data import PIXELS
from proxysynth.errors import cannot_write
from proxysynth.files import UNFINISHED, CannotWrite, sync_folder
from proxysynth.training.load import Trained

KEY = "proxysynth"  # of the JSON text in a file's metadata
BATCHES = (1, 2, 5)  # sizes on which a file is compared with the model it was made from
TOLERANCE = 1e-5


class NotTheSame(RuntimeError):
    """The exported model gives other embeddings than the run."""


@dataclass(frozen=True)
class Exported:
    """A written file.

    Args:
        file: where it is.
        difference: the largest difference between its embeddings and the run's, per unit of length.
        about: what its metadata says.
    """

    file: Path
    difference: float
    about: dict[str, Any]


def describe(model: Trained) -> dict[str, Any]:
    """What a program must do to a picture before the network, and what comes out of it."""
    pixels, embedder = PIXELS[model.embedder.preprocess], model.embedder
    return {
        "input": ["n", pixels.channels, model.recorded.image_size, model.recorded.image_size],
        "output": ["n", embedder.dim],
        "normalized": embedder.normalize,
        "preprocessing": {
            "resize_short_side": model.recorded.short_side,
            "interpolation": "bilinear, antialiased",
            "center_crop": model.recorded.image_size,
            "channels": pixels.order,
            "divide_by": pixels.unit,
            "mean": list(pixels.mean),
            "std": list(pixels.std),
            "formula": "(byte / divide_by - mean) / std",
        },
        "backbone": model.run.backbone,
        "run": model.recorded.identity,
        "epoch": model.epoch,
    }


def example(model: Trained, n: int) -> Tensor:
    """n pictures of noise as the network gets them, (n, channels, h, w)."""
    pixels, side = PIXELS[model.embedder.preprocess], model.recorded.image_size
    bytes_ = np.random.default_rng(n).integers(0, 256, (n, side, side, pixels.channels))
    numbers = pixels.numbers(bytes_.astype(np.uint8))
    return torch.from_numpy(numbers).permute(0, 3, 1, 2).contiguous()


def compare(model: Trained, embed: Callable[[Tensor], Tensor], what: str) -> float:
    """The largest difference of embeddings over several batch sizes; above 1e-5 it is an error."""
    largest = 0.0
    for n in BATCHES:
        images = example(model, n)
        with torch.inference_mode():
            expected = model.embedder(images)
        got = embed(images)
        if got.shape != expected.shape or not torch.isfinite(got).all():
            raise NotTheSame(f"{what} gives no embeddings for a batch of {n}: nothing was written")
        length = max(1.0, float(expected.norm(dim=1).max()))
        largest = max(largest, float((got - expected).abs().max()) / length)
    if largest > TOLERANCE:
        raise NotTheSame(
            f"{what} gives other embeddings than the run: they differ by {largest:.1e}, more than "
            f"{TOLERANCE:.0e}; nothing was written"
        )
    return largest


@contextmanager
def exporting(model: Trained) -> Iterator[None]:
    """A network that cannot be written down ends in one sentence: torch's own fill a page."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise RuntimeError(
            f"the backbone {model.run.backbone} cannot be exported: torch says "
            f"{type(error).__name__}, so its code decides by the pictures' values or sizes"
        ) from error


def export(model: Trained, to: str, file: str | os.PathLike[str]) -> Exported:
    """Write the model as ONNX ("onnx") or as a program of torch.export ("torch").

    The file is made under another name, loaded again and compared with the model on several batch
    sizes; only then does it get its name.
    """
    from proxysynth.search.export_onnx import onnx_embed, write_onnx
    from proxysynth.search.export_torch import torch_embed, write_torch

    kinds: dict[str, tuple[Callable[..., None], Callable[[Path], Callable[[Tensor], Tensor]]]] = {
        "onnx": (write_onnx, onnx_embed),
        "torch": (write_torch, torch_embed),
    }
    if to not in kinds:
        raise ValueError(f"a model is exported to {' or '.join(kinds)}, got {to!r}")
    write, opened = kinds[to]
    out = Path(os.path.abspath(os.path.expanduser(file)))
    unfinished = out.with_name(f"{UNFINISHED}{out.name}")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent} to write {out.name} into: make it first")
    about, ready = describe(model), _on_cpu(model)
    try:
        write(ready, about, unfinished)
        difference = compare(ready, opened(unfinished), f"the {to} model")
        with open(unfinished, "rb+") as handle:
            os.fsync(handle.fileno())
        os.replace(unfinished, out)
        sync_folder(out.parent)
    except (OSError, CannotWrite) as error:
        raise cannot_write(out, error, "nothing was written") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return Exported(out, difference, about)


def _on_cpu(model: Trained) -> Trained:
    """The same model on the CPU with its weights laid out as other programs expect them."""
    net = model.embedder.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    return replace(model, embedder=net.eval())
