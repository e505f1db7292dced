"""A run's settings as a TOML or JSON file: `train --config FILE` and `train --show-config`.

    data = "photos"
    epochs = 30
    [loss]
    name = "arcface"
    m2 = 0.2

Tables are `loss`, `regularizer` and `split`; `loss` and `regularizer` may also be just a name. The
string "none" means: not set. TOML has no None.
"""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

from proxysynth.errors import reason
from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS
from proxysynth.report.settings import option_names, unwrap
from proxysynth.training.defaults import run_from_options
from proxysynth.training.run import KINDS, Run, Split
from proxysynth.values import KIND, decode, encode, flatten, read_toml

NAME = "name"
NAMED = ("data", "loss", "regularizer")
TABLES = ("loss", "regularizer", "split")

Settings = dict[str, Any]
"""By path, as in `--set`: {"data": "photos", "epochs": 30, "loss": "arcface", "loss.m2": 0.2}."""


def override(below: Settings, above: Settings) -> Settings:
    """Both, `above` first; the fields of a loss or regularizer that is replaced are dropped."""
    replaced = [part for part in TABLES if above.get(part, below.get(part)) != below.get(part)]
    kept = {path: v for path, v in below.items() if path.partition(".")[0] not in replaced}
    return kept | above


def make_run(settings: Settings) -> Run:
    """The run with these settings, on top of the defaults of its data."""
    names = {part: str(settings[part]) for part in NAMED if part in settings}
    rest = {path: value for path, value in settings.items() if path not in NAMED}
    return run_from_options(**names, settings=rest)


def to_settings(run: Run) -> Settings:
    """The settings of a run, from which `make_run` makes it again."""
    return _flat(to_dict(run))


def read(path: Path) -> Settings:
    """The settings in a TOML file, a JSON file of the same layout, or a `run.json`."""
    try:
        toml = path.suffix.lower() == ".toml"
        loaded: Any = read_toml(path) if toml else json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else error
        raise ValueError(f"--config {path}: cannot be read as TOML or JSON: {why}") from error
    if isinstance(loaded, dict) and isinstance(loaded.get("run"), dict):
        loaded = loaded["run"]
    if not isinstance(loaded, dict):
        raise ValueError(f"--config {path}: expected fields of a run, got {type(loaded).__name__}")
    return to_settings(decode(loaded, KINDS)) if KIND in loaded else _flat(loaded)


def _flat(content: dict[str, Any]) -> Settings:
    flat = flatten(content)
    for part in ("loss", "regularizer"):
        if f"{part}.{NAME}" in flat:
            flat[part] = flat.pop(f"{part}.{NAME}")
    return flat


def to_dict(run: Run) -> dict[str, Any]:
    """A run in the layout of a configuration file; plain fields before tables."""
    names, settings = option_names(run.loss), unwrap(encode(run))
    if names is None:
        kind = settings["loss"][KIND]
        raise ValueError(f"{kind} has no name on the command line: train such a run from Python")
    tables: dict[str, dict[str, Any]] = {"loss": {NAME: names[0]}, "regularizer": {NAME: names[1]}}
    for table in TABLES:
        fields = settings.pop(table) or {}
        tables[table] = {**tables.get(table, {}), **fields}
        tables[table].pop(KIND, None)
    del settings[KIND]
    return settings | tables


def to_toml(run: Run) -> str:
    """A run as a TOML file that explains every field."""
    content = to_dict(run)
    kinds: dict[str, type | None] = {
        "": Run,
        "loss": LOSSES[content["loss"][NAME]],
        "regularizer": REGULARIZERS[content["regularizer"][NAME]],
        "split": Split,
    }
    lines = [
        "# A run of `proxysynth train`. Edit it and use it with --config FILE.",
        '# "none" means: not set. What then happens is in the comment on the field.',
    ]
    for table, kind in kinds.items():
        lines += ["", f"[{table}]"] if table else []
        fields = content[table] if table else {n: v for n, v in content.items() if n not in TABLES}
        about = {} if kind is None else field_help(kind)
        for name, value in fields.items():
            comment = textwrap.wrap(re.sub(r"\bNone\b", '"none"', about.get(name, "")), 98)
            lines += ["", *(f"# {line}" for line in comment)] if comment else []
            text = json.dumps("none" if value is None else value, ensure_ascii=False)
            lines.append(f"{name} = {text}")
    return "\n".join(lines)


def field_help(kind: type) -> dict[str, str]:
    """What the section "Args:" of a class's docstring says about each field."""
    arguments = (inspect.getdoc(kind) or "").partition("Args:")[2]
    entries = re.findall(r"^    ([\w, ]+): (.*(?:\n {8}.*)*)", arguments, re.M)
    return {name: " ".join(text.split()) for names, text in entries for name in names.split(", ")}
