"""Every backbone by name, and `make_embedder`, which turns a name into a network ready to train.

Your own backbone is any `nn.Module` from images to feature maps (n, channels, h, w) or vectors
(n, channels). Optional attributes: `in_channels`, `preprocess`, `image_size` and `stages` (names of
its parts that, run in order, are the whole). ImageNet's conventions are the default. One in
`BACKBONES` may have `channels`, the number of features, which is measured otherwise.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from proxysynth.models import bn_inception, resnet
from proxysynth.models.bn_inception import BNInception
from proxysynth.models.conv4 import Conv4
from proxysynth.models.efficientnet_lite import VARIANTS, EfficientNetLite, packaged
from proxysynth.models.embedder import RESIZE, Embedder
from proxysynth.models.libraries import explained, make_timm, make_transformers
from proxysynth.models.weights import Published, load_initial_weights, load_weights
from proxysynth.values import choices_hint, look_up


@dataclass(frozen=True)
class Backbone:
    """A backbone that can be made."""

    make: Callable[..., nn.Module]  # of a width factor and the images' side, if it is scalable
    preprocess: str = "imagenet"  # its pixel convention (see `Embedder`)
    image_size: int = 224  # default side of the images
    published: Published = Published()  # the weights it can start from
    scalable: bool = False  # whether its width can be changed


BACKBONES: dict[str, Backbone] = {
    "conv4": Backbone(lambda width, size: Conv4(width), "grey", 32, scalable=True),
    **{
        name: Backbone(
            partial(EfficientNetLite, lite), "efficientnet_lite", lite.image_size, packaged(name)
        )
        for name, lite in VARIANTS.items()
    },
    "bn_inception": Backbone(BNInception, "caffe_bgr", published=bn_inception.PUBLISHED),
    "resnet50": Backbone(resnet.ResNet50, published=resnet.PUBLISHED),
    "preact_resnet18": Backbone(
        lambda width, size: resnet.PreActResNet18(width, stride=2 if size >= 64 else 1),
        image_size=32,
        published=Published(classifier=("linear.",)),
        scalable=True,
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
    architecture: Mapping[str, Any] | None = None,
) -> Embedder:
    """A network from images to embeddings; `dim`, `pooling`, `weights` and `width` are as in `Run`.

    Args:
        backbone: a name in `BACKBONES`; `timm:name`; `hf:name_or_folder` of transformers; an
            `nn.Module`, or your own function that returns one as `package.module:function`.
        normalize: embeddings of unit length.
        pretrained: True for published weights, False for random ones. None: published weights if
            they come in a package, otherwise random ones, with a warning if others are published.
        seed: of the random weights. torch's random state is not changed.
        image_size, preprocess: side of the images and pixel convention; default: the network's own.
        frozen_batch_norm: keep batch-norm statistics in training; scale and shift are learned. As
            in the paper on CUB-200-2011 and CARS196, where batches of few classes would distort
            ImageNet's statistics.                                               [supplement C.2]
        architecture: builds an `hf:` network without its folder, see `models.libraries`.
    """
    for name, value in (("dim", dim), ("width", width), ("image_size", image_size)):
        if value is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, got {value}")
    named = not isinstance(backbone, nn.Module) and ":" not in str(backbone)
    known = look_up(str(backbone), BACKBONES, "backbone") if named else None
    if width != 1.0 and not (known and known.scalable):
        scalable = ", ".join(name for name, item in BACKBONES.items() if item.scalable)
        raise ValueError(f"width {width} is for {scalable} only: others have a fixed width")
    with torch.random.fork_rng(devices=[]):
        # torch.manual_seed would reseed the GPUs as well.
        torch.default_generator.manual_seed(seed)
        if known:
            sizes = (width, image_size or known.image_size) if known.scalable else ()
            network = known.make(*sizes)
            load_initial_weights(network, str(backbone), known.published, pretrained, weights)
        else:
            published = pretrained if weights is None else False
            library, _, name = str(backbone).partition(":")
            if isinstance(backbone, nn.Module):
                network = backbone
            elif library == "timm":
                network = make_timm(name, published is not False, pooling, image_size)
            elif library == "hf":
                network = make_transformers(name, published is not False, pooling, architecture)
            else:
                network = call_by_name(backbone, published)
            if weights is not None:
                load_weights(network, weights, Published())

        def declared(name: str, default: Any) -> Any:
            value = getattr(known or network, name, default)
            return value if isinstance(value, type(default)) else default

        pixels = preprocess or declared("preprocess", "imagenet")
        side, resize = image_size or declared("image_size", 224), declared("resize", RESIZE)
        channels = getattr(network, "channels", None) if known else None
        if channels is None:
            channels = measure_channels(network, pixels, side)
        net = Embedder(network, channels, dim, pooling, normalize, pixels, side, resize)
    net.batch_norm_frozen = frozen_batch_norm
    return net.train() if frozen_batch_norm else net


def call_by_name(spec: str, pretrained: bool | None) -> nn.Module:
    """The module that `package.module:function` returns, called with `pretrained=` if that is not
    None and the function takes it, and without arguments otherwise."""
    module_name, _, function_name = spec.partition(":")
    path = list(sys.path)
    sys.path.append(os.getcwd())  # where a user's own file usually is
    try:
        with explained(f"{spec} needs the module {module_name!r}, which cannot be imported"):
            module = importlib.import_module(module_name)
    finally:
        sys.path[:] = path
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [name for name, item in vars(module).items() if callable(item)]
        advice = choices_hint(function_name, functions)
        raise ValueError(f"{module_name} has no function {function_name!r}: {advice}")
    options: dict[str, bool] = {}
    if pretrained is not None and "pretrained" in inspect.signature(function).parameters:
        options = {"pretrained": pretrained}
    elif pretrained:
        raise ValueError(f"{spec} takes no argument `pretrained`: add it, or leave pretrained out")
    called = "with pretrained alone" if options else "without arguments"
    with explained(f"{spec} must return an nn.Module when called {called}, but it failed"):
        network = function(**options)
    if not isinstance(network, nn.Module):
        raise ValueError(f"{spec} must return an nn.Module, got {type(network).__name__}")
    return network


def measure_channels(backbone: nn.Module, preprocess: str, image_size: int) -> int:
    """The number of features, from one blank image; the backbone's state does not change."""
    in_channels = getattr(backbone, "in_channels", 1 if preprocess == "grey" else 3)
    kind, modes = type(backbone).__name__, {m: m.training for m in backbone.modules()}
    parameter = next(backbone.parameters(), torch.zeros(()))
    shape = (1, in_channels, image_size, image_size)
    try:
        failing = explained(f"the backbone must take images {shape}, but {kind} failed")
        with failing, torch.no_grad(), torch.random.fork_rng(devices=[]):
            out = backbone.eval()(torch.zeros(shape, device=parameter.device))
    finally:
        for module, mode in modes.items():
            module.training = mode
    if not isinstance(out, Tensor) or out.ndim not in (2, 4):
        given = f"{kind} returned {tuple(getattr(out, 'shape', ())) or type(out).__name__}"
        raise ValueError(f"the backbone must return (n, channels, h, w) or (n, channels), {given}")
    return out.shape[1]
