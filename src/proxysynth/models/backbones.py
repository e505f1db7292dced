"""Every backbone by name, and `make_embedder`, which turns a name into a network ready to train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from proxysynth.models import bn_inception, efficientnet_lite, preact_resnet, resnet, third_party
from proxysynth.models.conv4 import Conv4
from proxysynth.models.embedder import Embedder, freeze_batch_norm
from proxysynth.models.pretrained import start
from proxysynth.models.weights import Published, load_weights
from proxysynth.values import look_up


@dataclass(frozen=True)
class Backbone:
    """What is known of a backbone before it is made.

    Args:
        make: from a width factor and the pictures' side to the network.
        preprocess: which pixels it wants (see `Embedder`).
        image_size: the pictures' side, unless the user says otherwise.
        scalable: whether its width can be changed.
        published: the weights it can start from.
    """

    make: Callable[[float, int], nn.Module]
    preprocess: str
    image_size: int
    scalable: bool = False
    published: Published = field(default_factory=Published)


def _lite(name: str) -> Backbone:
    variant = efficientnet_lite.VARIANTS[name]
    return Backbone(
        lambda width, size: efficientnet_lite.EfficientNetLite(variant),
        preprocess="efficientnet_lite",
        image_size=variant.image_size,
        published=efficientnet_lite.published(name),
    )


BACKBONES: dict[str, Backbone] = {
    "conv4": Backbone(lambda width, size: Conv4(width), "grey", image_size=32, scalable=True),
    **{name: _lite(name) for name in efficientnet_lite.VARIANTS},
    "bn_inception": Backbone(
        lambda width, size: bn_inception.BNInception(),
        preprocess="caffe_bgr",
        image_size=224,
        published=bn_inception.PUBLISHED,
    ),
    "resnet50": Backbone(
        lambda width, size: resnet.ResNet50(),
        preprocess="imagenet",
        image_size=224,
        published=resnet.PUBLISHED,
    ),
    "preact_resnet18": Backbone(
        lambda width, size: preact_resnet.PreActResNet18(width, stride=2 if size >= 64 else 1),
        preprocess="imagenet",
        image_size=32,
        scalable=True,
        published=preact_resnet.PUBLISHED,
    ),
}


def make_embedder(
    backbone: str | nn.Module,
    dim: int | None = 512,
    *,
    pooling: str = "average",
    normalize: bool = True,
    pretrained: bool | None = None,
    weights: str | Path | None = None,
    seed: int = 0,
    width: float = 1.0,
    image_size: int | None = None,
    preprocess: str | None = None,
    frozen_batch_norm: bool = False,
) -> Embedder:
    """A network from pictures to embeddings.

    Args:
        backbone: a name in `BACKBONES`; `package.module:function`, a function of the user's that
            returns an `nn.Module`; `timm:name`; or an `nn.Module`.
        dim: of the embeddings; None keeps the backbone's features.
        pooling: "average", "max" or "both" (their sum).
        normalize: embeddings of unit length.
        pretrained: True asks for published weights, False for random ones. None takes published
            weights that come in a package, and otherwise random ones, with a warning if a file of
            published weights could have been given.
        weights: a file of weights for the backbone, `.safetensors` or `.pth`.
        seed: of the random weights. The caller's random numbers are left as they were.
        width: a factor on the channels, for the networks that have one.
        image_size: the pictures' side; None is the network's own.
        preprocess: which pixels the network gets, if other than its own.
        frozen_batch_norm: see `freeze_batch_norm`.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size must be 1 or more, got {image_size}")
    ours = isinstance(backbone, str) and ":" not in backbone
    known = look_up(str(backbone), BACKBONES, "backbone") if ours else None
    if width != 1.0 and not (known and known.scalable):
        scalable = ", ".join(name for name, item in BACKBONES.items() if item.scalable)
        raise ValueError(f"width {width} is for {scalable} only: any other backbone has its own")
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the GPUs as well, and nothing would put them back.
        torch.default_generator.manual_seed(seed)
        if known:
            network = known.make(width, image_size or known.image_size)
            start(network, str(backbone), known.published, pretrained, weights)
        else:
            network = _foreign(backbone, pretrained if weights is None else False)
            known = _describe(network)
            if weights is not None:
                load_weights(network, weights, known.published)
        pixels, side = preprocess or known.preprocess, image_size or known.image_size
        channels = network.channels if ours else third_party.measure_channels(network, pixels, side)
        net = Embedder(network, channels, dim, pooling, normalize, pixels, side)
    return freeze_batch_norm(net) if frozen_batch_norm else net


def _foreign(backbone: str | nn.Module, pretrained: bool | None) -> nn.Module:
    if isinstance(backbone, nn.Module):
        return backbone
    if not isinstance(backbone, str):
        raise ValueError(
            f"a backbone is a name, package.module:function or an nn.Module, got {backbone!r}"
        )
    if backbone.startswith("timm:"):
        return third_party.call_timm(backbone.removeprefix("timm:"), pretrained)
    return third_party.call_by_name(backbone, pretrained)


def _describe(network: nn.Module) -> Backbone:
    """What a foreign network says of itself; ImageNet's ways where it says nothing."""
    preprocess = getattr(network, "preprocess", None)
    size = getattr(network, "image_size", None)
    return Backbone(
        lambda width, size: network,
        preprocess=preprocess if isinstance(preprocess, str) else "imagenet",
        image_size=size if isinstance(size, int) else 224,
    )
