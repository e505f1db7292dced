"""The settings to start from, by data and backbone: what `proxysynth train DATA` trains with."""

from __future__ import annotations

import os
from dataclasses import fields, replace
from typing import Any

from proxysynth.models.backbones import BACKBONES
from proxysynth.training.run import Run
from proxysynth.values import nearest

PHOTOGRAPHS: dict[str, Any] = {
    "backbone": "efficientnet_lite0",
    "dim": 512,
    "augment": True,
    "epochs": 20,
    "batch_size": 64,
    "weight_decay": 1e-4,
    "precision": "auto",
}
# A backbone that knows something already: small steps for it, larger ones for the layer that does
# not, which starts alone; batch norm keeps its statistics.
FINE_TUNING: dict[str, Any] = {"lr": 1e-4, "embedding_lr": 1e-3, "freeze_batch_norm": True}
ENOUGH_FOR_WARMUP = 5  # epochs; of fewer, the backbone needs every one


def default_run(data: str | os.PathLike[str] = "glyphs", **changes: Any) -> Run:
    """The run for some data, with changes.

    Glyphs are learnt by the small network from nothing. Anything else is taken for photographs and
    fine-tunes `efficientnet_lite0` from its ImageNet weights, at its 224 pixels.

    Args:
        data: see `Run`; a path is made absolute, here and in `changes`, so that the run can go on
            from anywhere.
        changes: fields of `Run`.
    """
    known = [field.name for field in fields(Run)]
    for name in changes:
        if name not in known:
            raise ValueError(f"Run has no field {name!r}: {nearest(name, known)}")
    text = os.fspath(data)
    chosen: dict[str, Any] = {} if text == "glyphs" else dict(PHOTOGRAPHS)
    chosen |= {"data": _absolute(text), **changes}
    if chosen.get("weights"):
        chosen["weights"] = _absolute_path(chosen["weights"])
    if chosen.get("split", Run.split).root:
        chosen["split"] = replace(chosen["split"], root=_absolute_path(chosen["split"].root))
    if "pretrained" not in chosen:
        chosen["pretrained"] = _has_published_weights(chosen.get("backbone", Run.backbone))
    if chosen["pretrained"] is not False or chosen.get("weights"):
        warm = 1 if chosen.get("epochs", Run.epochs) >= ENOUGH_FOR_WARMUP else 0
        chosen = {**FINE_TUNING, "warmup_epochs": warm, **chosen}
    return Run(**chosen)


def _has_published_weights(backbone: str) -> bool | None:
    """None for a network that is not ours: it knows itself."""
    known = BACKBONES.get(backbone)
    return None if known is None else bool(known.published.package or known.published.files)


def _absolute(data: str) -> str:
    """A path is made absolute, on its own or behind the name of a benchmark."""
    name, colon, root = data.partition(":")
    if data != "glyphs" and os.path.exists(os.path.expanduser(data)):
        return _absolute_path(data)
    if colon and name.isidentifier() and root:
        return f"{name}:{_absolute_path(root)}"
    return data


def _absolute_path(path: str) -> str:
    return os.path.abspath(os.path.expanduser(path))
