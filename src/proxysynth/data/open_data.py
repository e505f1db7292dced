"""Data by name: `glyphs`, a folder, a CSV, or `NAME:ROOT` for a benchmark."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.benchmarks.opening import open_benchmark
from proxysynth.data.folder import (
    PARTS,
    open_folder,
    open_parts,
    open_table,
    open_test_folder,
    open_test_table,
)
from proxysynth.data.glyphs import glyphs
from proxysynth.data.listing import ClassSplit, Listing, Splits
from proxysynth.formatting import printable
from proxysynth.values import nearest

# name -> function (root, **options) -> Splits, for benchmarks with a layout of their own.
BENCHMARKS: dict[str, Callable[..., Splits]] = {
    name: partial(open_benchmark, name) for name in CATALOG
}

RULE_OPTIONS = tuple(field.name for field in dataclasses.fields(ClassSplit))


def open_data(spec: str | os.PathLike[str], **options: Any) -> Splits:
    """The splits that `spec` names.

    "glyphs"        train_classes, test_classes, seed, faces_per_class, query_faces, test_faces
    a folder        unseen_fraction, seed, order, unseen_classes, seen_classes (see ClassSplit),
                    or train, test, query, gallery, validation: sub-folders
    a CSV           the same options of ClassSplit, and root
    "NAME:ROOT"     incomplete: accept a copy of a benchmark that lacks images
    """
    text = os.fspath(spec)
    name, colon, root = text.partition(":")
    if text == "glyphs":
        return glyphs(**_known(options, tuple(inspect.signature(glyphs).parameters), text))
    if colon and name in BENCHMARKS:
        return BENCHMARKS[name](root, **_known(options, ("incomplete",), name))
    given: dict[str, Any] = {
        key: tuple(value) if key.endswith("_classes") else value
        for key, value in options.items()
        if key in RULE_OPTIONS
    }
    rule = ClassSplit(**given) if given else None
    if os.path.isdir(os.path.expanduser(text)):
        _known(options, (*RULE_OPTIONS, *PARTS), "a folder")
        parts = {key: options[key] for key in PARTS if options.get(key) is not None}
        if parts and given:
            raise ValueError(
                f"give either folders ({', '.join(parts)}) or a rule for classes "
                f"({', '.join(RULE_OPTIONS)}), got both"
            )
        return open_parts(text, parts) if parts else open_folder(text, rule)
    if _is_table(text):
        _known(options, (*RULE_OPTIONS, "root"), "a CSV")
        return open_table(text, rule, options.get("root"))
    raise ValueError(_unknown(text))


def open_test_data(spec: str) -> tuple[Listing, Listing | None]:
    """Query and gallery to test a trained model on: the test part of the data, else every image.

    Which classes of a plain folder a model has seen is unknown, so the rule that splits classes
    for training does not apply.
    """
    if os.path.isdir(os.path.expanduser(spec)):
        return open_test_folder(spec)
    if _is_table(spec):
        return open_test_table(spec)
    splits = open_data(spec)
    return splits.query, splits.gallery


def _is_table(text: str) -> bool:
    return os.path.isfile(os.path.expanduser(text)) and text.lower().endswith((".csv", ".txt"))


def _known(options: dict[str, Any], names: tuple[str, ...], what: str) -> dict[str, Any]:
    for name in options:
        if name not in names:
            raise ValueError(f"{what} has no option {name!r}: {nearest(name, names)}")
    return options


def _unknown(text: str) -> str:
    if os.path.isfile(os.path.expanduser(text)):
        names = ", ".join(["glyphs", *(f"{name}:ROOT" for name in BENCHMARKS)])
        return f"data must be a folder, a CSV or one of {names}, got the file {printable(text)}"
    if text in BENCHMARKS:
        return f"{text} needs the folder of its files: write {text}:ROOT"
    name, colon, _ = text.partition(":")
    if colon and len(name) > 1 and name.isidentifier():
        return f"there is no benchmark {name!r}: {nearest(name, BENCHMARKS)}"
    hint = nearest(text, ["glyphs", *BENCHMARKS]) if os.sep not in text else "check the path"
    return (
        f"there is no folder or CSV {text!r}: {hint}, or give a folder with a sub-folder per class"
    )
