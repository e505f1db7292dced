"""CIFAR's python files without Python's pickle: a reader that can build data and nothing else.

A pickle is a small program, and what it may call is the danger. Here its steps are only named
(`pickletools`) and then followed by hand: numbers, texts, lists, tuples, dicts and one kind of
array. No step imports, calls or sets an attribute of anything, so there is nothing to run; a name
that those files do not use is refused.
"""

from __future__ import annotations

import math
import os
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# The names in those files, all about arrays of bytes; numpy has moved the first one since.
_RECONSTRUCT = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NDARRAY, _DTYPE, _ENCODE = "numpy ndarray", "numpy dtype", "_codecs encode"
_NAMES = (*_RECONSTRUCT, _NDARRAY, _DTYPE, _ENCODE)
_MARK = object()


class _Name(str):
    """A name that stands for a function of numpy, which is never called."""


class _Array:
    """An array to come: its bytes follow in a later step."""

    value: np.ndarray | None = None


class _Refused(Exception):
    """Why a file is not read."""


def read_pickle(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The dict in a file, with its keys as text, latin-1 texts as str and arrays of uint8."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ValueError(f"cannot read {path}: {(error.strerror or 'unknown').lower()}") from error
    try:
        made = _follow(data)
        if not isinstance(made, dict):
            raise _Refused(f"it holds a {type(made).__name__} instead of a dict")
        return {_key(key): _plain(value) for key, value in made.items()}
    except _Refused as error:
        reason = str(error)
    except (ValueError, TypeError, IndexError, KeyError, AttributeError, MemoryError, Warning):
        reason = "it is damaged or not a pickle"
    raise ValueError(f"{path} is no file of CIFAR's python archive, {reason}: download it again")


def _follow(data: bytes) -> Any:
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    for step, arg, _ in pickletools.genops(data):
        name = step.name
        if name == "STOP":
            return stack.pop()
        if name in _PUSHED:
            stack.append(_PUSHED[name](arg))
        elif name in ("BINPUT", "LONG_BINPUT", "PUT"):
            memo[arg] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            stack.append(memo[arg])
        elif name in _CHANGES:
            _CHANGES[name](stack)
        elif name not in ("PROTO", "FRAME"):
            raise _Refused(f"it has the step {name}, which those files do not use")
    raise _Refused("it ends early")


def _name(text: str) -> _Name:
    if text not in _NAMES:
        raise _Refused(f"it asks for {text.replace(' ', '.')}, which is never run here")
    return _Name(text)


def _since_mark(stack: list[Any]) -> list[Any]:
    at = len(stack) - 1
    while stack[at] is not _MARK:
        at -= 1
        if at < 0:
            raise _Refused("it is damaged")
    items = stack[at + 1 :]
    del stack[at:]
    return items


def _tuple(count: int) -> Callable[[list[Any]], None]:
    def change(stack: list[Any]) -> None:
        if len(stack) < count:
            raise _Refused("it is damaged")
        stack[len(stack) - count :] = [tuple(stack[len(stack) - count :])]

    return change


def _append(stack: list[Any], items: list[Any]) -> None:
    if type(stack[-1]) is not list:
        raise _Refused("it is damaged")
    stack[-1].extend(items)


def _set(stack: list[Any], items: list[Any]) -> None:
    # Keys are texts: another kind would be hashed, which for tuples in tuples has no bottom.
    if type(stack[-1]) is not dict or any(type(key) not in (str, bytes) for key in items[::2]):
        raise _Refused("it is damaged")
    stack[-1].update(zip(items[::2], items[1::2], strict=True))


def _stack_name(stack: list[Any]) -> None:
    name, module = stack.pop(), stack.pop()
    stack.append(_name(f"{module} {name}"))


def _reduce(stack: list[Any]) -> None:
    """What a call of one of the names would make, for the arguments that those files have."""
    args, function = stack.pop(), stack.pop()
    if type(function) is _Name and type(args) is tuple:
        if function in _RECONSTRUCT and args[0] == _NDARRAY:
            return stack.append(_Array())
        if function == _DTYPE and args[0] == "u1":
            return stack.append(_Name(_DTYPE))
        if function == _ENCODE and args[1:] == ("latin1",) and type(args[0]) is str:
            return stack.append(args[0])
    raise _Refused("it makes something else than arrays of bytes")


def _build(stack: list[Any]) -> None:
    """Fill an array: version, shape, dtype, whether column by column, bytes."""
    state, target = stack.pop(), stack[-1]
    if type(target) is _Name and target == _DTYPE:
        return  # the byte order of single bytes
    if type(target) is not _Array or type(state) is not tuple or len(state) != 5:
        raise _Refused("it makes something else than arrays of bytes")
    _, shape, dtype, columns, data = state
    raw = data.encode("latin-1") if type(data) is str else data
    sides = type(shape) is tuple and all(type(n) is int for n in shape)
    if dtype != _DTYPE or type(raw) is not bytes or not sides or math.prod(shape) != len(raw):
        raise _Refused("an array does not have the bytes of its shape")
    flat = np.frombuffer(raw, dtype=np.uint8)
    target.value = flat.reshape(shape, order="F" if columns else "C")


def _plain(value: Any) -> Any:
    return value.value if type(value) is _Array else value


def _key(key: str | bytes) -> str:
    return key.decode("latin-1") if isinstance(key, bytes) else key


_PUSHED: dict[str, Callable[[Any], Any]] = {
    "EMPTY_DICT": lambda _: {},
    "EMPTY_LIST": lambda _: [],
    "EMPTY_TUPLE": lambda _: (),
    "MARK": lambda _: _MARK,
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "GLOBAL": _name,
}
_PUSHED |= dict.fromkeys(
    ("BININT", "BININT1", "BININT2", "LONG1", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE")
    + ("SHORT_BINUNICODE", "SHORT_BINBYTES", "BINBYTES"),
    lambda arg: arg,
)
_CHANGES: dict[str, Callable[[list[Any]], None]] = {
    "TUPLE": lambda stack: stack.append(tuple(_since_mark(stack))),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "APPEND": lambda stack: _append(stack, [stack.pop()]),
    "APPENDS": lambda stack: _append(stack, _since_mark(stack)),
    "SETITEM": lambda stack: _set(stack, _tail(stack, 2)),
    "SETITEMS": lambda stack: _set(stack, _since_mark(stack)),
    "STACK_GLOBAL": _stack_name,
    "REDUCE": _reduce,
    "BUILD": _build,
}


def _tail(stack: list[Any], count: int) -> list[Any]:
    items = stack[-count:]
    del stack[-count:]
    return items
