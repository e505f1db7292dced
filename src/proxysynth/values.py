"""Frozen dataclasses as configuration: JSON and back, a stable hash, `--set path=value`.

A value is a frozen dataclass whose fields are numbers, strings, booleans, None, tuples of these, or
other values. It is its own configuration: it can be printed, compared, hashed and saved.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import functools
import hashlib
import json
import sys
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

KIND = "kind"
SCALARS = {bool, int, float, str, type(None)}
LARGEST = 2**63  # integers of torch are below


def choices_hint(name: str, names: Iterable[str]) -> str:
    """The end of an error message: the closest name, and all of them unless they are many."""
    names = sorted(names)
    meant = suggestion(name, names)
    if meant and (len(names) == 1 or len(names) > 20):
        return meant.strip()
    return f"{meant}choose one of {', '.join(names)}"


def suggestion(name: str, names: Iterable[str]) -> str:
    """The question whether the closest name was meant; empty if none is close."""
    names = sorted(names)
    longer = [known for known in names if known.startswith(name)] if len(name) > 2 else []
    close = difflib.get_close_matches(name, names, n=2)
    if len({difflib.SequenceMatcher(None, one, name).ratio() for one in close}) < len(close):
        close = []  # equally close: either would be a guess
    close = longer or close
    return f"did you mean {close[0]!r}? " if close else ""


def look_up(name: str, table: Mapping[str, Any], what: str) -> Any:
    """`table[name]`, or an error that suggests the nearest name."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"unknown {what} {name!r}: {choices_hint(str(name), table)}")
    return table[name]


