"""Label files of text: lines of a few columns, each error with the file and the line."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A line of a label file: its columns, and where it stands for a message."""

    columns: list[str]
    where: str


def rows(file: Path, columns: tuple[str, ...], header: str | None = None) -> Iterator[Row]:
    """The lines of a file that are not empty, cut at white space.

    Args:
        file: in UTF-8.
        columns: what the columns are, for messages; the last one takes the rest of the line.
        header: how the line starts that comes before the rows, where there is one.
    """
    lines = _text(file).splitlines()
    start = 0
    if header is not None:
        heads = (i for i, line in enumerate(lines[:5]) if line.split()[:1] == [header])
        start = next(heads, -1) + 1
        if start == 0:
            raise ValueError(
                f"{file} must start with a line of {', '.join(columns)}, got "
                f"{_short(lines[0]) if lines else 'an empty file'}: download it again"
            )
    for number, line in enumerate(lines[start:], start=start + 1):
        cut = line.split(maxsplit=len(columns) - 1)
        if not cut:
            continue
        where = f"line {number} of {file}"
        if len(cut) != len(columns):
            raise ValueError(f"{where} must have {', '.join(columns)}, got {_short(line)}")
        yield Row([word.strip() for word in cut], where)


def whole_number(text: str, where: str) -> int:
    """A whole number of at least 0."""
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{where} must have a whole number, got {_short(text)}")
    return int(text)


def picture_name(text: str, where: str) -> str:
    """A path under the copy, with forward slashes; it may not lead out of it."""
    name = posixpath.normpath(text)
    if name in (".", "..") or name.startswith(("/", "../")) or os.path.splitdrive(name)[0]:
        raise ValueError(f"{where} must name a picture under its own folder, got {_short(text)}")
    return name


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        why = (error.strerror or "unknown").lower()
        raise ValueError(
            f"cannot read {file} ({why}): unpack the archive again, it holds this file"
        ) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} must be a text file in UTF-8: download it again") from error


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
