"""Files that are written whole or not at all, whatever happens in between.

A file is written under another name in the same folder, pushed to the disk (fsync), and then takes
the place of the old one in a single step. After a kill or a power cut there is the old file or the
new one, never half of either.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

UNFINISHED = ".unfinished-"  # begins the name of everything that is not yet whole


class CannotWrite(OSError):
    """The disk is full, read-only or broken; `filename` says where."""


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace the file at once."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        write_new(unfinished, data)
        with _naming(path):
            os.replace(unfinished, path)
            sync_folder(path.parent)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace the file by this value, readable and with a line feed at its end."""
    text = json.dumps(value, indent=2, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def write_new(path: Path, data: bytes | memoryview) -> None:
    """Write a file and push it to the disk; for a place where nobody looks yet."""
    with _naming(path), open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def append_line(path: Path, line: str) -> None:
    """Add a line at the end. A kill may leave a part of it, which readers pass over."""
    with _naming(path), open(path, "ab") as file:
        file.write(line.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Push a folder's table of names to the disk, where the system has a way to."""
    flags = getattr(os, "O_DIRECTORY", None)
    if flags is None:  # Windows keeps its own order
        return
    handle = os.open(path, os.O_RDONLY | flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error
