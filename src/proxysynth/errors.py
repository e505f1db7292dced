"""What can go wrong in a run, as exceptions whose text is one sentence for the user."""

from __future__ import annotations

import errno
import os
from pathlib import Path


class WrongFolder(ValueError):
    """The folder cannot be trained into: another run's, another process's, a newer version's."""


class TrainingFailed(ValueError):
    """What was asked for is fine, but the run broke off. Earlier checkpoints are intact."""


class NotFinite(TrainingFailed):
    """The loss became NaN or infinite; `files` are the pictures of the batch."""

    def __init__(self, sentence: str, step: int, files: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.step = step
        self.files = files


def cannot_write(path: Path, error: OSError, kept: str) -> TrainingFailed:
    """A disk's fault as a sentence.

    Args:
        path: what could not be written.
        kept: what there still is, such as "the last good checkpoint is ...".
    """
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    advice = {
        errno.ENOSPC: "free some space",
        errno.EDQUOT: "free some space",
        errno.EFBIG: "raise the limit of file sizes",
        errno.EROFS: "choose a folder that can be written to",
        errno.EACCES: "choose a folder that can be written to",
        errno.EPERM: "choose a folder that can be written to",
    }.get(error.errno or 0, "repair the cause")
    return TrainingFailed(
        f"cannot write {path}: {reason}; {kept}: {advice} and give the same command again"
    )
