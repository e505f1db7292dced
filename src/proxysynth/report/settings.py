"""A run's settings as rows for people: flat, comparable, the unusual ones apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from proxysynth.training.run import KINDS, Run
from proxysynth.values import KIND, encode

Flat = dict[str, str]
Settings = Mapping[str, Any]  # a Run as run.json has it


def rows(settings: Settings) -> Flat:
    """{"loss": {"kind": "NormSoftmax", "scale": 23.0}} -> loss: NormSoftmax, loss.scale: 23.

    The paths are those that `--set` takes: a regulariser stands beside the loss that it holds.
    """
    return _flat(_beside(settings))


def changed(settings: Settings, defaults: Settings) -> list[str]:
    """The paths whose value is not the default one. What another kind of value brings along, such
    as another loss, counts against that kind's own defaults."""
    usual = _flat(_usual(_beside(settings), _beside(defaults)))
    return [path for path, value in rows(settings).items() if usual.get(path, value) != value]


def differing(several: Sequence[Settings]) -> dict[str, tuple[str, ...]]:
    """path -> its value in each, where these are not all one; a dash where there is no such field.

    What only some of them have is told by its kind alone, unless it is set to something unusual.
    """
    flat = [rows(settings) for settings in several]
    own = [set(changed(settings, encode(Run()))) for settings in several]
    found = {}
    for path in dict.fromkeys(path for each in flat for path in each):
        values = tuple(each.get(path, "–") for each in flat)
        everywhere = all(path in each for each in flat)
        if len(set(values)) > 1 and (everywhere or any(path in each for each in own)):
            found[path] = values
    return found


def method(settings: Settings) -> str:
    """The loss, and what regularises it: "NormSoftmax with ProxySynthesis"."""
    told = rows(settings)
    loss, regularizer = told["loss"], told["regularizer"]
    return loss if regularizer == "none" else f"{loss} with {regularizer}"


def spelt(value: Any) -> str:
    """A plain value as a person would type it."""
    if value is None or (isinstance(value, (list, tuple)) and not value):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return ", ".join(spelt(item) for item in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _beside(settings: Settings) -> dict[str, Any]:
    """The settings with the regulariser taken off the loss."""
    made: dict[str, Any] = {}
    for key, value in settings.items():
        made[key] = value
        if key == "loss":
            held = value.get("loss") if isinstance(value, Mapping) else None
            made["regularizer"] = None
            if isinstance(held, Mapping):
                made["loss"] = held
                made["regularizer"] = {k: v for k, v in value.items() if k != "loss"}
    return made


def _flat(settings: Any, path: str = "") -> Flat:
    if not isinstance(settings, Mapping):
        return {path: spelt(settings)}
    found: Flat = {}
    if path and KIND in settings:
        found[path] = str(settings[KIND])
    for key, value in settings.items():
        if key != KIND:
            found |= _flat(value, f"{path}.{key}" if path else str(key))
    return found


def _usual(settings: Any, default: Any) -> Any:
    """What `settings` would be at its defaults, in its own shape."""
    if not isinstance(settings, Mapping):
        return default
    kind = settings.get(KIND)
    if isinstance(default, Mapping) and default.get(KIND) == kind:
        own: Mapping[str, Any] = default
    else:
        own = _defaults_of(KINDS.get(str(kind)))
    shape = {KIND: default.get(KIND) if isinstance(default, Mapping) else spelt(default)}
    for key, value in settings.items():
        if key != KIND and key in own:
            shape[key] = _usual(value, own[key])
    return shape


def _defaults_of(kind: type | None) -> dict[str, Any]:
    """The defaults of a class of values, as JSON."""
    if kind is None:
        return {}
    told = {f.name: f.default for f in fields(kind) if f.default is not MISSING}
    return {name: encode(value) for name, value in told.items()}
