"""Data by name: `glyphs`, a folder of images, a CSV of images, or `NAME:ROOT` for a benchmark.

photos/boots/1.jpg            classes are split into seen and unseen, see ClassSplit
photos/train/boots/1.jpg      or the sub-folders are the parts: train and test, or train, query
photos/test/hats/2.jpg        and gallery; optionally validation or val; in any case

path,label,split              a CSV: a header, a line per image; the column split is optional
shelf/1.jpg,boots,train
shelf/2.jpg,hats,test
"""

from __future__ import annotations

import csv
import dataclasses
import inspect
import os
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from proxysynth.data import folders
from proxysynth.data.benchmarks.catalog import CATALOG
from proxysynth.data.benchmarks.opening import open_benchmark
from proxysynth.data.glyphs import glyphs
from proxysynth.data.images import PathLike
from proxysynth.data.listing import ClassSplit, Listing, Splits, listing_of_files, require_usable
from proxysynth.errors import first_line
from proxysynth.formatting import printable
from proxysynth.values import choices_hint, suggestion

PARTS = ("train", "validation", "test", "query", "gallery")
TESTED = ({"test"}, {"query", "gallery"})
UNTESTED = {"train", "validation"}
LAYOUTS = tuple({"train", *parts} for parts in TESTED)  # validation may join any of these
ADVICE = "give a folder with a sub-folder per class"
EXPECTED = "train and test, or train, query and gallery (and optionally validation)"
ALSO_CALLED = {"val": "validation", "valid": "validation"}
RULE_OPTIONS = tuple(field.name for field in dataclasses.fields(ClassSplit))


def open_data(spec: PathLike, **options: Any) -> Splits:
    """The splits that `spec` names.

    "glyphs"        train_classes, test_classes, seed, faces_per_class, query_faces, test_faces,
                    distortion, pictures_per_class
    a folder        unseen_fraction, seed, order, unseen_classes, seen_classes (see ClassSplit),
                    or train, test, query, gallery, validation: sub-folders
    a CSV           the same options of ClassSplit, and root: where its paths start
    "NAME:ROOT"     incomplete: accept a copy of a benchmark that lacks images

    Images may lie deeper inside a class's folder. Hidden files, and those that are not images by
    their name, are ignored. Links are followed; nothing is ever written.
    """
    text = os.fspath(spec)
    name, colon, root = text.partition(":")
    if text == "glyphs":
        return glyphs(**_known(options, inspect.signature(glyphs).parameters, text))
    if name in CATALOG and (colon or not os.path.exists(os.path.expanduser(text))):
        return open_benchmark(name, root, **_known(options, ("incomplete",), name))
    fields = {key: value for key, value in options.items() if key in RULE_OPTIONS}
    lists = {key: tuple(value) for key, value in fields.items() if key.endswith("_classes")}
    rule = ClassSplit(**fields | lists) if fields else None
    place, notes = folders.absolute(text), list[str]()
    if text and os.path.isdir(place):
        _known(options, (*RULE_OPTIONS, *PARTS), "a folder")
        named = {key: options[key] for key in PARTS if options.get(key) is not None}
        if not named:  # with a rule, train/ and test/ are classes too
            how = "use --set split.train=DIR --set split.test=DIR"
            named = {"": place} if rule else _own_parts(place, LAYOUTS, how)
        parts, notes = _listings(place, named)
        what = f"the parts of {printable(place)}"
    elif _is_table(place):
        _known(options, (*RULE_OPTIONS, "root"), "a CSV")
        how = "name the folder that holds all images with --set split.root=DIR"
        parts = _table(place, options.get("root"), how)
        what = f"the column split of {place.name}"
    else:
        raise _unknown(text)
    if parts.keys() == {""}:
        return (rule or ClassSplit())(parts[""], text, tuple(notes))
    if rule is not None:
        raise ValueError(f"{what} split the data: leave out {', '.join(fields)}")
    if parts.keys() - {"validation"} not in LAYOUTS:
        raise ValueError(f"{what} must be {EXPECTED}, got {', '.join(sorted(parts)) or 'none'}")
    tested, held = _query_and_gallery(parts), parts.get("validation")
    return require_usable(Splits(parts["train"], *tested, held, text, tuple(notes)))


