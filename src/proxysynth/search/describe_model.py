"""Which model made an index, and that model again: embeddings of two models cannot be compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from proxysynth.data import open_picture
from proxysynth.data.transforms import resized
from proxysynth.models.backbones import BACKBONES, make_embedder
from proxysynth.models.embedder import Embedder
from proxysynth.retrieval.similarity import unit
from proxysynth.training.load import Picture, Trained, load
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import RUN, Recorded
from proxysynth.values import nearest

Source = Picture | BinaryIO
"""What is embedded: a file by path or opened, a Pillow image, or bytes (h, w) or (h, w, 3)."""


@dataclass(frozen=True)
class ModelIdentity:
    """Everything an embedding depends on, beside the picture.

    Args:
        folder: of the run; None for a backbone with published weights.
        run: the run's hash; None without a run.
        epoch: whose weights these are.
        backbone: its name.
        dim: of the embeddings.
        preprocess: the pixel convention, a key of `data.PIXELS`.
        resize, crop: the short side is brought to the first, the middle square of the second is
            cut out.
        shrink: the short side to which large files are decoded; 0 decodes them whole.
        weights: sixteen digits of the SHA-256 of all weights.
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
        """The model for people."""
        return self.backbone if self.folder is None else f"the run {self.folder}"

    def same_as(self, other: ModelIdentity) -> bool:
        """Whether both give a picture one embedding: the folder may have moved."""
        return self._essence() == other._essence()

    def _essence(self) -> tuple[object, ...]:
        picture = (self.preprocess, self.resize, self.crop, self.shrink)
        return (self.weights, self.dim, *picture)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> ModelIdentity:
        """Raises ValueError for what is not the JSON of an identity."""
        made = ModelIdentity(**told)
        for name in ("epoch", "dim", "resize", "crop", "shrink"):
            if type(getattr(made, name)) is not int:
                raise ValueError(f"{name} of the model is no whole number")
        for name in ("backbone", "preprocess", "weights"):
            if not isinstance(getattr(made, name), str):
                raise ValueError(f"{name} of the model is no text")
        return made


def several(pictures: Source | Iterable[Source]) -> Iterable[Source]:
    """One picture as a list of one, many as they are."""
    alone = isinstance(pictures, (str, os.PathLike, Image.Image, np.ndarray))
    if not alone and not isinstance(pictures, Iterable):
        alone = True  # whatever it is, it is refused as one picture
    return cast(Iterable[Source], [pictures] if alone or hasattr(pictures, "read") else pictures)


class PictureEmbedder:
    """A model as an index uses it: pictures in, embeddings of unit length out. Threads may share
    one."""

    def __init__(self, model: Trained, identity: ModelIdentity) -> None:
        self.model = model
        self.identity = identity
        self.dim = identity.dim

    def embed(self, pictures: Source | Iterable[Source], workers: int | None = None) -> Tensor:
        """Embeddings (n, d), float32 on the CPU, each of unit length; one alone gives (1, d).

        A file gives the same numbers by its path, opened, or uploaded as bytes.
        """
        made = self.model.embed((self.opened(one) for one in several(pictures)), workers)
        return unit(made.clone())

    def opened(self, picture: Source) -> Picture:
        """A file decoded and shrunken, as when the model was tested; an image as it is.

        Raises:
            UnreadablePicture: for a file that gives no picture.
        """
        if isinstance(picture, (Image.Image, np.ndarray)):
            return picture
        if not isinstance(picture, (str, os.PathLike)) and not hasattr(picture, "read"):
            raise ValueError(
                "a picture is a path, an opened file, a Pillow image or a uint8 array, got "
                f"{type(picture).__name__}"
            )
        side = self.identity.shrink
        image = open_picture(picture, at_least=2 * side or None)
        return resized(image, side) if side and min(image.size) > side else image


def open_model(name: str | os.PathLike[str], device: str | None = None) -> PictureEmbedder:
    """The model of a run's folder, or a backbone with the ImageNet weights of its package."""
    place = Path(name).expanduser()
    if (place / RUN).exists():
        model = load(place, device)
        return PictureEmbedder(model, _identity(model, os.path.abspath(place)))
    packaged = [key for key, item in BACKBONES.items() if item.published.package]
    if str(name) in packaged:
        model = _untrained(str(name), device)
        return PictureEmbedder(model, _identity(model, None))
    raise ValueError(
        f"expected the folder of a trained run or a backbone with ImageNet weights, got {name}: "
        f"{nearest(str(name), packaged)}, or train a run first"
    )


def _untrained(name: str, device: str | None) -> Trained:
    """A backbone's pooled features, as a run of no epoch."""
    net = make_embedder(name, dim=None, pretrained=True).eval()
    net = net.to(Resources(device=device).torch_device(), memory_format=torch.channels_last)  # type: ignore[call-overload]
    run = Run(backbone=name, dim=None, pretrained=True)
    size = net.image_size
    recorded = Recorded(run, run.identity, {}, (), size, round(size * 256 / 224))
    return Trained(Path(name), recorded, net, torch.empty(0, net.dim), epoch=0)


def _identity(model: Trained, folder: str | None) -> ModelIdentity:
    side, recorded = model.run.cache_side, model.recorded
    return ModelIdentity(
        folder=folder,
        run=None if folder is None else recorded.identity,
        epoch=model.epoch,
        backbone=model.run.backbone,
        dim=model.embedder.dim,
        preprocess=model.embedder.preprocess,
        resize=recorded.short_side,
        crop=recorded.image_size,
        shrink=recorded.short_side if side is None else side,
        weights=_digest(model.embedder),
    )


def _digest(net: Embedder) -> str:
    """Sixteen digits of the weights, the same on every device and in every memory format."""
    seen = hashlib.sha256(f"{net.pooling} {net.normalize}".encode())
    for name, tensor in sorted(net.state_dict().items()):
        seen.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        seen.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()[:16]
