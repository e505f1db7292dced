"""Backbones of other libraries: `timm:NAME`, and `hf:NAME_OR_FOLDER` for transformers.

Image size, mean, standard deviation and how an image is resized come from the model's own
configuration, except that resizing is always bilinear. Code that comes with a model is never run.

They have more poolings than feature maps do:

own                   the network's own: its trained pooler or head, or its class token
class                 the class token
average, max, both    over the patch tokens or the pixels of the feature maps
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from proxysynth.errors import first_line, import_optional

# From the model and images to tokens, the class token, if any, first, and how many of them are not
# patches; or to vectors or feature maps.
Tokens = Callable[[Any, Tensor], tuple[Tensor, int]]
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
PROCESSOR = ("image_mean", "image_std", "size", "crop_size", "do_center_crop")
# Keys of a configuration that could name code to be fetched.
NOT_DATA = ("auto_map", "attn_implementation", "quantization_config", "custom_pipelines")


def is_library(backbone: object) -> bool:
    """Whether the name is one of timm's or transformers' networks."""
    return isinstance(backbone, str) and backbone.startswith(("timm:", "hf:"))


def is_plain_name(backbone: str) -> bool:
    """Whether a name from somebody else's file is safe to look up: it names no code or address."""
    return re.fullmatch(r"hf(:.*)?|timm:[\w.]+", backbone, re.DOTALL) is not None


def is_code(backbone: str) -> bool:
    """Whether the name is a module:function, which is imported and called."""
    return ":" in backbone and not is_plain_name(backbone)


def backbone_option(backbone: str) -> str:
    """The option, after a space, that commands which load the model need; empty if none."""
    return f" --backbone {shlex.quote(backbone)}" if is_code(backbone) else ""


class TokenNetwork(nn.Module):
    """A network whose output is tokens (n, t, d): as the class token (n, d), or as feature maps
    (n, d, t, 1) of the patches, which the embedder pools. Vectors and feature maps pass."""

    def __init__(self, model: nn.Module, tokens: Tokens, pooling: str, name: str) -> None:
        super().__init__()
        self.model, self.tokens, self.pooling, self.name = model, tokens, pooling, name

    def forward(self, images: Tensor) -> Tensor:
        tokens, prefix = self.tokens(self.model, images)
        if tokens.ndim != 3:
            return tokens
        if self.pooling != "class":
            return tokens[:, prefix:].mT[..., None]
        if prefix == 0:
            raise ValueError(f"{self.name} has no class token: use pooling=average or own")
        return tokens[:, 0]


def make_timm(name: str, pretrained: bool, pooling: str, image_size: int | None) -> nn.Module:
    """The network "timm:name", with attributes `preprocess`, `image_size` and `resize`."""
    timm = import_optional("timm", "timm", f"timm:{name}", "use another backbone")
    options: dict[str, Any] = {"pretrained": pretrained, "num_classes": 0}
    if pooling != "own":
        options["global_pool"] = ""  # feature maps or tokens, which are pooled here
    with explained(f"timm could not load {name!r}"):  # an unknown name, no connection, no file
        network: nn.Module = timm.create_model(name, **options)
        if image_size is not None and "img_size" in inspect.signature(type(network)).parameters:
            # Position embeddings are made for one size, and resampled for another.
            network = timm.create_model(name, **options, img_size=image_size)
    cfg = {**getattr(network, "default_cfg", {}), **getattr(network, "pretrained_cfg", {})}
    net: Any = network
    if pooling != "own":
        prefix = int(getattr(network, "num_prefix_tokens", 0))
        net = TokenNetwork(network, lambda module, x: (module(x), prefix), pooling, f"timm:{name}")
    net.preprocess = pixel_convention(cfg.get("mean"), cfg.get("std"))
    net.image_size = image_size or int(cfg.get("input_size", (3, 224, 224))[-1])
    net.resize = 1 / float(cfg.get("crop_pct") or 224 / 256)
    return net