def open_test_data(spec: PathLike) -> tuple[Listing, Listing | None]:
    """Query and gallery to test a trained model on: the test part, or all images of data without
    parts, as its seen classes are unknown. None: the queries are each other's gallery."""
    place = folders.absolute(spec)
    if os.path.isdir(place):
        places = _own_parts(place, (*LAYOUTS, *TESTED), "give the sub-folder to test on")
        parts, _ = _listings(place, {k: v for k, v in places.items() if k not in UNTESTED})
    elif _is_table(place):
        parts = _table(place, None, "put the CSV into a folder that holds all images")
        if parts.keys() - UNTESTED not in (*TESTED, {""}):
            what = f"the column split of {place.name} must name test, or query and gallery"
            raise ValueError(f"{what}, got {', '.join(sorted(parts))}")
    else:
        splits = open_data(spec)
        return splits.query, splits.gallery
    return _query_and_gallery(parts)


def _is_table(place: Path) -> bool:
    return os.path.isfile(place) and place.suffix.lower() in (".csv", ".txt")


def _known(options: dict[str, Any], names: Collection[str], what: str) -> dict[str, Any]:
    for name in options:
        if name not in names:
            raise ValueError(f"{what} has no option {name!r}: {choices_hint(name, names)}")
    return options


def _unknown(text: str) -> ValueError:
    """The error for data that is none of these, with a suggestion."""
    name, colon, _ = text.partition(":")
    if os.path.isfile(os.path.expanduser(text)):
        got = f"got the file {printable(text)}"
        return ValueError(f"data must be glyphs, a folder, a CSV or BENCHMARK:ROOT, {got}")
    if colon and len(name) > 1 and name.isidentifier():
        return ValueError(f"there is no benchmark {name!r}: {choices_hint(name, CATALOG)}")
    near = suggestion(text, [*filter(os.path.isdir, os.listdir()), "glyphs", *CATALOG])
    return ValueError(f"there is no folder or CSV {text!r}: {near}check the path, or {ADVICE}")


def _listings(base: Path, parts: Mapping[str, PathLike]) -> tuple[dict[str, Listing], list[str]]:
    """The images of each part's folder of classes, and notes on what was ignored."""
    listings, notes = {}, []
    for part, place in parts.items():
        where = folders.existing_folder(base / place, ADVICE)
        if not where.is_relative_to(base):
            raise ValueError(f"the folder of {part} must lie under {base}, got {where}")
        classes, loose = folders.folder_entries(where)
        files: list[tuple[str, str]] = []
        others = Counter[str]()
        for entry in classes:
            for path in folders.files_below(entry.path, frozenset({os.path.realpath(where)})):
                if folders.is_image(path):
                    files.append((Path(path).relative_to(base).as_posix(), entry.name))
                else:
                    others[os.path.splitext(path)[1].lower() or "without suffix"] += 1
        kinds = folders.some_names(f"{n} {kind}" for kind, n in others.most_common())
        beside = [entry.name for entry in loose if folders.is_image(entry.path)]
        if not files:
            shown = printable(where)
            got = f"nothing in {shown}: add images or give another folder"
            if beside:
                got = f"images directly in {shown}: move each class to its own folder"
            elif others:
                got = f"only other files in {shown} ({kinds}): convert them to JPEG or PNG"
            raise ValueError(f"expected a sub-folder per class with images inside, got {got}")
        listings[part] = listing_of_files(base, files)
        full = set(listings[part].classes)
        if empty := [entry.name for entry in classes if entry.name not in full]:
            notes.append(f"Ignored (folders without images): {folders.some_names(empty)}.")
        if beside:
            notes.append(f"Ignored (images of no class): {folders.some_names(beside)}.")
        if others:
            notes.append(f"Ignored (not image files): {kinds}.")
    return listings, notes


