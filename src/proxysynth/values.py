"""Frozen values as configuration: to JSON and back, a stable hash, `--set a.b=c`.

A value is a frozen dataclass whose fields are numbers, strings, booleans, None, tuples of these, or
other values. It is its own configuration: it prints, compares, hashes, saves, and is called.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any

KIND = "kind"


def nearest(word: str, words: Iterable[str]) -> str:
    """The end of an error message: what the user may have meant, and what there is."""
    words = sorted(words)
    close = difflib.get_close_matches(word, words, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}choose one of {', '.join(words)}"


def look_up(name: str, table: Mapping[str, Any], what: str) -> Any:
    """`table[name]`, or one sentence that says what was expected."""
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"unknown {what} {name!r}: {nearest(str(name), table)}")
    return table[name]


def encode(value: Any) -> Any:
    """A value as plain JSON; a nested value carries the name of its class under "kind"."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {KIND: type(value).__name__, **fields}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"a {type(value).__name__} cannot stand in a value: {value!r}")


def decode(data: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """The value that `encode` wrote. `kinds` maps class names to classes: nothing else is made."""
    fields = dict(data)
    kind = look_up(fields.pop(KIND, None), kinds, "kind of value")
    return build(kind, fields, kinds)


def build(kind: type, fields: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    """`kind(**fields)` with each field brought to the type that the class declares."""
    hints = _hints(kind)
    made = {}
    for name, item in fields.items():
        if name not in hints:
            raise ValueError(f"{kind.__name__} has no field {name!r}: {nearest(name, hints)}")
        made[name] = _coerce(item, hints[name], f"{kind.__name__}.{name}", kinds)
    return kind(**made)


def digest(value: Any) -> str:
    """Twelve hexadecimal digits that depend on every field of the value and on nothing else.

    Fields at their defaults are left out, so that a class may gain a field and the values of an
    earlier version keep their hash.
    """
    text = json.dumps(_unusual(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _unusual(value: Any) -> Any:
    """As `encode`, without the fields that are at their defaults."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {
            f.name: _unusual(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.default is dataclasses.MISSING or getattr(value, f.name) != f.default
        }
        return {KIND: type(value).__name__, **fields}
    if isinstance(value, (tuple, list)):
        return [_unusual(item) for item in value]
    return encode(value)


def spelt_field(kind: type, name: str, text: str, kinds: Mapping[str, type]) -> Any:
    """What `text` spells as the field `name` of a class of values; `name` may not have dots."""
    hints = _hints(kind)
    if name not in hints:
        raise ValueError(f"{kind.__name__} has no field {name!r}: {nearest(name, hints)}")
    return _coerce(_spelt(text), hints[name], name, kinds, text)


def assign(value: Any, path: str, text: str, kinds: Mapping[str, type]) -> Any:
    """A copy of the value with the field at `path` ("loss.scale") set to what `text` spells."""
    name, _, rest = path.partition(".")
    hints = _hints(type(value))
    if name not in hints:
        raise ValueError(f"{type(value).__name__} has no field {name!r}: {nearest(name, hints)}")
    if rest:
        inner = getattr(value, name)
        if not dataclasses.is_dataclass(inner):
            raise ValueError(f"{name} is {inner!r} and has no field {rest!r}")
        made = assign(inner, rest, text, kinds)
    else:
        made = _coerce(_spelt(text), hints[name], path, kinds, text)
    return dataclasses.replace(value, **{name: made})


def _hints(kind: type) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def _coerce(
    item: Any, hint: Any, where: str, kinds: Mapping[str, type], text: str | None = None
) -> Any:
    """`item`, read from JSON, as the declared type; or an error that names the field."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if item is None or (text is not None and text.lower() == "none"):
            if type(None) in args:
                return None
        elif isinstance(item, Mapping):
            return decode(item, kinds)
        for arg in args:
            if arg is not type(None):
                try:
                    return _coerce(item, arg, where, kinds, text)
                except ValueError:
                    continue
    elif origin is typing.Literal:
        if item in args:
            return item
    elif origin is tuple:
        # A part written without brackets keeps its text: a class may be called 7.
        parts: list[tuple[Any, str | None]] = [(item, text)]
        if isinstance(item, str):
            parts = [(_spelt(part), part.strip()) for part in item.split(",") if part]
        elif isinstance(item, (list, tuple)):
            parts = [(part, None) for part in item]
        if len(args) == 2 and args[1] is Ellipsis:
            args = (args[0],) * len(parts)
        if len(args) == len(parts):
            return tuple(
                _coerce(part, arg, where, kinds, written)
                for (part, written), arg in zip(parts, args, strict=True)
            )
    elif isinstance(item, Mapping):
        return decode(item, kinds)
    elif hint is Any or (isinstance(hint, type) and type(item) is hint):
        return item
    elif hint is float and type(item) is int:
        return float(item)
    elif hint is str and text is not None:
        return text
    elif hint is bool and text is not None and text.lower() in ("true", "false"):
        return text.lower() == "true"
    raise ValueError(
        f"{where} must be {_describe(hint)}, got {text if text is not None else item!r}"
    )


def _spelt(part: str) -> Any:
    try:
        return json.loads(part)
    except json.JSONDecodeError:
        return part.strip()


def _describe(hint: Any) -> str:
    args = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(repr(arg) for arg in args)
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(_describe(arg) for arg in args)
    if hint is type(None):
        return "none"
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    return names.get(hint, str(hint).replace("typing.", ""))


def flatten(value: Any, path: str = "") -> dict[str, Any]:
    """Nested settings by dotted path, as `--set` writes them.

    {"loss": {"kind": "NormSoftmax", "scale": 23.0}} -> {"loss": "NormSoftmax", "loss.scale": 23.0}

    Items of a list of mappings go by their "name".
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


def describe_differences(there: Any, here: Any, most: int = 4) -> str:
    """The settings in which two values differ: "epochs 30 there, 20 here; ..."."""
    a, b = flatten(encode(there)), flatten(encode(here))
    different = [
        f"{path} {a.get(path, 'absent')!r} there, {b.get(path, 'absent')!r} here"
        for path in {**a, **b}
        if a.get(path) != b.get(path)
    ]
    more = f"; and {len(different) - most} more" if len(different) > most else ""
    return "; ".join(different[:most]) + more
