"""Data by what a user writes: `glyphs`, a folder, a CSV, or `name:ROOT` for a benchmark."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from proxysynth.values import nearest

from .benchmarks import CATALOGUE, open_benchmark
from .class_split import ClassSplit
from .folder import open_folder, parts_of_folder
from .glyphs import glyphs
from .splits import Splits
from .table import open_table

# name -> function (root, **options) -> Splits, for benchmarks with a layout of their own.
BENCHMARKS: dict[str, Callable[..., Splits]] = {
    name: partial(open_benchmark, name) for name in CATALOGUE
}

BENCHMARK_OPTIONS = ("incomplete",)
PART_OPTIONS = ("train", "test", "query", "gallery", "validation")
RULE_OPTIONS = tuple(field.name for field in dataclasses.fields(ClassSplit))


def open_data(spec: str | os.PathLike[str], **options: Any) -> Splits:
    """The splits that `spec` names.

    "glyphs"        train_classes, test_classes, seed, faces_per_class, query_faces, test_faces
    a folder        unseen_fraction, seed, order, unseen_classes, seen_classes (see ClassSplit),
                    or train, test, query, gallery, validation: sub-folders
    a CSV           the same rule for classes, and root
    "name:ROOT"     incomplete: take what is there of a benchmark that is not all there
    """
    text = os.fspath(spec)
    name, colon, root = text.partition(":")
    if text == "glyphs":
        return glyphs(**_known(options, tuple(inspect.signature(glyphs).parameters), text))
    if colon and name in BENCHMARKS:
        return BENCHMARKS[name](root, **_known(options, BENCHMARK_OPTIONS, name))
    place = os.path.expanduser(text)
    if os.path.isdir(place):
        return _folder(text, _known(options, (*RULE_OPTIONS, *PART_OPTIONS), "a folder"))
    if os.path.isfile(place) and place.lower().endswith((".csv", ".txt")):
        known = _known(options, (*RULE_OPTIONS, "root"), "a CSV")
        return open_table(text, _rule(known), known.get("root"))
    raise ValueError(_unknown(text, os.path.isfile(place)))


def _folder(root: str, options: dict[str, Any]) -> Splits:
    rule = _rule(options)
    parts = {name: options[name] for name in PART_OPTIONS if options.get(name) is not None}
    if parts and rule is not None:
        raise ValueError(
            f"give either folders ({', '.join(parts)}) or a rule for classes "
            f"({', '.join(RULE_OPTIONS)}), got both"
        )
    return parts_of_folder(root, parts) if parts else open_folder(root, rule)


def _rule(options: dict[str, Any]) -> ClassSplit | None:
    given = {name: options[name] for name in RULE_OPTIONS if name in options}
    for name in ("unseen_classes", "seen_classes"):
        if name in given:
            given[name] = tuple(given[name])
    return ClassSplit(**given) if given else None


def _known(options: dict[str, Any], names: tuple[str, ...], what: str) -> dict[str, Any]:
    for name in options:
        if name not in names:
            raise ValueError(f"{what} has no option {name!r}: {nearest(name, names)}")
    return options


def _unknown(text: str, is_file: bool) -> str:
    names = ["glyphs", *(f"{name}:ROOT" for name in BENCHMARKS)]
    if is_file:
        return f"data must be a folder, a CSV or one of {', '.join(names)}, got the file {text}"
    if text in BENCHMARKS:
        return f"{text} needs the folder of its files: write {text}:ROOT"
    name, colon, _ = text.partition(":")
    if colon and len(name) > 1 and name.isidentifier():
        known = nearest(name, BENCHMARKS) if BENCHMARKS else "use a folder or glyphs"
        return f"no benchmark is called {name!r}: {known}"
    hint = nearest(text, ["glyphs", *BENCHMARKS]) if os.sep not in text else "check the path"
    return (
        f"there is no folder or CSV {text!r}: {hint}, or give a folder with a sub-folder per class"
    )
