"""The model of an index and its identity: embeddings of two models cannot be compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from proxysynth.data.folders import existing_folder
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.embedder import Embedder, Pooling
from proxysynth.models.libraries import is_library, is_plain_name
from proxysynth.retrieval.knn import normalize_rows_
from proxysynth.training.inference import Picture, Trained, load
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import RUN, Recorded
from proxysynth.values import choices_hint


@dataclass(frozen=True)
class ModelIdentity:
    """Everything an embedding depends on besides the image.

    Args:
        folder, run: the run's folder and hash; None for a backbone with published weights.
        preprocess: the pixel convention, see `data.pixels_named`.
        resize, crop: the short side is resized to the first, then a square of the second is cropped
            from the center.
        shrink: the short side to which large files are decoded; 0 decodes them at full size.
        weights: the first sixteen digits of the SHA-256 of all weights.
    """

    folder: str | None
    run: str | None
    epoch: int
    backbone: str
    dim: int
    preprocess: str
    resize: int
    crop: int
    shrink: int
    weights: str

    @property
    def name(self) -> str:
        """The model, for messages."""
        return self.backbone if self.folder is None else f"the run {self.folder}"

    def same_as(self, other: ModelIdentity) -> bool:
        """Whether both give an image the same embedding; the folder may have moved."""
        names = ("weights", "dim", "preprocess", "resize", "crop", "shrink")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def check_same(self, other: ModelIdentity, index: Path, advice: str) -> None:
        """An error if this model, which made the index, and the other embed differently."""
        if not self.same_as(other):
            now = "which has changed since" if other.name == self.name else f"not by {other.name}"
            made = f"{index} was made by {self.name} (weights {self.weights})"
            raise ValueError(f"{made}, {now} (weights {other.weights}): {advice}")


class ImageEmbedder:
    """The model of an index: images in, embeddings of unit length out. Thread-safe."""

    def __init__(self, model: Trained, identity: ModelIdentity | None = None) -> None:
        self.model = model
        self.identity = identity or _identity(model, os.path.abspath(model.folder))
        self.dim = self.identity.dim

    def embed(self, images: Picture | Iterable[Picture], workers: int | None = None) -> Tensor:
        """Embeddings (n, d), float32 on the CPU, of unit length; a single image gives (1, d).

        A file has one embedding, whether given by its path, opened, or uploaded.
        """
        return normalize_rows_(self.model.embed(images, workers))


def open_model(
    name: str | os.PathLike[str],
    device: str | None = None,
    *,
    backbone: str | None = None,
    trust: bool = False,
) -> ImageEmbedder:
    """The model of a run's folder, or a backbone with published weights.

    Args:
        backbone, trust: for a run with a backbone of one's own, see `ps.load`.
    """
    place = Path(name).expanduser()
    if (place / RUN).exists():
        return ImageEmbedder(load(place, device, backbone=backbone, trust=trust))
    name, packaged = str(name), [key for key, item in BACKBONES.items() if item.published.package]
    if name not in packaged and not is_plain_name(name):
        known = f"{choices_hint(name, packaged)}, timm:NAME, hf:NAME"
        advice = f"give a run's folder, or for a backbone {known}"
        raise ValueError(f"{existing_folder(name, advice)} is not the folder of a run: {advice}")
    # The pooled features of a backbone, as a run without training.
    pooling: Pooling = "own" if is_library(name) else "average"
    net = make_embedder(name, dim=None, pretrained=True, pooling=pooling).eval()
    net = net.to(Resources(device=device).torch_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = Run(backbone=name, dim=None, pretrained=True, pooling=pooling)
    size = net.image_size
    recorded = Recorded(run, run.identity, {}, (), size, round(size * net.resize))
    model = Trained(Path(name), recorded, net, torch.empty(0, net.dim), epoch=0)
    return ImageEmbedder(model, _identity(model, None))


def _identity(model: Trained, folder: str | None) -> ModelIdentity:
    recorded = model.recorded
    return ModelIdentity(
        folder=folder,
        run=None if folder is None else recorded.identity,
        epoch=model.epoch,
        backbone=model.run.backbone,
        dim=model.embedder.dim,
        preprocess=model.embedder.preprocess,
        resize=recorded.short_side,
        crop=recorded.image_size,
        shrink=model.shrink,
        weights=weights_digest(model.embedder),
    )


def weights_digest(net: Embedder) -> str:
    """A hash of the weights that is independent of device and memory format."""
    digest = hashlib.sha256(f"{net.pooling} {net.normalize}".encode())
    for name, tensor in sorted(net.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
