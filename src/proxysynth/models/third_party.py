"""Backbones that are not ours: a function of the user's by name, timm's by name.

Nothing is imported before it is asked for. A backbone is any `nn.Module` that turns pictures into
feature maps (n, channels, h, w) or vectors (n, channels). It may say what it wants in attributes:
`in_channels`, `preprocess`, `image_size`, and `stages` (a tuple of names of its parts that, run in
this order, are the whole); what it does not say is as for ImageNet.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor, nn

from proxysynth.values import nearest

IMAGENET_MEAN = (0.485, 0.456, 0.406)


def call_by_name(spec: str, pretrained: bool | None) -> nn.Module:
    """The module that `package.module:function` returns.

    The function is called with `pretrained=` if the caller says and the function takes it, and
    without arguments otherwise.
    """
    module_name, _, function_name = spec.partition(":")
    module = _import(module_name, spec)
    function = getattr(module, function_name, None)
    if not callable(function):
        functions = [name for name, item in vars(module).items() if callable(item)]
        raise ValueError(
            f"{module_name} has no function {function_name!r}: {nearest(function_name, functions)}"
        )
    takes = _arguments(function)
    if pretrained and "pretrained" not in takes:
        raise ValueError(
            f"{spec} was asked for pretrained weights but takes no argument `pretrained`: "
            "add it to the function, or leave the choice to it"
        )
    said = pretrained is not None and "pretrained" in takes
    try:
        network = function(pretrained=pretrained) if said else function()
    except Exception as error:  # whatever the user's own function raises
        raise ValueError(
            f"{spec} must return an nn.Module when called "
            f"{'with pretrained alone' if said else 'without arguments'}, but it raised "
            f"{_named(error)}"
        ) from error
    if not isinstance(network, nn.Module):
        raise ValueError(f"{spec} must return an nn.Module, got {type(network).__name__}")
    return network


def call_timm(name: str, pretrained: bool | None) -> nn.Module:
    """timm's network of that name, without its classifier."""
    try:
        timm = importlib.import_module("timm")
    except Exception as error:  # timm imports torchvision, whose failures have many classes
        raise ValueError(
            f"timm:{name} needs the package timm, which cannot be imported here "
            f"({_line(error)}): pip install timm, or choose a backbone of our own"
        ) from error
    wanted = {"pretrained": pretrained is not False, "num_classes": 0}
    try:
        network = timm.create_model(name, global_pool="", **wanted)
        # Feature maps are ours to pool; anything else (tokens) is pooled as the model pools it.
        if _probe(network, 3, _timm_size(network)).ndim != 4:
            network = timm.create_model(name, **wanted)
    except Exception as error:  # an unknown name, no network, a missing file: timm's own classes
        raise ValueError(f"timm could not make {name!r}: {_line(error)}") from error
    mean = tuple(getattr(network, "pretrained_cfg", {}).get("mean", IMAGENET_MEAN))
    if mean != IMAGENET_MEAN:
        raise ValueError(
            f"timm:{name} wants pixels around {mean}, and we prepare them as for ImageNet, around "
            f"{IMAGENET_MEAN}: choose a network of that convention"
        )
    network.image_size = _timm_size(network)
    return network


def measure_channels(backbone: nn.Module, preprocess: str, image_size: int) -> int:
    """How many features a backbone gives, from one blank picture; its state stays as it was."""
    in_channels = getattr(backbone, "in_channels", 1 if preprocess == "grey" else 3)
    try:
        out = _probe(backbone, in_channels, image_size)
    except Exception as error:  # whatever the user's own network raises
        raise ValueError(
            f"the backbone must take pictures (n, {in_channels}, {image_size}, {image_size}), "
            f"but {type(backbone).__name__} refused them: {_named(error)}"
        ) from error
    if not isinstance(out, Tensor) or out.ndim not in (2, 4):
        given = tuple(out.shape) if isinstance(out, Tensor) else f"a {type(out).__name__}"
        raise ValueError(
            "the backbone must give feature maps (n, channels, h, w) or vectors (n, channels), but "
            f"{type(backbone).__name__} gave {given}: wrap it in a module that picks one of these"
        )
    return out.shape[1]


def _probe(backbone: nn.Module, in_channels: int, image_size: int) -> Tensor:
    modes = {module: module.training for module in backbone.modules()}
    parameter = next(backbone.parameters(), torch.zeros(()))
    picture = torch.zeros(1, in_channels, image_size, image_size, device=parameter.device)
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            return backbone.eval()(picture)
    finally:
        for module, mode in modes.items():
            module.training = mode


def _arguments(function: Callable[..., object]) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some that are written in C do not say
        return ()


def _import(module_name: str, spec: str) -> ModuleType:
    """Import, the current folder included: that is where a user's own file mostly lies."""
    here = [os.getcwd()] if os.getcwd() not in sys.path else []
    sys.path.extend(here)
    try:
        return importlib.import_module(module_name)
    except Exception as error:  # whatever the user's own module raises
        raise ValueError(
            f"backbone {spec!r} needs the module {module_name!r}, which cannot be imported: "
            f"{_line(error)}"
        ) from error
    finally:
        for folder in here:
            sys.path.remove(folder)


def _timm_size(network: nn.Module) -> int:
    return int(getattr(network, "pretrained_cfg", {}).get("input_size", (3, 224, 224))[-1])


def _line(error: BaseException) -> str:
    """The first line of what an error says; some say nothing but their class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {_line(error)}"
