"""Initial weights: random, from a package, or from a file that is read without running code."""

from __future__ import annotations

import hashlib
import math
import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from proxysynth.errors import import_optional

# Keys under which training scripts nest the state dict in their checkpoints.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
OURS = "net.backbone."  # how a run's own file names the weights of the backbone
OTHER = "so it belongs to another network"
COUNTER = "num_batches_tracked"  # absent from files before torch 0.4.1, and unused


@dataclass(frozen=True)
class Published:
    """The published weights of a network."""

    files: tuple[str, ...] = ()  # their names, which end in the first digits of their SHA-256
    where: str = ""  # where to get them, as half a sentence
    package: str | None = None  # the Python package that contains the file, if any
    classifier: tuple[str, ...] = ()  # prefixes of the keys of the classifier, which is not used
    name_of: Callable[[str], str] = str  # the published name of a key of our state dict

    def knows(self, sha256: str) -> bool:
        digits = (re.sub(r".*-([0-9a-f]+)\..*", r"\1", name) for name in self.files)
        return sha256.startswith(tuple(digits))


def load_weights(network: nn.Module, path: str | Path, published: Published) -> None:
    """Load a file into the network; of a run's `model.safetensors`, the backbone. A missing, extra
    or misshapen key is an error."""
    state = read_weights(path)
    backbone = {k.removeprefix(OURS): v for k, v in state.items() if k.startswith(OURS)}
    fitted = fit(network.state_dict(), backbone or state, published, str(path))
    network.load_state_dict(fitted, strict=False)
    sha256 = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if published.files and not backbone and not published.knows(sha256):
        names = " or ".join(published.files)
        advice = "test it with `proxysynth data check weights PATH`"
        warnings.warn(f"{path} is not a published file ({names}): {advice}", stacklevel=2)


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file or of a `.pth` that holds nothing but tensors."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no weights file {path}: check the path")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about what it then refuses
            saved = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = found[1] if found else "something other than tensors"
        advice = "could run code: save it as .safetensors"
        raise ValueError(f"{path} is refused, since it holds {what} and {advice}") from error
    except (safetensors.SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        advice = "save the state dict as .safetensors or .pth"
        raise ValueError(f"{path} cannot be read as weights: {advice}") from error
    for wrapper in WRAPPERS:
        if isinstance(saved, Mapping) and isinstance(saved.get(wrapper), Mapping):
            saved = saved[wrapper]
    if not isinstance(saved, Mapping) or not all(isinstance(v, Tensor) for v in saved.values()):
        got = f"got a {type(saved).__name__}"
        raise ValueError(f"{path} must hold a state dict, {got}: save network.state_dict()")
    # DataParallel puts a prefix before each key.
    return {str(key).removeprefix("module."): value for key, value in saved.items()}


def fit(
    own: Mapping[str, Tensor], state: Mapping[str, Tensor], published: Published, source: str
) -> dict[str, Tensor]:
    """The tensors of `state` under the keys of `own`; an error names the first key that differs."""
    # A file saved from our own network has our own names.
    name_of = str if all(key in state for key in own) else published.name_of
    rest = {key: value for key, value in state.items() if not key.startswith(published.classifier)}
    found = {key: rest.pop(name_of(key)) for key in own if name_of(key) in rest}
    for key, theirs in found.items():
        ours = own[key]
        if theirs.shape == (1, *ours.shape):
            found[key] = theirs = theirs[0]  # BN-Inception's port has norms of shape (1, channels)
        if theirs.shape != ours.shape:
            shapes = f"has the shape {tuple(theirs.shape)} instead of {tuple(ours.shape)}"
            raise ValueError(f"{source} does not fit: {name_of(key)} {shapes}, {OTHER}")
    missing = [name_of(key) for key in own if key not in found]
    for keys, verb in ((missing, "lacks"), (rest, "has, and the network has not,")):
        keys = [key for key in keys if not key.endswith(COUNTER)]
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(f"{source} does not fit: it {verb} {keys[0]}{more}, {OTHER}")
    return found


def load_initial_weights(
    network: nn.Module,
    name: str,
    published: Published,
    pretrained: bool | None,
    weights: str | Path | None,
) -> None:
    """Load the weights that were asked for; the network has random ones already."""
    advice = (
        f"the published weights of {name} are a file (`proxysynth data check weights PATH` tests "
        f"it): get {' or '.join(published.files)}, {published.where}, and pass --set weights=PATH"
    )
    if weights is not None:
        if published.files and not published.package and not Path(weights).is_file():
            raise FileNotFoundError(f"there is no weights file {weights}; {advice}")
        load_weights(network, weights, published)
    elif pretrained is False:
        return
    elif published.package:
        otherwise = "to train without them, use --from-scratch"
        module = import_optional(published.package, "pretrained", name, otherwise)
        file = getattr(module, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path()
        load_weights(network, file, published)
    elif published.files:
        if pretrained:
            raise ValueError(f"{advice}, or --from-scratch for random weights")
        warnings.warn(f"{name} starts from random weights; {advice}", stacklevel=3)
    elif pretrained:
        raise ValueError(
            f"{name} has no published weights: use --from-scratch or --set weights=PATH"
        )


def init_weights(network: nn.Module) -> None:
    """Draw every convolution from N(0, 2 / fan_out), so that ReLU keeps gradients at one scale.

    The fan of a grouped convolution is that of one group: a depthwise filter feeds a single
    channel, and torch's own `kaiming_normal_` would start it far too small.     [He et al., 2015]
    """
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = math.prod(module.kernel_size) * module.out_channels / module.groups
            nn.init.normal_(module.weight, 0.0, (2.0 / fan_out) ** 0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
