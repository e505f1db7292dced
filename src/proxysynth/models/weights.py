"""Weights from a file: read without running code, checked key by key, then put into a network."""

from __future__ import annotations

import hashlib
import pickle
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

# Under one of these, training scripts hide the state dict in their checkpoints.
WRAPPERS = ("state_dict", "model_state_dict", "model", "net")
COUNTER = "num_batches_tracked"  # absent from files older than torch 0.4.1; nothing depends on it


def same_name(key: str) -> str:
    return key


@dataclass(frozen=True)
class Published:
    """The files that were published for a network, and how they name its parts.

    Args:
        files: their names, which end in the first digits of their SHA-256.
        where: an address, or what else leads to them.
        package: the Python package that carries the file, if one does.
        classifier: beginnings of the keys that belong to the classifier, which we leave out.
        name_of: the published name of a key of our state dict.
    """

    files: tuple[str, ...] = ()
    where: str = ""
    package: str | None = None
    classifier: tuple[str, ...] = ()
    name_of: Callable[[str], str] = same_name

    def knows(self, sha256: str) -> bool:
        digits = [re.sub(r".*-([0-9a-f]+)\..*", r"\1", name) for name in self.files]
        return any(sha256.startswith(digit) for digit in digits)


def load_weights(network: nn.Module, path: str | Path, published: Published) -> None:
    """Put the file's weights into the network; a missing, extra or misshapen key is an error."""
    path = Path(path)
    state = read_weights(path)
    fitted = fit(network.state_dict(), state, published, str(path))
    network.load_state_dict(fitted, strict=False)
    if published.files and not published.knows(_sha256(path)):
        warnings.warn(
            f"{path} is not a file we know ({' or '.join(published.files)}): its weights fit and "
            "are used, but nothing says where they come from",
            stacklevel=2,
        )


def read_weights(path: str | Path) -> dict[str, Tensor]:
    """The tensors of a `.safetensors` file or of a `.pth` that holds nothing but tensors."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no weights file {path}: check the path after weights=")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch wonders aloud about what it then refuses
            held = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = found.group(1) if found else "something other than tensors"
        raise ValueError(
            f"{path} was refused, since it holds {what} and loading it could run code: "
            "pass a .safetensors file, or a .pth that holds a state dict only"
        ) from error
    except (safetensors.SafetensorError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise ValueError(
            f"{path} cannot be read as weights, it is damaged or of another kind: "
            "pass a .safetensors file, or a .pth that holds a state dict"
        ) from error
    return _tensors(held, path)


def fit(
    own: Mapping[str, Tensor], state: Mapping[str, Tensor], published: Published, source: str
) -> dict[str, Tensor]:
    """The tensors of `state` under our keys, each of our shape; or an error that names a key."""
    # A file that was saved from our own network has our own names.
    name_of = same_name if all(key in state for key in own) else published.name_of
    rest = {key: value for key, value in state.items() if not key.startswith(published.classifier)}
    fitted, missing = {}, []
    for key, ours in own.items():
        theirs = rest.pop(name_of(key), None)
        if theirs is None:
            if not key.endswith(COUNTER):
                missing.append(name_of(key))
            continue
        if theirs.shape == (1, *ours.shape):
            theirs = theirs[0]  # BN-Inception's port has batch norms of shape (1, channels)
        if theirs.shape != ours.shape:
            raise ValueError(
                f"{source} does not fit: {name_of(key)} should have the shape {tuple(ours.shape)} "
                f"and has {tuple(theirs.shape)}, so it belongs to another network"
            )
        fitted[key] = theirs
    extra = [key for key in rest if not key.endswith(COUNTER)]
    for keys, verb in ((missing, "lacks"), (extra, "has, and the network has not,")):
        if keys:
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            raise ValueError(
                f"{source} does not fit: it {verb} {keys[0]}{more}, "
                "so it belongs to another network"
            )
    return fitted


def _tensors(held: Any, path: Path) -> dict[str, Tensor]:
    """The state dict in what a checkpoint holds, without the prefix of a parallel wrapper."""
    for wrapper in WRAPPERS:
        if isinstance(held, Mapping) and isinstance(held.get(wrapper), Mapping):
            held = held[wrapper]
    if not isinstance(held, Mapping) or not all(isinstance(v, Tensor) for v in held.values()):
        raise ValueError(
            f"{path} holds no state dict, but a {type(held).__name__}: "
            "save `network.state_dict()` and pass that file"
        )
    return {str(key).removeprefix("module."): value for key, value in held.items()}


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