def _query_and_gallery(parts: Mapping[str, Listing]) -> tuple[Listing, Listing | None]:
    """Query and gallery with one table of classes; or the only part, which is its own gallery."""
    if "query" not in parts:
        return parts["test" if "test" in parts else ""], None
    query, gallery = parts["query"], parts["gallery"]
    classes = tuple(sorted({*query.classes, *gallery.classes}))
    return query.of_classes(classes), gallery.of_classes(classes)


def _own_parts(base: Path, layouts: Collection[set[str]], otherwise: str) -> dict[str, PathLike]:
    """The folders of the parts by name, or {"": base} if the sub-folders are classes. If they are
    neither, `otherwise` completes the advice to rename them."""
    inside, _ = folders.folder_entries(base)
    named = [(ALSO_CALLED.get(e.name.lower(), e.name.lower()), e.path) for e in inside]
    parts: dict[str, PathLike] = dict(named)
    # A lone folder `test` may be the only class.
    alone = len(inside) == 1 and not _holds_classes(inside[0].path)
    if len(parts) == len(inside) and parts.keys() - {"validation"} in layouts and not alone:
        return parts
    meant = [path for name, path in named if name in PARTS]
    if len(meant) > 1 and any(map(_holds_classes, meant)):
        got = f"{folders.some_names(entry.name for entry in inside)} in {printable(base)}"
        raise ValueError(
            f"expected the sub-folders {EXPECTED}, got {got}: rename them, or {otherwise}"
        )
    return {"": base}


def has_parts(folder: PathLike) -> bool:
    """Whether the sub-folders of a folder are parts such as train and test, which hold classes."""
    try:
        return "" not in _own_parts(folders.absolute(folder), LAYOUTS, "")
    except ValueError:
        return False


def _holds_classes(place: str) -> bool:
    """Whether a folder has folders and no image of its own, which a class would have."""
    inside, others = folders.folder_entries(place)
    return bool(inside) and not any(folders.is_image(entry.path) for entry in others)


def _table(file: Path, root: PathLike | None, outside: str) -> dict[str, Listing]:
    """The images of a CSV by part, "" without a column `split`. Paths are relative to `root`, by
    default the CSV's own folder; `outside` is the advice for one that leads out of it."""
    advice = f"split.root is the folder where the paths of {file.name} start"
    base = folders.existing_folder(file.parent if root is None else root, advice)
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.reader(stream))
    except UnicodeDecodeError as error:
        advice = "save the file as UTF-8 (in Excel: CSV UTF-8)"
        raise ValueError(f"{file} is not in UTF-8: {advice}") from error
    except (OSError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read as a CSV: {first_line(error)}") from error
    header = [word.strip().lower() for word in lines[0]] if lines else []
    if header not in (["path", "label"], ["path", "label", "split"]):
        got = printable(",".join(lines[0])) if lines else "an empty file"
        commas = ": separate columns with commas" if ";" in got else ""
        raise ValueError(
            f"{file.name} must start with the line path,label[,split], got {got}{commas}"
        )
    parts: dict[str, list[tuple[str, str]]] = {}
    seen: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not any(word.strip() for word in line):
            continue
        where = f"line {number} of {file.name}"
        if len(line) != len(header):
            raise ValueError(f"{where} must have {len(header)} columns, got {len(line)}")
        text, label, part = (*(word.strip() for word in line), "")[:3]
        path = Path(os.path.normpath(base / text))
        if not text or path == base or not path.is_relative_to(base):
            raise ValueError(f"{where} must name a file under {base}, got {text!r}: {outside}")
        name, part = path.relative_to(base).as_posix(), part.lower()
        if not label:
            raise ValueError(f"{where} must have a label, got none for {printable(name)}")
        if len(line) == 3 and part not in PARTS:
            raise ValueError(f"{where} must have a split of {', '.join(PARTS)}, got {part!r}")
        if seen.setdefault(name, number) != number:
            raise ValueError(f"{where} names {printable(name)} again, as line {seen[name]} does")
        parts.setdefault(part, []).append((name, label))
    if not parts:
        raise ValueError(f"{file.name} must list images below its header, got none")
    return {part: listing_of_files(base, files) for part, files in parts.items()}
