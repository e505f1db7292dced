"""Default settings by data and backbone, and a Run from the options of `proxysynth train`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from proxysynth.data.folders import absolute
from proxysynth.losses import LOSSES, NormSoftmax
from proxysynth.models.backbones import BACKBONES
from proxysynth.models.libraries import is_library
from proxysynth.regularizers import REGULARIZERS, ProxySynthesis, VirtualSoftmax
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import choices_hint, look_up, parse_field, parse_settings

# Better on unseen classes of photographs than the authors' 23: see "The scale" in docs/results.md.
PHOTOGRAPH_SCALE = 11.0
PHOTOGRAPH_DEFAULTS: dict[str, Any] = {
    "loss": ProxySynthesis(NormSoftmax(PHOTOGRAPH_SCALE)),
    "backbone": "efficientnet_lite0",
    "dim": 512,
    "augment": True,
    "epochs": 20,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "precision": "auto",
}
# A pretrained backbone gets a small learning rate; the new embedding layer gets a larger one and is
# trained alone at first; batch norm keeps its statistics.
FINE_TUNING: dict[str, Any] = {"lr": 1e-4, "embedding_lr": 1e-3, "freeze_batch_norm": True}
ENOUGH_FOR_WARMUP = 5  # with fewer epochs, the backbone is trained in all of them


def default_run(data: str | os.PathLike[str] = "glyphs", **changes: Any) -> Run:
    """The run for some data, with changes.

    Glyphs train a small network from scratch. All other data is assumed to be photographs and
    fine-tunes `efficientnet_lite0` from its ImageNet weights at 224 pixels, with a scale of 11 in
    Norm-softmax instead of the authors' 23; with few seen classes and no `dim` given, the features
    of a network between the pretrained and the trained one are saved.

    Args:
        data: see `Run`; paths are made absolute, here and in `changes`, so that the run can be
            resumed from any working directory.
        changes: fields of `Run`.
    """
    known = {field.name for field in fields(Run)}
    for name in changes.keys() - known:
        raise ValueError(f"Run has no field {name!r}: {choices_hint(name, known)}")
    chosen: dict[str, Any] = {} if data == "glyphs" else dict(PHOTOGRAPH_DEFAULTS)
    chosen |= {"data": _absolute(os.fspath(data)), **changes}
    for name in ("weights", "init"):
        if chosen.get(name):
            chosen[name] = str(absolute(chosen[name]))
    if chosen.get("split", Run.split).root:
        chosen["split"] = replace(chosen["split"], root=str(absolute(chosen["split"].root)))
    if is_library(chosen.get("backbone")):
        chosen.setdefault("pooling", "own")
    if "pretrained" not in chosen:
        known_here = BACKBONES.get(chosen.get("backbone", Run.backbone))
        published = known_here and known_here.published
        # None for a network that is not ours: it knows itself.
        chosen["pretrained"] = published and bool(published.package or published.files)
    if chosen["pretrained"] is not False or chosen.get("weights"):
        warm = 1 if chosen.get("epochs", Run.epochs) >= ENOUGH_FOR_WARMUP else 0
        chosen = {**FINE_TUNING, "warmup_epochs": warm, **chosen}
    pretrained = chosen["pretrained"] is True or is_library(chosen.get("backbone"))
    own = "dim" in changes or chosen.get("init") or chosen.get("task") == "classification"
    if pretrained and not own:
        chosen.setdefault("interpolate", "by_classes")
    return Run(**chosen)


def run_from_options(
    data: str = "glyphs",
    loss: str = "norm_softmax",
    regularizer: str = "proxy_synthesis",
    settings: Sequence[str] | Mapping[str, Any] = (),
    **options: Any,
) -> Run:
    """The run that the options of `proxysynth train` describe, on top of the data's defaults.

    Args:
        loss, regularizer: keys of `LOSSES` and `REGULARIZERS`.
        settings: "field=value", "loss.field=value", "regularizer.field=value" and
            "split.field=value"; or the same as a mapping from fields to values.
        options: fields of `Run` that have an option of their own; None leaves the default.
    """
    kinds = {
        "loss": look_up(loss, LOSSES, "loss"),
        "regularizer": look_up(regularizer, REGULARIZERS, "regularizer"),
        "split": Split,
    }
    parts: dict[str, dict[str, Any]] = {part: {} for part in ("", *kinds)}
    if not isinstance(settings, Mapping):
        settings = parse_settings(settings)
    for path, value in settings.items():
        part, _, name = path.rpartition(".")
        if path in kinds:
            raise ValueError(f"{path} cannot be set as a whole: set a field, as {path}.FIELD=VALUE")
        if part not in parts:
            raise ValueError(
                f"cannot set {path}: unknown part {part!r}: {choices_hint(part, kinds)}"
            )
        for owner, kind in kinds.items() if not part and not hasattr(Run, name) else ():
            if kind is not None and name in {field.name for field in fields(kind)}:
                raise ValueError(f"Run has no field {name!r}: did you mean '{owner}.{name}'?")
        kind = kinds.get(part, Run)
        if kind is None:
            raise ValueError(f"cannot set {path}: the regularizer 'none' has no fields")
        parts[part][name] = parse_field(kind, name, value, KINDS)

    data = parts[""].pop("data", data)
    if kinds["loss"] is NormSoftmax and data != "glyphs":
        parts["loss"].setdefault("scale", PHOTOGRAPH_SCALE)
    method = kinds["loss"](**parts["loss"])
    if kinds["regularizer"] is VirtualSoftmax and parts[""].get("task") == "classification":
        parts["regularizer"].setdefault("clip", None)  # the paper clips for retrieval only (D.4)
    if kinds["regularizer"] is not None:
        method = kinds["regularizer"](method, **parts["regularizer"])
    changes = {name: value for name, value in options.items() if value is not None} | parts[""]
    if parts["split"]:
        changes["split"] = Split(**parts["split"])
    return default_run(data, loss=method, **changes)


def _absolute(data: str) -> str:
    """A path is made absolute, on its own or behind the name of a benchmark."""
    name, _, root = data.partition(":")
    if data != "glyphs" and os.path.exists(os.path.expanduser(data)):
        return str(absolute(data))
    return f"{name}:{absolute(root)}" if name.isidentifier() and root else data
