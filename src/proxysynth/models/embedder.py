"""Embedder: a backbone, a pooling, an embedding layer.

images (n, ch, h, w) -> backbone -> pooling (n, channels) -> linear (n, d) -> unit length
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from proxysynth.values import look_up

Pooling = Literal["average", "max", "both", "class", "own"]
Mix = Callable[[Tensor], Tensor]

RESIZE = 256 / 224  # the side to which a photograph is resized, relative to its central crop

POOLINGS: dict[str, Callable[[Tensor], Tensor] | None] = {
    "average": lambda maps: maps.mean(dim=(2, 3)),
    "max": lambda maps: maps.amax(dim=(2, 3)),
    "both": lambda maps: maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3)),
    # For networks that pool their tokens themselves, see `models.libraries`.
    "class": None,
    "own": None,
}


class Embedder(nn.Module):
    """A network from images to embeddings; see `make_embedder` for the arguments not listed.

    Args:
        backbone: returns feature maps (n, channels, h, w), or vectors, which are not pooled.
        normalize: embeddings of unit length. A loss of raw dot products (Softmax) needs False.
        preprocess: the backbone's pixel convention, see `data.pixels_named`.
        resize: a photograph's short side is resized to this times `image_size`, then cropped.
    """

    def __init__(
        self,
        backbone: nn.Module,
        channels: int,
        dim: int | None = None,
        pooling: str = "average",
        normalize: bool = True,
        preprocess: str = "imagenet",
        image_size: int = 224,
        resize: float = RESIZE,
    ) -> None:
        super().__init__()
        self.backbone, self.channels = backbone, channels
        self.dim = channels if dim is None else dim
        self.pooling, self.normalize = pooling, normalize
        self.preprocess, self.image_size, self.resize = preprocess, image_size, resize
        self.batch_norm_frozen = False  # True from `make_embedder(frozen_batch_norm=True)`
        self._pool = look_up(pooling, POOLINGS, "pooling")
        self.embedding = nn.Identity() if dim is None else nn.Linear(channels, dim)
        if isinstance(self.embedding, nn.Linear):
            nn.init.zeros_(self.embedding.bias)

    def forward(self, images: Tensor, mix: Mix | None = None, at: int = 0) -> Tensor:
        """Embeddings (n, d) of preprocessed images (n, ch, h, w). For mixup, `mix` is applied to
        the input of stage `at`: 0 is the images, `len(net.stages)` the last feature maps."""
        x = self.embedding(self.features(images, mix, at))
        return F.normalize(x, dim=1) if self.normalize else x

    def features(self, images: Tensor, mix: Mix | None = None, at: int = 0) -> Tensor:
        """The backbone's pooled features (n, channels), the input of the embedding layer."""
        given = images.shape[1]
        takes = getattr(self.backbone, "in_channels", given)
        if given != takes:
            raise ValueError(f"the backbone takes images of {takes} channels, got {given}")
        if mix is None:
            maps = self.backbone(images)
        else:
            maps = images
            for i, name in enumerate(self.stages):
                stage = self.backbone if name == "backbone" else getattr(self.backbone, name)
                maps = stage(mix(maps) if i == at else maps)
            maps = mix(maps) if at == len(self.stages) else maps
        if maps.ndim != 4:
            return maps
        if self._pool is None:
            advice = "use average, max or both"
            raise ValueError(f"pooling={self.pooling} cannot pool feature maps: {advice}")
        return self._pool(maps)

    @property
    def stages(self) -> tuple[str, ...]:
        """Parts of the backbone between which mixup can mix; a foreign backbone is one part."""
        stages = getattr(self.backbone, "stages", None)
        named = isinstance(stages, tuple) and all(isinstance(name, str) for name in stages)
        return stages if named and stages else ("backbone",)

    def train(self, mode: bool = True) -> Embedder:
        """As in torch, but frozen batch norm stays in evaluation mode."""
        super().train(mode)
        for module in self.modules() if self.batch_norm_frozen else ():
            if isinstance(module, _BatchNorm):
                module.eval()
        return self
