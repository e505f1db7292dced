"""One process at a time in a run's folder.

The system holds the lock for the process and lets go of it when the process ends, however it ends:
there is never a stale lock to clear.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from proxysynth.errors import WrongFolder, cannot_write

NAME = ".lock"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, or say who does."""
    path = folder / NAME
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise cannot_write(path, error, "nothing was changed") from error
    try:
        if not _take(handle):
            owner = os.read(handle, 64).decode(errors="replace").strip()
            raise WrongFolder(
                f"another process{f' ({owner})' if owner else ''} is training into {folder}: "
                "wait for it, or choose another folder"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"process {os.getpid()}\n".encode())
        yield
    finally:
        os.close(handle)


def _take(handle: int) -> bool:
    """Lock the file without waiting; True too on a file system that knows no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _take_windows(handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _take_windows(handle: int) -> bool:
    import msvcrt

    try:
        # A byte far behind the text, which others must be able to read.
        os.lseek(handle, 1 << 20, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    except OSError:
        return False
    finally:
        os.lseek(handle, 0, os.SEEK_SET)
    return True
