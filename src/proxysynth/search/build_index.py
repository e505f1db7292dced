"""From a folder of pictures to the file of an index; the next call does what has changed since."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxysynth.errors import TrainingFailed, WrongFolder, cannot_write
from proxysynth.files import CannotWrite
from proxysynth.search.describe_model import PictureEmbedder
from proxysynth.search.embed_files import Unreadable, embed_files
from proxysynth.search.index import Index
from proxysynth.search.journal import Journal, journal_folder
from proxysynth.search.scan_folder import Found, scan_folder
from proxysynth.search.store_index import store_index
from proxysynth.training.lock import locked
from proxysynth.training.progress import Progress, Silent, Tick

GATHERED = 4096  # rows that are copied at a time
JOURNAL_SECONDS = 2.0  # of work that a kill may cost


@dataclass(frozen=True)
class Built:
    """What an indexing did.

    Args:
        file: the index.
        items: in it now.
        embedded: of them, those embedded by this call; `resumed` by one that was broken off.
        kept: taken over from the index that was there.
        removed: pictures of that index that are gone.
        unreadable: files that gave no embedding, each with the reason.
        written: whether the file was replaced: not where nothing has changed.
        seconds: spent.
    """

    file: Path
    items: int
    embedded: int
    resumed: int
    kept: int
    removed: int
    unreadable: tuple[Unreadable, ...]
    written: bool
    seconds: float

    @property
    def summary(self) -> str:
        """The same for people."""
        parts = [f"{self.embedded:,} embedded"]
        parts += [f"{self.resumed:,} from the call before"] if self.resumed else []
        parts += [f"{self.kept:,} kept"] if self.kept else []
        parts += [f"{self.removed:,} removed"] if self.removed else []
        parts += [f"{len(self.unreadable):,} unreadable"] if self.unreadable else []
        state = "" if self.written else "; nothing has changed"
        return f"{self.file}: {self.items:,} pictures ({', '.join(parts)}){state}"


def build_index(
    model: PictureEmbedder,
    folder: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    rebuild: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
    journal_seconds: float = JOURNAL_SECONDS,
) -> Built:
    """Embed the pictures of a folder into an index; pictures that are in it already are kept.

    A kill at any moment leaves the old index or the new one, and the next call goes on.

    Args:
        model: see `open_model`.
        folder: pictures, however deep; the name of a sub-folder is the label of what is in it.
        file: the index, new or of the same model and folder.
        rebuild: embed everything, whatever the file holds.
        workers: threads that decode pictures.
        journal_seconds: how often finished pictures are put aside for a resumed call.
    """
    begun, out = time.perf_counter(), Path(os.path.abspath(os.path.expanduser(file)))
    root = os.path.abspath(os.path.expanduser(folder))
    found, progress = scan_folder(root), progress or Silent()
    old = None if rebuild else _existing(out, model, root)
    known = {} if old is None else _known(old)
    place = journal_folder(out)
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _alone(place, out):
            about = {"model": model.identity.to_json(), "root": root}
            journal = Journal(place, about, model.dim)
            resumed = sum(one in journal.rows and one not in known for one in found)
            todo = [one for one in found if one not in known and one not in journal.rows]
            _check_room(out.parent, len(todo), len(found), model.dim)
            with progress.task("embedding", len(found), len(found) - len(todo)) as tick:
                bad = _embed(model, Path(root), todo, journal, workers, tick, journal_seconds)
            items = [one for one in found if one in known or one in journal.rows]
            if not items:
                journal.remove()
                raise ValueError(
                    f"none of {len(found)} pictures in {root} can be read; the first, "
                    f"{bad[0].path}: {bad[0].reason}"
                )
            kept = sum(one in known for one in items)
            now = {one.path for one in items}
            removed = 0 if old is None else sum(path not in now for path in old.paths)
            written = old is None or kept != len(items) or len(items) != len(old)
            if written:
                _write(out, model, root, items, old, known, journal)
            journal.remove()
    except CannotWrite as error:
        raise cannot_write(Path(error.filename or out), error, _left(out)) from error
    except OSError as error:
        raise cannot_write(Path(error.filename or place), error, _left(out)) from error
    embedded = len(items) - kept - resumed
    seconds = time.perf_counter() - begun
    return Built(out, len(items), embedded, resumed, kept, removed, tuple(bad), written, seconds)


def _existing(out: Path, model: PictureEmbedder, root: str) -> Index | None:
    """The index that is there; an error where it is of another model or folder."""
    if not out.exists():
        return None
    old = Index.open(out)
    if not old.model.same_as(model.identity):
        raise ValueError(
            f"{out} was made by another model, {old.model.name} (weights {old.model.weights}), "
            f"not by {model.identity.name} (weights {model.identity.weights}): give that model, "
            "another file, or --rebuild to embed all pictures again"
        )
    if str(old.root) != root:
        raise ValueError(
            f"{out} is an index of {old.root}, not of {root}: give that folder, another file, or "
            "--rebuild to replace it"
        )
    return old


def _known(old: Index) -> dict[Found, int]:
    """The row of each file of an index, as it was then: a changed file is another one."""
    stamps = old.stamps.tolist()
    return {
        Found(path, size, moment): row
        for row, (path, (size, moment)) in enumerate(zip(old.paths, stamps, strict=True))
    }


def _embed(
    model: PictureEmbedder,
    root: Path,
    todo: Sequence[Found],
    journal: Journal,
    workers: int | None,
    tick: Tick,
    seconds: float,
) -> list[Unreadable]:
    """Embed files into the journal, which is written every so many seconds."""
    bad: list[Unreadable] = []
    files: list[Found] = []
    rows: list[NDArray[np.float32]] = []

    def put_aside() -> None:
        if files:
            journal.add(files, np.concatenate(rows))
        files.clear()
        rows.clear()

    last = time.perf_counter()
    for some, vectors, failed in embed_files(model, root, todo, workers):
        bad += failed
        files += some
        rows.append(vectors)
        if time.perf_counter() - last >= seconds:
            put_aside()
            last = time.perf_counter()
        tick(len(some) + len(failed), f"{len(bad)} unreadable" if bad else "")
    put_aside()
    return bad


def _write(
    out: Path,
    model: PictureEmbedder,
    root: str,
    items: Sequence[Found],
    old: Index | None,
    known: dict[Found, int],
    journal: Journal,
) -> None:
    stamps = np.array([(one.size, one.time) for one in items], dtype=np.int64)
    paths, labels = [one.path for one in items], [one.label for one in items]

    def blocks() -> Iterator[NDArray[np.float32]]:
        fresh = journal.vectors()
        before = None if old is None else old.vectors().numpy()
        for at in range(0, len(items), GATHERED):
            part = items[at : at + GATHERED]
            rows = np.empty((len(part), model.dim), dtype=np.float32)
            kept = np.array([known.get(one, -1) for one in part])
            if before is not None:
                rows[kept >= 0] = before[kept[kept >= 0]]
            rows[kept < 0] = fresh[[journal.rows[one] for one in part if one not in known]]
            yield rows

    store_index(out, model.identity, root, paths, labels, stamps, blocks())


def _check_room(folder: Path, todo: int, total: int, dim: int) -> None:
    """Say at once what would fail after hours: rows are written to the journal and to the index."""
    need, free = (todo + total) * (4 * dim + 100), shutil.disk_usage(folder).free
    if need > free:
        raise TrainingFailed(
            f"an index of {total:,} pictures needs about {need / 1e6:,.0f} MB beside it while it "
            f"is written, and {folder} has {free / 1e6:,.0f} MB left: make room, or choose another "
            "place with -o"
        )


def _left(out: Path) -> str:
    return f"{out} is as it was" if out.exists() else "there is no index yet"


@contextmanager
def _alone(place: Path, out: Path) -> Iterator[None]:
    """One process at a time writes an index."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(place))
        except WrongFolder as error:
            raise ValueError(
                f"another process is writing {out}: wait for it, or choose another file"
            ) from error
        yield
