"""A page on disk, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from proxysynth.training.durable import write_bytes

from .markup import Html


def write_page(path: Path, page: Html) -> Path:
    """Write the page and return where it is. What cannot be written leaves an earlier page."""
    # A file's name may hold bytes that are no text: these become question marks.
    data = page.encode("utf-8", "replace")
    try:
        write_bytes(path, data)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise OSError(
            f"cannot write {path}: {reason}; nothing else was touched: make room, or choose a "
            "place that can be written to"
        ) from error
    return path
