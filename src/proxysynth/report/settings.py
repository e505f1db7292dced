"""Settings of runs: as flat rows, against the defaults, and against each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from proxysynth.formatting import DASH
from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training.run import KINDS, Run
from proxysynth.values import encode, flatten

Settings = Mapping[str, Any]  # a Run as in run.json


def rows(settings: Settings) -> dict[str, str]:
    """{"loss": {"kind": "NormSoftmax", "scale": 23.0}} -> loss: NormSoftmax, loss.scale: 23.

    The paths are those of `--set`: a regularizer is listed beside the loss that it wraps.
    """
    flat = flatten(unwrap(settings))
    return {path: _text(value) for path, value in flat.items() if path != "split"}


def changed(settings: Settings, defaults: Settings) -> dict[str, str]:
    """The `rows` whose value is not the default. The fields of another loss or regularizer are
    compared with its own defaults."""
    flat, usual = rows(settings), rows(defaults)
    for part in ("loss", "regularizer"):
        if flat[part] != usual[part]:
            kind = KINDS.get(flat[part])
            own = {f"{part}.{f.name}": _text(f.default) for f in (fields(kind) if kind else ())}
            usual = {k: text for k, text in usual.items() if not k.startswith(f"{part}.")} | own
    return {path: text for path, text in flat.items() if usual.get(path, text) != text}


def differing(several: Sequence[Settings]) -> dict[str, tuple[str, ...]]:
    """path -> its value in each, where these differ; a dash where there is no such field.

    A loss or regularizer that only some have is listed by name, with those of its fields that are
    not at their defaults.
    """
    flat = [rows(settings) for settings in several]
    unusual = {path for settings in several for path in changed(settings, encode(Run()))}
    found = {}
    for path in dict.fromkeys(path for each in flat for path in each):
        values = tuple(each.get(path, DASH) for each in flat)
        everywhere = all(path in each for each in flat)
        if len(set(values)) > 1 and (everywhere or path in unusual):
            found[path] = values
    return found


def method(settings: Settings) -> str:
    """The loss and its regularizer: "NormSoftmax with ProxySynthesis"."""
    flat = rows(settings)
    return " with ".join(flat[part] for part in ("loss", "regularizer") if flat[part] != "none")


def option_names(loss: Any) -> tuple[str, str] | None:
    """A loss and its regularizer as `--loss` and `--regularizer` name them."""
    wrappers = {kind: name for name, kind in REGULARIZERS.items() if kind is not None}
    regularizer = wrappers.get(type(loss), "none")
    inner = loss if regularizer == "none" else loss.loss
    name = next((name for name, kind in LOSSES.items() if type(inner) is kind), None)
    return None if name is None else (name, regularizer)


def _text(value: Any) -> str:
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(_text(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def unwrap(settings: Settings) -> dict[str, Any]:
    """The settings with the regularizer beside the loss instead of around it."""
    outer = dict(settings["loss"])
    inner = outer.pop("loss", None)
    parts = {"loss": inner or outer, "regularizer": outer if inner else None}
    made: dict[str, Any] = {}
    for key, value in settings.items():
        made |= parts if key == "loss" else {key: value}
    return made
