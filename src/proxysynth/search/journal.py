"""What a long indexing has done so far, so that a kill costs seconds and not hours.

A folder beside the index:

    about.json     which model and which folder
    vectors.f32    embeddings, row after row
    blocks.jsonl   a line for each block of rows: their files, and how many rows there are with it

Rows are pushed to the disk before the line that counts them, so a line never promises too much.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxysynth.files import UNFINISHED, CannotWrite, append_line, write_json
from proxysynth.search.scan_folder import Found

ABOUT, VECTORS, BLOCKS = "about.json", "vectors.f32", "blocks.jsonl"


def journal_folder(index: Path) -> Path:
    """Where the journal of an index is."""
    return index.with_name(f"{UNFINISHED}{index.name}.journal")


class Journal:
    """The rows of a folder's files that are already embedded.

    Args:
        folder: the journal's; it must exist.
        about: the model and the pictures' folder; a journal about others is thrown away.
        dim: of a row.
    """

    def __init__(self, folder: Path, about: dict[str, Any], dim: int) -> None:
        self.folder = folder
        self.dim = dim
        self.rows: dict[Found, int] = {}
        if self._about() == about:
            self._read()
        else:
            for name in (VECTORS, BLOCKS):
                (folder / name).unlink(missing_ok=True)
            write_json(folder / ABOUT, about)
        self._trim()

    def add(self, files: Sequence[Found], vectors: NDArray[np.float32]) -> None:
        """Keep a block of rows."""
        path = self.folder / VECTORS
        try:
            with open(path, "ab") as file:
                file.write(np.ascontiguousarray(vectors, dtype="<f4").data)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise CannotWrite(error.errno, error.strerror, str(path)) from error
        first = self._count
        self._count += len(files)
        told = {"rows": self._count, "files": [list(file) for file in files]}
        # The line feed before it ends a line that a kill cut off.
        append_line(self.folder / BLOCKS, "\n" + json.dumps(told))
        self.rows |= {file: first + i for i, file in enumerate(files)}

    def vectors(self) -> NDArray[np.float32]:
        """All rows, mapped from the file."""
        if not self._count:
            return np.empty((0, self.dim), dtype=np.float32)
        shape = (self._count, self.dim)
        return np.memmap(self.folder / VECTORS, dtype="<f4", mode="r", shape=shape)

    def remove(self) -> None:
        """The index is written, or cannot be: nothing of this is needed any more."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _about(self) -> Any:
        try:
            return json.loads((self.folder / ABOUT).read_bytes())
        except (OSError, ValueError):
            return None

    def _read(self) -> None:
        try:
            held = (self.folder / VECTORS).stat().st_size // (4 * self.dim)
            lines = (self.folder / BLOCKS).read_bytes().splitlines()
        except OSError:
            return
        count = 0
        for line in lines:
            try:
                told = json.loads(line)
                files = [Found(*file) for file in told["files"]]
                rows = int(told["rows"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off by a kill
            if count + len(files) != rows or rows > held:
                break
            self.rows |= {file: count + i for i, file in enumerate(files)}
            count = rows

    def _trim(self) -> None:
        """Cut off rows that no line counts: the kill came between the two."""
        self._count = max(self.rows.values(), default=-1) + 1
        path = self.folder / VECTORS
        if path.exists():
            os.truncate(path, self._count * self.dim * 4)