def make_transformers(
    name: str, pretrained: bool, pooling: str, architecture: Mapping[str, Any] | None
) -> nn.Module:
    """The network "hf:name_or_folder", with the attributes of `make_timm` and `architecture`. From
    that of an earlier call it is built again, without its folder and without a connection."""
    library = import_optional("transformers", "hf", f"hf:{name}", "use another backbone")
    if architecture is None:
        model, architecture = _load_transformers(library, name, pretrained, pooling)
    else:
        # With random weights, from what `run.json` holds; nothing else is read.
        with explained(f"the recorded architecture of {name} cannot be built"):
            fields = _plain(architecture["config"])
            config = library.AutoConfig.for_model(fields.pop("model_type"), **fields)
            model = library.AutoModel.from_config(config)
    config, processor = model.config, architecture["processor"]
    patch, side = getattr(config, "patch_size", None), _side(getattr(config, "image_size", 224))
    takes = inspect.signature(type(model).forward).parameters

    def tokens(model: Any, images: Tensor) -> tuple[Tensor, int]:
        given, options = images.shape[-1], {}
        if "interpolate_pos_encoding" in takes and given != side:
            options["interpolate_pos_encoding"] = True
        made = model(pixel_values=images, **options)
        if pooling == "own":
            return made.pooler_output.flatten(1), 0
        hidden: Tensor = made.last_hidden_state
        if config.model_type == "clip_vision_model":
            # CLIP normalizes only the token that it pools.
            norm = getattr(getattr(model, "vision_model", model), "post_layernorm", None)
            hidden = norm(hidden) if norm else hidden
        patches = patch and hidden.ndim == 3
        return hidden, hidden.shape[1] - (given // _side(patch)) ** 2 if patches else 0

    # A dense layer with tanh that was made for another task: the class token itself is better.
    if hasattr(getattr(model, "pooler", None), "dense"):
        model.pooler = None
        pooling = "class" if pooling == "own" else pooling
    network: Any = TokenNetwork(model.float(), tokens, pooling, f"hf:{name}")
    network.preprocess = pixel_convention(processor.get("image_mean"), processor.get("image_std"))
    network.image_size = _side(processor.get("crop_size") or processor.get("size") or side)
    resized = _side(processor.get("size") or side)
    cropped = processor.get("do_center_crop", "crop_size" in processor)
    network.resize = max(1.0, resized / network.image_size) if cropped else 1.0
    network.architecture = dict(architecture)
    return network


def _load_transformers(
    library: Any, name: str, pretrained: bool, pooling: str
) -> tuple[Any, dict[str, Any]]:
    """A model from its folder or from the hub, and its architecture."""
    source = os.path.expanduser(name)
    if name.startswith((".", "/", "~")) and not os.path.isdir(source):
        raise ValueError(f"hf:{name}: there is no such folder")
    with explained(f"transformers could not load {name!r}, a vision model or a folder of one"):
        config = library.AutoConfig.from_pretrained(source, trust_remote_code=False)
        config = getattr(config, "vision_config", config)  # of CLIP and SigLIP: the image tower
        if pooling != "own" and hasattr(config, "vision_use_head"):
            # SigLIP's head would be saved and never trained.
            config.vision_use_head = False
        if pretrained:
            with _quiet(library):
                model, loaded = library.AutoModel.from_pretrained(
                    source, config=config, trust_remote_code=False, output_loading_info=True
                )
        else:
            model, loaded = library.AutoModel.from_config(config), {}
        processor = _processor(library, source)
    missing = [key for key in loaded.get("missing_keys", ()) if "pooler" not in key]
    if missing:
        advice = "it is not a vision model, or its files are damaged"
        raise ValueError(f"the weights of {name} lack {missing[0]}: {advice}")
    known = {key: processor[key] for key in PROCESSOR if key in processor}
    return model, {"config": _plain(config.to_dict()), "processor": known}


def _processor(library: Any, source: str) -> dict[str, Any]:
    """The preprocessing that is published with a model; empty if there is none."""
    for file in ("preprocessor_config.json", "processor_config.json"):
        path = library.utils.cached_file(source, file, _raise_exceptions_for_missing_entries=False)
        if path:
            fields = json.loads(Path(path).read_text(encoding="utf-8"))
            return dict(fields.get("image_processor", fields))
    return {}


def _plain(fields: Any) -> Any:
    """A configuration as JSON without private keys and without those that could name code."""

    def public(held: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in held.items() if not k.startswith("_") and k not in NOT_DATA}

    return json.loads(json.dumps(fields, default=str), object_hook=public)


@contextlib.contextmanager
def _quiet(library: Any) -> Iterator[None]:
    """Without transformers' report of the text tower's weights and without its progress bar."""
    logging = library.utils.logging
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _side(size: Any) -> int:
    """224 from 224, (224, 224), {"height": 224, "width": 224} or {"shortest_edge": 224}."""
    if isinstance(size, Mapping):
        size = size.get("shortest_edge") or size.get("height") or next(iter(size.values()))
    elif isinstance(size, (list, tuple)):
        size = size[-1]
    return int(size)


def pixel_convention(mean: Any, std: Any) -> str:
    """The name of the pixel convention with that mean and standard deviation, in [0, 1]."""
    mean, std = tuple(mean or IMAGENET["mean"]), tuple(std or IMAGENET["std"])
    if (mean, std) == (IMAGENET["mean"], IMAGENET["std"]):
        return "imagenet"
    return f"mean {' '.join(map(repr, mean))} std {' '.join(map(repr, std))}"


@contextlib.contextmanager
def explained(sentence: str) -> Iterator[None]:
    """Raise an error of foreign code, of whatever class, as a ValueError: the sentence and why."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{sentence} ({type(error).__name__}: {first_line(error)})") from error
