"""Where things that can be made again are kept: `$PROXYSYNTH_CACHE`, else `~/.cache/proxysynth`."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "PROXYSYNTH_CACHE"


def cache_folder() -> Path:
    """The folder; it may not exist yet."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser()
    try:
        return Path.home() / ".cache" / "proxysynth"
    except RuntimeError:  # an account without a home
        return Path(tempfile.gettempdir()) / "proxysynth"


def keep(path: Path, parts: Iterable[bytes | memoryview]) -> bool:
    """Write a file at once or not at all. False when it cannot be written: a cache is never needed.

    The bytes go to a temporary name in the same folder, which then takes the place of `path`, so
    another process sees the whole file or none.
    """
    unfinished: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".unfinished-")
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
        os.replace(unfinished, path)
    except OSError:  # read-only, full, not ours
        if unfinished is not None:
            with contextlib.suppress(OSError):
                os.unlink(unfinished)
        return False
    return True
