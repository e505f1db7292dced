"""Settings of runs: as flat rows, against the defaults, against each other, and as a command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from typing import Any

from proxysynth.formatting import DASH
from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training.defaults import run_from_options
from proxysynth.training.run import KINDS, Run
from proxysynth.values import encode, flatten

Settings = Mapping[str, Any]  # a Run as in run.json
FLAGS = ("backbone", "epochs", "seed")  # fields of a Run with an option of their own


def rows(settings: Settings) -> dict[str, str]:
    """{"loss": {"kind": "NormSoftmax", "scale": 23.0}} -> loss: NormSoftmax, loss.scale: 23.

    The paths are those of `--set`: a regularizer is listed beside the loss that it wraps.
    """
    return {path: _text(value) for path, value in flatten(unwrap(settings)).items()}


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


def repeat_command(run: Run, out: str) -> str | None:
    """A short `proxysynth train` command that trains exactly this run; None if there is none.

    It contains only what is not a default: an option is added while the command so far trains
    something else. `out` is not the run's own folder, which holds it already.
    """
    names = option_names(run.loss)
    if names is None:
        return None

    def argument(value: Any) -> str:  # as `--set` reads it
        text = "none" if value is None else value
        return text if isinstance(text, str) else json.dumps(text, ensure_ascii=False)

    options: dict[str, Any] = {"data": run.data, "loss": names[0], "regularizer": names[1]}
    settings: list[str] = []
    wanted = flatten(unwrap(encode(run)))
    made = run_from_options(**options)
    while made != run:
        given = flatten(unwrap(encode(made)))
        missing = [(path, value) for path, value in wanted.items() if given.get(path) != value]
        # One at a time, since some fields imply others; all if one alone is not a valid run.
        for some in (missing[:1], missing):
            flags = {path: value for path, value in some if path in FLAGS}
            more = [f"{path}={argument(value)}" for path, value in some if path not in FLAGS]
            if flags.keys() & options.keys() or set(more) & set(settings):
                return None  # already given, without effect
            with suppress(ValueError):
                made = run_from_options(**options | flags, settings=settings + more)
                break
        else:
            return None
        options, settings = options | flags, settings + more
    command = ["proxysynth", "train", *([run.data] if run.data != Run.data else [])]
    for name, default in zip(("loss", "regularizer"), option_names(Run.loss) or (), strict=True):
        command += [f"--{name}", options[name]] if options[name] != default else []
    for name in FLAGS:
        command += [f"--{name}", str(options[name])] if name in options else []
    for setting in settings:
        command += ["--set", setting]
    return shlex.join([*command, "--out", out])


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
    loss, regularizer = settings["loss"], None
    if isinstance(loss.get("loss"), Mapping):
        regularizer = {key: value for key, value in loss.items() if key != "loss"}
        loss = loss["loss"]
    made: dict[str, Any] = {}
    for key, value in settings.items():
        made |= {"loss": loss, "regularizer": regularizer} if key == "loss" else {key: value}
    return made
