"""A run's settings as a TOML or JSON file: `train --config FILE` and `train --show-config`.

    data = "photos"
    epochs = 30
    [loss]
    name = "arcface"
    m2 = 0.2

Tables are `loss`, `regularizer` and `split`; `loss` and `regularizer` may also be just a name. The
string "none" stands for None, which TOML does not have.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS
from proxysynth.report.settings import option_names, unwrap
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import KIND, decode, encode

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAME = "name"
TABLES = ("loss", "regularizer", "split")


@dataclass(frozen=True)
class Config:
    """Arguments of `run_from_options`, from a file, a run or the command line."""

    data: str | None = None
    loss: str | None = None
    regularizer: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def over(self, below: Config) -> Config:
        """Both, these first; the fields of a loss or regularizer that is replaced are dropped."""
        named = {
            name: getattr(below if getattr(self, name) is None else self, name)
            for name in ("data", "loss", "regularizer")
        }
        kept = {
            path: value
            for path, value in below.settings.items()
            if (part := path.partition(".")[0]) not in ("loss", "regularizer")
            or getattr(below, part) in (None, named[part])
        }
        return Config(**named, settings=kept | self.settings)


def read_config(path: Path) -> Config:
    """The settings in a TOML file, a JSON file of the same layout, or a `run.json`."""
    try:
        text = path.read_text(encoding="utf-8")
        loaded = tomllib.loads(text) if path.suffix.lower() == ".toml" else json.loads(text)
    except FileNotFoundError as error:
        raise ValueError(f"--config {path}: there is no such file") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"--config {path}: cannot be read as TOML or JSON: {error}") from error
    if isinstance(loaded, dict) and isinstance(loaded.get("run"), dict):
        loaded = loaded["run"]
    if not isinstance(loaded, dict):
        raise ValueError(f"--config {path}: expected fields of a run, got {type(loaded).__name__}")
    if KIND in loaded:
        loaded = to_dict(decode(loaded, KINDS))
    names: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for key, value in loaded.items():
        if key in TABLES and isinstance(value, Mapping):
            settings |= {f"{key}.{name}": item for name, item in value.items() if name != NAME}
            names |= {key: str(value[NAME])} if NAME in value and key != "split" else {}
        elif key in ("data", "loss", "regularizer"):
            names[key] = str(value)
        else:
            settings[key] = value
    return Config(**names, settings=settings)


def to_dict(run: Run) -> dict[str, Any]:
    """A run in the layout of a configuration file; plain fields before tables."""
    names, settings = option_names(run.loss), unwrap(encode(run))
    if names is None:
        kind = settings["loss"][KIND]
        raise ValueError(f"{kind} has no name on the command line: train such a run from Python")
    named = [{NAME: name} for name in names]
    tables = {
        table: {**name, **{k: v for k, v in (settings[table] or {}).items() if k != KIND}}
        for table, name in zip(TABLES, (*named, {}), strict=True)
    }
    return {k: v for k, v in settings.items() if k not in (KIND, *TABLES)} | tables


def to_toml(run: Run) -> str:
    """A run as a TOML file that explains every field."""
    content = to_dict(run)
    kinds: dict[str, type | None] = {
        "loss": LOSSES[content["loss"][NAME]],
        "regularizer": REGULARIZERS[content["regularizer"][NAME]],
        "split": Split,
    }
    tables = {table: content.pop(table) for table in kinds}
    lines = [
        "# A run of `proxysynth train`. Edit it and use it with --config FILE.",
        '# "none" means no value; where the help says None, write "none".',
        *_toml_lines(content, Run),
    ]
    for table, kind in kinds.items():
        lines += ["", f"[{table}]", *_toml_lines(tables[table], kind)]
    return "\n".join(lines)


def _toml_lines(fields: Mapping[str, Any], kind: type | None) -> list[str]:
    about = field_help(kind) if kind is not None else {}
    lines = []
    for name, value in fields.items():
        comment = textwrap.wrap(about.get(name, ""), 98)
        lines += ["", *(f"# {line}" for line in comment)] if comment else []
        text = json.dumps("none" if value is None else value, ensure_ascii=False)
        lines.append(f"{name} = {text}")
    return lines


def field_help(kind: type) -> dict[str, str]:
    """What the section "Args:" of a class's docstring says about each field, and its choices."""
    arguments = (inspect.getdoc(kind) or "").partition("Args:")[2]
    entries = re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", arguments, re.M)
    found = {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
    for name, hint in typing.get_type_hints(kind).items():
        for option in (hint, *typing.get_args(hint)):
            choices = typing.get_args(option) if typing.get_origin(option) is Literal else ()
            if not all(f'"{choice}"' in found.get(name, "") for choice in choices):
                found[name] = f"{found.get(name, '')} [{' | '.join(map(str, choices))}]".strip()
    return found
