"""Exceptions of a run, and errors of other code as messages for the user."""

from __future__ import annotations

import errno
import os
from importlib import import_module
from pathlib import Path
from typing import Any


class WrongFolder(ValueError):
    """The folder cannot be used: it belongs to another run, process or newer version."""


class Damaged(Exception):
    """A checkpoint, or a file of it, is missing or does not match its checksum."""


class TrainingFailed(ValueError):
    """The request was valid, but the run failed. Earlier checkpoints are intact."""


class NotFinite(TrainingFailed):
    """The loss became NaN or infinite; `files` are the images of the batch."""

    def __init__(self, sentence: str, step: int, files: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.step, self.files = step, files


ADVICE = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space"),
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), "choose a writable folder"),
    errno.EFBIG: "raise the file size limit",
}


def reason(error: OSError) -> str:
    """What went wrong, without the number and the file: "no space left on device"."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cannot_write(path: Path, error: OSError, intact: str) -> TrainingFailed:
    """An error of the disk as a message, with what is still `intact`."""
    advice = ADVICE.get(error.errno or 0, "fix it")
    return TrainingFailed(f"cannot write {path}: {reason(error)}; {intact}: {advice} and rerun")


def import_optional(module: str, extra: str, purpose: str, otherwise: str = "") -> Any:
    """Import what an extra of this package installs, or raise an error that names the extra."""
    try:
        return import_module(module)
    except Exception as error:  # some import torchvision, which can fail in many ways
        why, advice = first_line(error), f"pip install 'proxysynth[{extra}]'"
        if "torchvision" in why:
            advice = "install the torchvision release that was built for the installed torch"
        advice += f", or {otherwise}" if otherwise else ""
        raise ValueError(f"{purpose} needs {module} ({why}): {advice}") from error


def newer_version(path: Path, found: object, known: int) -> WrongFolder:
    """A file of a later version as a message."""
    return WrongFolder(
        f"{path} was written by a newer version of proxysynth (format {found}, this one reads "
        f"{known}): upgrade proxysynth, or choose another folder"
    )
