"""Files on disk: durable writes, JSON with errors that name the file, and locks on folders.

A file is written under a temporary name in the same folder, flushed to disk (fsync), and then
renamed over the old one atomically. After a kill or a power cut there is the old file or the new
one, never a part of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from proxysynth.errors import WrongFolder, cannot_write

UNFINISHED = ".unfinished-"  # prefix of incomplete files and folders
LOCK = ".lock"


class CannotWrite(OSError):
    """The disk is full, read-only or broken; `filename` is the file."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as `CannotWrite` of this file."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(error.errno, error.strerror, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary name for the block to write to; the file then replaces `path` atomically."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        with naming(path):
            yield unfinished
        move_into_place(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def move_into_place(unfinished: Path, path: Path) -> None:
    """Give a finished file its name, replacing an older one."""
    with naming(path):
        os.replace(unfinished, path)
        sync_folder(path.parent)


def write_bytes(path: Path, data: bytes | memoryview) -> None:
    """Replace a file atomically."""
    with replacing(path) as unfinished:
        write_new(unfinished, data)


def write_atomically(path: Path, data: bytes | memoryview) -> None:
    """Replace a file atomically, with folders as needed, but do not flush it to disk: for caches,
    which several processes may fill at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{UNFINISHED}{uuid.uuid4().hex}")
    try:
        unfinished.write_bytes(data)
        os.replace(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise


def write_json(path: Path, value: Any) -> None:
    """Replace a file with this value as indented JSON."""
    write_bytes(path, f"{json.dumps(value, indent=2, allow_nan=False)}\n".encode())


def write_new(path: Path, data: bytes | memoryview | Iterator[bytes]) -> None:
    """Write a file and flush it to disk, not atomically: for names that nobody reads yet."""
    with naming(path), open(path, "wb") as file:
        file.writelines(data if isinstance(data, Iterator) else [data])
        file.flush()
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk, where the system supports it."""
    if hasattr(os, "O_DIRECTORY"):  # not on Windows
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_sealed(path: Path, fields: Mapping[str, Any]) -> None:
    """`write_json` of an object, with a checksum of its content under "crc32"."""
    write_json(path, {**fields, "crc32": seal(fields)})


def check_seal(path: Path, fields: dict[str, Any]) -> None:
    """Compare the content of a file of `write_sealed` with its checksum, which is removed. A file
    without one is from version 0.1, or was edited and the checksum removed."""
    crc32 = fields.pop("crc32", None)
    if crc32 is not None and crc32 != seal(fields):
        advice = 'restore it, or delete its field "crc32" if you edited it yourself'
        raise WrongFolder(f"{path} does not match its checksum: {advice}")


def seal(fields: Mapping[str, Any]) -> int:
    """A checksum of JSON, whatever the order of its keys."""
    return zlib.crc32(json.dumps(fields, sort_keys=True).encode())


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """Lock a folder; if it is locked already, `wait`, or raise an error that names the process. The
    system releases the lock when the process ends, however it ends: there are no stale locks."""
    path = folder / LOCK
    owner = ""
    with contextlib.suppress(OSError):
        owner = path.read_bytes()[:64].decode(errors="replace").strip()
    lock = FileLock(path, timeout=-1 if wait else 0, thread_local=False)
    try:
        lock.acquire()
    except (Timeout, RuntimeError) as error:  # RuntimeError: locked by this thread
        with contextlib.suppress(OSError):
            path.write_text(f"{owner}\n")  # the attempt emptied the file
        raise WrongFolder(
            f"another process{f' ({owner})' if owner else ''} is working in {folder}: "
            "wait for it to end, or choose another folder"
        ) from error
    except OSError as error:
        raise cannot_write(path, error, "nothing was changed") from error
    try:
        with contextlib.suppress(OSError):
            path.write_text(f"process {os.getpid()}\n")
        yield
    except Exception:
        with contextlib.suppress(OSError):
            if os.listdir(folder) == [LOCK]:  # a failure leaves nothing behind
                path.unlink()
                folder.rmdir()
        raise
    finally:
        lock.release()
