"""Where a study's trials are kept: a database or a journal file of Optuna, shared by workers."""

from __future__ import annotations

import random
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.storages import BaseStorage

BUSY = 120  # seconds that a worker waits for its turn at an SQLite file
ATTEMPTS = 10  # to open a storage whose tables others are just making
FILE = "study.db"


class StorageFailed(RuntimeError):
    """The storage cannot be reached, or not any more."""


def storage_in(folder: Path, storage: str | None) -> str:
    """What `--storage` says; without it, an SQLite file in the study's folder."""
    return storage or f"sqlite:///{(folder / FILE).absolute()}"


def open_storage(text: str) -> BaseStorage:
    """The storage of that name; tables are made where there are none.

    Args:
        text: a database's URL, or a path: an SQLite file if it ends in `.db` or `.sqlite`, else a
            journal file.
    """
    optuna = import_optuna()
    with reaching(text, opening=True):
        if "://" not in text and not text.endswith((".db", ".sqlite", ".sqlite3")):
            return _journal(optuna, Path(text).expanduser())
        url = text if "://" in text else f"sqlite:///{Path(text).expanduser().absolute()}"
        lite = url.startswith("sqlite")
        options: dict[str, Any] = {"connect_args": {"timeout": BUSY}} if lite else {}
        # A connection that a server closed meanwhile is opened again.
        options["pool_pre_ping"] = True
        for _ in range(ATTEMPTS):
            try:
                return optuna.storages.RDBStorage(url, engine_kwargs=options)
            except Exception as error:
                if not _met_another(error):
                    raise
                time.sleep(random.uniform(0.1, 0.5))
        return optuna.storages.RDBStorage(url, engine_kwargs=options)


def _met_another(error: BaseException) -> bool:
    """Whether another worker was making the same tables at the same moment."""
    words = str(error).lower()
    return type(error).__name__ == "IntegrityError" or any(
        word in words for word in ("already exists", "locked", "duplicate")
    )


def _journal(optuna: Any, path: Path) -> BaseStorage:
    from optuna.storages.journal import JournalFileBackend

    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}")
    return optuna.storages.JournalStorage(JournalFileBackend(str(path)))


@contextmanager
def reaching(text: str, opening: bool = False) -> Iterator[None]:
    """What a storage does wrong inside this block ends in one sentence, without its password.

    Args:
        opening: nothing but the storage is used in the block, so a missing file or package is its.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    faults: tuple[type[Exception], ...] = (
        SQLAlchemyError,
        optuna.exceptions.StorageInternalError,
    )
    if opening:
        faults += (OSError, ImportError)
    try:
        yield
    except faults as error:
        raise StorageFailed(
            f"the storage {shown(text)} cannot be used ({_reason(error)}): see that it is there "
            "and can be written to, or leave out --storage for a file in the study's folder"
        ) from error


def shown(text: str) -> str:
    """A storage's name without user and password."""
    return re.sub(r"://[^/@]*@", "://...@", text)


def _reason(error: BaseException) -> str:
    """The first line of the innermost cause, which says most."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return shown(lines[0])[:200] if lines else type(error).__name__


def import_optuna() -> Any:
    """Optuna, quiet; or a sentence that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise ValueError(
            "the search needs Optuna, which is not installed: pip install 'proxysynth[mlrc]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