def check_integers(owner: object, **least: int) -> None:
    """Check that each of these attributes is an integer of at least this value."""
    for name, low in least.items():
        value = getattr(owner, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            field = f"{type(owner).__name__}: {name}"
            raise ValueError(f"{field} must be an integer >= {low}, got {value!r}")


def encode(value: Any, with_defaults: bool = True) -> Any:
    """A value as plain JSON; every value carries the name of its class under "kind"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = {KIND: type(value).__name__}
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if with_defaults or item != field.default:  # or there is no default
                made[field.name] = encode(item, with_defaults)
        return made
    if isinstance(value, (tuple, list)):
        return [encode(item, with_defaults) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item, with_defaults) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{value!r} cannot be saved as JSON")


def decode(data: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """The value that `encode` wrote; only the classes in `kinds` are ever constructed."""
    fields = dict(data)
    return build(look_up(fields.pop(KIND, None), kinds, "kind of value"), fields, kinds)


def build(kind: type, fields: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """`kind(**fields)`, each field converted to the type that the class declares."""
    converted = {
        name: _convert(item, _hint(kind, name), f"{kind.__name__}.{name}", kinds)
        for name, item in fields.items()
    }
    return kind(**converted)


def read_toml(file: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    return tomllib.loads(file.read_text(encoding="utf-8"))


def parse_settings(settings: Iterable[str]) -> dict[str, str]:
    """{"loss.scale": "30"} from ["loss.scale=30"], the arguments of `--set`; the last one wins."""
    parsed = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ValueError(f"--set takes field=value, got {setting!r}")
        parsed[path] = text
    return parsed


def parse_field(kind: type, name: str, value: Any, kinds: Mapping[str, type]) -> Any:
    """The field `name` of a class, converted from text or from a value of a TOML or JSON file."""
    hint = _hint(kind, name)
    if hint is Any:  # another value, such as the loss of a regularizer
        raise ValueError(f"{kind.__name__}.{name} is not a setting: choose it with --{name}")
    text = value if isinstance(value, str) else None
    item = value if text is None else _parse(text)
    return _convert(item, hint, name, kinds, text)


def digest(value: Any) -> str:
    """Twelve hexadecimal digits that depend on every field of the value and on nothing else. Fields
    at their defaults are left out, so that adding a field to a class keeps old hashes."""
    plain = encode(value, with_defaults=False)
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


hints = functools.cache(typing.get_type_hints)  # which takes a millisecond for a large class


def _hint(kind: type, name: str) -> Any:
    names = [f.name for f in dataclasses.fields(kind)]
    if name not in names:
        raise ValueError(f"{kind.__name__} has no field {name!r}: {choices_hint(name, names)}")
    return hints(kind)[name]


def _convert(
    item: Any, hint: Any, where: str, kinds: Mapping[str, type], text: str | None = None
) -> Any:
    """`item`, as read from JSON, in the declared type; `text` is what the user typed, if any."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any and not (isinstance(item, Mapping) and KIND in item):
        return item
    if origin in (typing.Union, types.UnionType):
        none = item is None or (text is not None and text.lower() == "none")
        if none and type(None) in args:
            return None
        if isinstance(item, Mapping) and KIND in item and not SCALARS.issuperset(args):
            return decode(item, kinds)
        for arg in args:
            if arg is not type(None):
                with contextlib.suppress(ValueError):
                    return _convert(item, arg, where, kinds, text)
    elif origin is dict:
        if isinstance(item, Mapping):
            # Counts among the metrics, which are floats, stay integers.
            each = int | float if args[1] is float else args[1]
            return {k: _convert(v, each, f"{where}[{k!r}]", kinds) for k, v in item.items()}
    elif origin is typing.Literal:
        if item in args:
            return item
    elif origin is tuple:
        # Items of a comma-separated list keep their text: a class may be called 7.
        parts: list[tuple[Any, str | None]] = [(item, text)]
        if isinstance(item, str):
            parts = [(_parse(part), part.strip()) for part in item.split(",") if part]
        elif isinstance(item, (list, tuple)):
            parts = [(part, None) for part in item]
        if len(args) == 2 and args[1] is Ellipsis:
            args = (args[0],) * len(parts)
        if len(args) == len(parts):
            pairs = zip(parts, args, strict=True)
            return tuple(_convert(one, arg, where, kinds, part) for (one, part), arg in pairs)
    elif isinstance(item, Mapping) and hint not in SCALARS:
        return decode(item, kinds)
    elif hint is str and text is not None:
        return text
    elif isinstance(item, (int, float)) and not abs(item) < LARGEST:
        pass  # NaN, infinity, or too large for torch
    elif isinstance(hint, type) and type(item) is hint:
        return item
    elif hint is float and type(item) is int:
        return float(item)
    elif hint is bool and text is not None and text.lower() in ("true", "false"):
        return text.lower() == "true"
    expected = _describe(hint)
    if type(item) in (int, float) and not abs(item) < LARGEST and {int, float} & {hint, *args}:
        expected = "a finite number below 2**63"
    raise ValueError(f"{where} must be {expected}, got {text or repr(item)}")


def _parse(part: str) -> Any:
    try:
        return json.loads(part)
    except json.JSONDecodeError:
        return part.strip()


def _describe(hint: Any) -> str:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return "one of " + ", ".join(repr(arg) for arg in args)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_describe(arg) for arg in args)
    if origin is tuple:
        return f"{'' if ... in args else f'{len(args)} '}values separated by commas"
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
    return (names | {type(None): "none"}).get(hint, str(hint).replace("typing.", ""))


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested settings by dotted path, as `--set` writes them; lists of mappings by their "name".

    {"loss": {"kind": "NormSoftmax", "scale": 23.0}} -> {"loss": "NormSoftmax", "loss.scale": 23.0}
    """
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        value = {str(item.get("name", i)): item for i, item in enumerate(value)}
    if not isinstance(value, Mapping):
        return {path: value}
    flat: dict[str, Any] = {path: value[KIND]} if path and KIND in value else {}
    for key, item in value.items():
        if key != KIND:
            flat |= flatten(item, f"{path}.{key}" if path else str(key))
    return flat


def describe_differences(there: Any, here: Any, where: Sequence[str] = ("there", "here")) -> str:
    """The first settings in which two values differ: "epochs 30 there, 20 here; ..."."""
    a, b = flatten(encode(there)), flatten(encode(here))

    def shown(value: Any) -> str:
        return "none" if value is None else repr(value)

    different = [
        f"{path} {shown(a.get(path, 'absent'))} {where[0]}, "
        f"{shown(b.get(path, 'absent'))} {where[1]}"
        for path in {**a, **b}
        if a.get(path) != b.get(path)
    ]
    more = [f"and {len(different) - 4} more"] if len(different) > 4 else []
    return "; ".join(different[:4] + more)
