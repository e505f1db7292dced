"""A trained run, ready to embed pictures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from proxysynth.data import PIXELS, CenterCrop
from proxysynth.data.images import open_shrunk
from proxysynth.errors import TrainingFailed
from proxysynth.models.embedder import Embedder
from proxysynth.training.checkpoint import Checkpoints
from proxysynth.training.embed import AT_ONCE
from proxysynth.training.learner import part
from proxysynth.training.prepare import make_network
from proxysynth.training.resources import Resources
from proxysynth.training.run import Run
from proxysynth.training.run_folder import CHECKPOINT, RUN, Recorded, read_run
from proxysynth.training.tensor_file import MODEL, read_tensors

Picture = str | os.PathLike[str] | Image.Image | NDArray[np.uint8]
"""A file, a Pillow image, or bytes (h, w) or (h, w, 3)."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained model.

    Args:
        folder: the run's folder.
        recorded: what its `run.json` says.
        embedder: the network, in evaluation mode.
        proxies: (c, d) or (c, k, d), in the order of `classes`.
        epoch: whose weights these are.
    """

    folder: Path
    recorded: Recorded
    embedder: Embedder
    proxies: Tensor
    epoch: int

    @property
    def run(self) -> Run:
        return self.recorded.run

    @property
    def classes(self) -> tuple[str, ...]:
        """The seen classes."""
        return self.recorded.classes

    @property
    def transform(self) -> CenterCrop:
        """What makes a picture the network's size, as when the run was tested."""
        return CenterCrop(self.recorded.short_side, self.recorded.image_size)

    def embed(self, pictures: Picture | Iterable[Picture], workers: int | None = None) -> Tensor:
        """Embeddings (n, d), float32 on the CPU, of files or images; one alone gives (1, d).

        Args:
            workers: threads that decode files; None for as many as there are processors.
        """
        alone = isinstance(pictures, (str, os.PathLike, Image.Image)) or _is_one(pictures)
        several = cast(Iterable[Picture], [pictures] if alone else pictures)
        device = self.proxies.device
        made = [torch.empty(0, self.embedder.dim)]
        with ThreadPoolExecutor(max(1, Resources(workers=workers).loader_workers)) as pool:
            for chunk in _chunks(several):
                numbers = np.stack(list(pool.map(self._numbers, chunk)))
                images = torch.from_numpy(numbers).permute(0, 3, 1, 2).to(device)
                with torch.inference_mode():
                    made.append(self.embedder(images).float().cpu())
        return torch.cat(made)

    def _numbers(self, picture: Picture) -> NDArray[np.float32]:
        """One picture as the network takes it, (h, w, channels)."""
        pixels = PIXELS[self.embedder.preprocess]
        image = self._opened(picture)
        if image.mode != pixels.mode:
            image = image.convert(pixels.mode)
        made = self.transform(image)
        return pixels.normalize(made.reshape(*made.shape[:2], pixels.channels))

    def _opened(self, picture: Picture) -> Image.Image:
        side = self.run.cache_side
        side = self.recorded.short_side if side is None else side
        if isinstance(picture, (str, os.PathLike, Image.Image)):
            return open_shrunk(picture, side)
        if _is_one(picture) and picture.shape[2:] in ((), (3,)) and picture.size:
            return open_shrunk(Image.fromarray(picture), side)
        got = type(picture).__name__
        if isinstance(picture, np.ndarray):
            got = f"{picture.dtype} {picture.shape}"
        raise ValueError(
            f"embed takes paths, Pillow images or uint8 arrays (h, w) or (h, w, 3), got {got}: "
            "convert it"
        )


def load(
    folder: str | os.PathLike[str],
    device: str | None = None,
    *,
    backbone: str | None = None,
    trust: bool = False,
) -> Trained:
    """The model of a run: of its reported epoch, or of its last checkpoint if it is not finished.

    Args:
        folder: the run's folder.
        device: see `Resources`.
        backbone: build the network with this backbone, such as "module:function". Default: the
            one that `run.json` names, if that is not code.
        trust: import and call the code that `run.json` names.
    """
    place = Path(folder).expanduser()
    recorded = read_run(place)
    run = recorded.run if backbone is None else replace(recorded.run, backbone=backbone)
    require_trust(run.backbone, place / RUN, trust or backbone is not None)
    tensors, epoch = _weights(place, recorded)
    net = make_network(run, recorded.image_size, trained=True)
    try:
        net.load_state_dict(part(tensors, "net."))
        proxies = tensors["proxies"]
    except (RuntimeError, KeyError) as error:
        raise TrainingFailed(
            f"the weights in {place} do not fit the backbone {recorded.run.backbone}: it is not "
            "the network that was trained"
        ) from error
    where = Resources(device=device).torch_device()
    memory = torch.channels_last if recorded.run.channels_last else torch.contiguous_format
    net = net.to(where, memory_format=memory).eval()  # type: ignore[call-overload]
    return Trained(place, recorded, net, proxies.to(where), epoch)


def require_trust(backbone: str, source: object, trusted: bool) -> None:
    """Raise ValueError if a file names a backbone that is code, unless the user has asked for it.

    A file from somebody else is data: opening it must not run anything.
    """
    module, colon, function = backbone.partition(":")
    if colon and module != "timm" and not trusted:
        raise ValueError(
            f"{source} names the backbone {backbone}, which would import the module {module} and "
            f"call {function}: if you trust that code, add --backbone {backbone} or --trust (in "
            f"Python: backbone={backbone!r} or trust=True)"
        )


def _weights(folder: Path, recorded: Recorded) -> tuple[dict[str, Tensor], int]:
    if (folder / MODEL).exists():
        tensors, about = read_tensors(folder / MODEL)
        if not isinstance(about.get("epoch"), int):
            raise TrainingFailed(
                f"{folder / MODEL} does not say of which epoch it is, so it is not the one that "
                "was trained here: put that one back"
            )
        return tensors, about["epoch"]
    loaded = Checkpoints(folder / CHECKPOINT).load(recorded.identity)
    if loaded is None:
        raise TrainingFailed(
            f"{folder} has no weights yet: train it further, the first checkpoint comes after the "
            "first epoch"
        )
    return loaded.tensors, loaded.state.epoch


def _is_one(item: Any) -> TypeGuard[NDArray[np.uint8]]:
    """Whether an array is one picture, if perhaps with channels that are not taken, not several."""
    return isinstance(item, np.ndarray) and item.dtype == np.uint8 and (
        item.ndim == 2 or (item.ndim == 3 and item.shape[2] in (1, 3, 4))
    )  # fmt: skip


def _chunks(pictures: Iterable[Picture]) -> Iterator[Sequence[Picture]]:
    chunk: list[Picture] = []
    for picture in pictures:
        chunk.append(picture)
        if len(chunk) == AT_ONCE:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
