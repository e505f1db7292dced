"""What can go wrong in a run, as exceptions whose text is one sentence for the user."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch

from proxysynth.errors import NotFinite, TrainingFailed, cannot_write
from proxysynth.files import CannotWrite

SHOWN = 8  # files named in a sentence


class Kept(Protocol):
    """What knows which checkpoint is still good."""

    def describe_last(self) -> str: ...


@contextmanager
def explained(checkpoints: Kept) -> Iterator[None]:
    """A full or read-only disk, or too little memory, inside this block ends in one sentence."""
    try:
        yield
    except CannotWrite as error:
        raise cannot_write(Path(error.filename), error, checkpoints.describe_last()) from error
    except (MemoryError, RuntimeError) as error:
        if not _lacks_memory(error):
            raise
        reason = (str(error).strip() or "none is left").splitlines()[0]
        raise TrainingFailed(
            f"the memory does not suffice ({reason}); "
            f"{checkpoints.describe_last()}: choose a smaller batch_size, image_size or backbone"
        ) from error


def _lacks_memory(error: Exception) -> bool:
    # torch has a class of its own for graphics cards, and for processors none.
    named = isinstance(error, (MemoryError, torch.OutOfMemoryError))
    return named or "can't allocate memory" in str(error)


def not_finite(
    step: int, epoch: int, files: Sequence[str], record: Path, checkpoints: Kept
) -> NotFinite:
    """A loss that is not a number, as a sentence; all the files go into `record`, one per line."""
    shown = ", ".join(files[:SHOWN])
    more = ""
    with contextlib.suppress(OSError):
        record.write_text("".join(f"{file}\n" for file in files), encoding="utf-8")
        more = f"; all are listed in {record}"
    return NotFinite(
        f"the loss is not finite in step {step} of epoch {epoch}, in a batch of {len(files)} "
        f"pictures ({shown}{', ...' if files[SHOWN:] else ''}{more}); "
        f"{checkpoints.describe_last()}: look at these pictures, or train into another folder with "
        "lower learning rates",
        step,
        tuple(files),
    )
