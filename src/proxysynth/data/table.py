"""A CSV of pictures: a header `path,label`, a line per picture, and a column `split` if wanted.

    path,label,split
    shelf/1.jpg,boots,train
    shelf/2.jpg,hats,test

Paths are relative to the CSV's own folder or to a root that is given, and stay inside it.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

from .class_split import ClassSplit
from .folder import LAYOUTS, PARTS, splits_of_parts
from .listing import Listing, listing_of_files
from .splits import Splits

Row = tuple[str, str, str]  # name under the root, class, part
SAY_THE_ROOT = "say which folder holds all pictures with --set split.root=DIR"


def open_table(
    path: str | os.PathLike[str],
    rule: ClassSplit | None = None,
    root: str | os.PathLike[str] | None = None,
) -> Splits:
    """The splits of a CSV: as its column `split` says, else by the rule.

    Args:
        path: the CSV.
        rule: how classes are split where there is no column `split`.
        root: what the paths are relative to; by default the folder of the CSV.
    """
    file = Path(os.path.abspath(os.path.expanduser(path)))
    base = file.parent if root is None else Path(os.path.abspath(os.path.expanduser(root)))
    if not base.is_dir():
        raise ValueError(
            f"there is no folder {base}: split.root is where the paths of {file} start"
        )
    rows = _rows(file, base)
    parts: dict[str, list[tuple[str, str]]] = {}
    for name, label, part in rows:
        parts.setdefault(part, []).append((name, label))
    if set(parts) == {""}:
        return (rule or ClassSplit())(listing_of_files(base, parts[""]), str(path))
    if rule is not None:
        raise ValueError(f"{file.name} has a column split, so no other rule for classes is taken")
    if set(parts) - {"validation"} not in LAYOUTS:
        raise ValueError(
            f"the column split of {file.name} must name train and test, or train, query and "
            f"gallery (validation if wanted), got {', '.join(sorted(parts))}"
        )
    listings = {part: listing_of_files(base, files) for part, files in parts.items()}
    return splits_of_parts(listings, str(path))


def whole_table(path: str | os.PathLike[str]) -> Listing | None:
    """Every picture of a CSV; None where it has a column `split` that says which are tested."""
    file = Path(os.path.abspath(os.path.expanduser(path)))
    rows = _rows(file, file.parent, "put the CSV into a folder that holds all pictures")
    if any(part for _, _, part in rows):
        return None
    return listing_of_files(file.parent, [(name, label) for name, label, _ in rows])


def _rows(file: Path, base: Path, outside: str = SAY_THE_ROOT) -> list[Row]:
    """The lines of a CSV; `outside` is what to do about a path that leads out of the base."""
    try:
        with open(file, newline="", encoding="utf-8-sig") as stream:
            lines = list(csv.reader(stream))
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} is not a CSV in UTF-8 ({error}): save it as one") from error
    header = [word.strip().lower() for word in lines[0]] if lines else []
    if header not in (["path", "label"], ["path", "label", "split"]):
        raise ValueError(
            f"{file.name} must start with the line path,label or path,label,split, "
            f"got {','.join(lines[0]) if lines else 'an empty file'}"
        )
    rows: list[Row] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        if not any(word.strip() for word in line):
            continue
        where = f"line {number} of {file.name}"
        if len(line) != len(header):
            raise ValueError(f"{where} must have {len(header)} columns, got {len(line)}")
        name, label = _inside(line[0].strip(), base, where, outside), line[1].strip()
        part = line[2].strip().lower() if len(line) == 3 else ""
        if not label:
            raise ValueError(f"{where} must have a label, got none for {name}")
        if len(line) == 3 and part not in PARTS:
            raise ValueError(f"{where} must have a split of {', '.join(PARTS)}, got {part!r}")
        if name in seen:
            raise ValueError(f"{where} names {name} again, as line {seen[name]} does: keep one")
        seen[name] = number
        rows.append((name, label, part))
    if not rows:
        raise ValueError(f"{file.name} must list pictures below its header, got none")
    return rows


def _inside(text: str, base: Path, where: str, outside: str) -> str:
    """The path under the root, with forward slashes."""
    path = Path(os.path.normpath(base / text))
    if not text or path == base or not path.is_relative_to(base):
        raise ValueError(f"{where} must name a file under {base}, got {text!r}: {outside}")
    return path.relative_to(base).as_posix()
