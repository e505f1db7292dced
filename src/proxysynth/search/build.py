"""From a folder of images to an index; the next call embeds only what has changed since."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxysynth.data import UnreadableImage
from proxysynth.data.folders import existing_folder, files_below, is_image
from proxysynth.errors import TrainingFailed, cannot_write
from proxysynth.files import UNFINISHED
from proxysynth.search.index import Index
from proxysynth.search.index_file import Damage, encoded, write_index
from proxysynth.search.model import ImageEmbedder
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.inference import BATCH, Picture, Trained
from proxysynth.training.resources import Resources

AHEAD = 2  # batches decoded in advance
QUICK_TO_VERIFY = 2**30  # bytes of an index that is always verified: about a second


class Found(NamedTuple):
    """A file: path below the folder with forward slashes, size in bytes, time in nanoseconds."""

    path: str
    size: int
    time: int

    @property
    def label(self) -> str | None:
        """The first sub-folder of its path; None for a file in the folder itself."""
        return self.path.split("/")[0] if "/" in self.path else None


class Unreadable(NamedTuple):
    """A file without an embedding, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class IndexUpdate:
    """What an indexing did.

    Args:
        items: number of images in the index now.
        embedded, resumed: those embedded by this call, and by an interrupted one before.
        kept, removed: those taken over from the existing index, and those whose files are gone.
        damage: parts that were damaged in the existing index, and are repaired now.
        written: whether the file was replaced; False if nothing has changed.
    """

    file: Path
    items: int
    embedded: int
    resumed: int
    kept: int
    removed: int
    unreadable: tuple[Unreadable, ...]
    damage: tuple[str, ...]
    written: bool

    @property
    def summary(self) -> str:
        counts = {name: getattr(self, name) for name in ("embedded", "resumed", "kept", "removed")}
        counts["unreadable"] = len(self.unreadable)
        parts = [f"{n:,} {what}" for what, n in counts.items() if n or what == "embedded"]
        state = "" if self.written else "; nothing has changed"
        damage = ", ".join(self.damage)
        state += f"; it was damaged and is repaired ({damage})" if damage else ""
        return f"{self.file}: {self.items:,} images ({', '.join(parts)}){state}"


def build_index(
    model: Trained | ImageEmbedder,
    folder: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    rebuild: bool = False,
    workers: int | None = None,
) -> Index:
    """Index a folder of images and open the index: see `update_index`."""
    return Index.open(update_index(model, folder, file, rebuild=rebuild, workers=workers).file)


def update_index(
    model: Trained | ImageEmbedder,
    folder: str | os.PathLike[str],
    file: str | os.PathLike[str],
    *,
    rebuild: bool = False,
    verify: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> IndexUpdate:
    """Embed the images of a folder into an index; images that it already holds are kept.

    A kill at any moment leaves the old index or the new one, and the next call resumes. Damaged
    data of an existing index is embedded again.

    Args:
        model: of `ps.load` or `open_model`.
        folder: images at any depth; the label of an image is the first sub-folder of its path.
        file: the index, new or of the same model and folder.
        rebuild: embed everything, whatever the file holds.
        verify: compare all data with its checksums. Default: only if the index is to be rewritten
            or has at most 1 GB.
        workers: threads that decode images.
    """
    out = Path(os.path.abspath(os.path.expanduser(file)))
    embedder = model if isinstance(model, ImageEmbedder) else ImageEmbedder(model)
    root = os.path.abspath(os.path.expanduser(folder))
    found, progress = scan_folder(root), progress or Silent()
    old = None if rebuild or not out.exists() else _existing(out, embedder, root)
    known: dict[Found, int] = {}  # the row of each file; one that has changed is another one
    damage: Damage = {}
    if old is not None:
        with suppress(ValueError):  # a damaged path
            stamped = zip(old.paths, old.stamps.tolist(), strict=True)
            known = {Found(path, *stamp): row for row, (path, stamp) in enumerate(stamped)}
        changed = known.keys() != set(found)
        if verify or changed or out.stat().st_size <= QUICK_TO_VERIFY:
            damage = old.damage()
        again = [rows for part, rows in damage.items() if not part.startswith("label")]
        # Labels follow from the paths.
        known = {one: row for one, row in known.items() if not any(rows[row] for rows in again)}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        about = json.dumps({"model": asdict(embedder.identity), "root": root})
        with open_journal(out, about) as journal:
            resumed = sum(one in journal.files and one not in known for one in found)
            todo = [one for one in found if one not in known and one not in journal.files]
            bad: list[Unreadable] = []
            with progress.task("embedding", len(found), len(found) - len(todo)) as tick:
                for files, vectors, failed in embed_files(embedder, Path(root), todo, workers):
                    journal.add(zip(files, vectors, strict=True))
                    bad += failed
                    tick(len(files) + len(failed), f"{len(bad)} unreadable" if bad else "")
            items = [one for one in found if one in known or one in journal.files]
            if not items:
                raise ValueError(
                    f"none of {len(found)} images in {root} can be read; the first, "
                    f"{bad[0].path}: {bad[0].reason}"
                )
            kept = sum(one in known for one in items)
            now = {one.path for one in items}
            removed = 0 if old is None or damage else sum(path not in now for path in old.paths)
            moved = old is not None and str(old.root) != root
            written = old is None or moved or bool(damage) or not kept == len(items) == len(old)
            if written:
                paths, labels = [one.path for one in items], [one.label for one in items]
                stamps = np.array([(one.size, one.time) for one in items], dtype=np.int64)
                held = np.empty(0) if old is None else old.vectors().numpy()
                rows = (held[known[one]] if one in known else journal.vector(one) for one in items)
                write_index(out, embedder.identity, root, paths, labels, stamps, rows)
    except OSError as error:
        left = f"{out} is unchanged" if out.exists() else "no index was written"
        raise cannot_write(Path(error.filename or out), error, left) from error
    return IndexUpdate(
        file=out,
        items=len(items),
        embedded=len(items) - kept - resumed,
        resumed=resumed,
        kept=kept,
        removed=removed,
        unreadable=tuple(bad),
        damage=tuple(damage),
        written=written,
    )


def scan_folder(folder: str | os.PathLike[str]) -> list[Found]:
    """Every file with the suffix of an image, sorted by the bytes of its path.

    Hidden files are skipped and links are followed. A broken link is listed with size and time 0,
    so that it is reported when it is read.
    """
    base = existing_folder(folder, "give a folder of images")
    found = []
    for place in files_below(base):
        if is_image(place):
            size = time_ns = 0
            with suppress(OSError):
                status = os.stat(place)
                size, time_ns = status.st_size, status.st_mtime_ns
            found.append(Found(os.path.relpath(place, base).replace(os.sep, "/"), size, time_ns))
    if not found:
        raise ValueError(
            f"expected images in {base} or its sub-folders, found none: give another folder, or "
            "convert them to JPEG or PNG"
        )
    return sorted(found, key=lambda file: encoded(file.path))


def _existing(out: Path, embedder: ImageEmbedder, root: str) -> Index:
    """The existing index; an error if it is of another model or folder."""
    old = Index.open(out, verify=False)
    if not old.model.same_as(embedder.identity):
        raise ValueError(
            f"{out} was made by another model, {old.model.name} (weights {old.model.weights}), "
            f"not by {embedder.identity.name} (weights {embedder.identity.weights}): give that "
            "model, another file, or --rebuild to embed all images again"
        )
    if str(old.root) != root and old.root.is_dir():  # otherwise it was moved
        raise ValueError(
            f"give another file than {out} for an index of {root}, or --rebuild to replace it: it "
            f"is an index of {old.root}"
        )
    return old


class Journal:
    """The images that an interrupted indexing has embedded, in an SQLite database.

    An open journal is locked: one process at a time writes an index. `files` are those it holds.

    Args:
        about: the model and the folder. It is part of the checksum of each row, so rows of another
            model do not count, and neither do damaged ones.
    """

    def __init__(self, path: Path, about: str) -> None:
        self.database, self.about = sqlite3.connect(path, timeout=0), about
        try:
            execute = self.database.execute
            execute("PRAGMA locking_mode = EXCLUSIVE")  # from now on, until it is closed
            with self.database:
                execute("BEGIN EXCLUSIVE")
                execute(
                    "CREATE TABLE IF NOT EXISTS images (path BLOB PRIMARY KEY, size INTEGER, "
                    "time INTEGER, vector BLOB, crc32 INTEGER)"
                )
                if execute("PRAGMA quick_check").fetchall() != [("ok",)]:
                    raise sqlite3.DatabaseError("the journal is damaged")
            self.files = {
                Found(row[0].decode("utf-8", "surrogateescape"), *row[1:3])
                for *row, crc32 in execute("SELECT * FROM images")
                if crc32 == self._checksum(row)
            }
        except BaseException:
            self.database.close()
            raise

    def add(self, embedded: Iterable[tuple[Found, NDArray[np.float32]]]) -> None:
        """Save files and their embeddings (d,)."""
        for file, vector in embedded:
            row = [encoded(file.path), file.size, file.time, vector.astype("<f4").tobytes()]
            insert = "INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?)"
            self.database.execute(insert, (*row, self._checksum(row)))
            self.files.add(file)
        self.database.commit()

    def vector(self, file: Found) -> NDArray[np.float32]:
        query = "SELECT vector FROM images WHERE path = ?"
        (data,) = self.database.execute(query, (encoded(file.path),)).fetchone()
        return np.frombuffer(data, dtype="<f4")

    def _checksum(self, row: Sequence[Any]) -> int:
        return zlib.crc32(repr((self.about, row)).encode())


def journal_path(index: Path) -> Path:
    return index.with_name(f"{UNFINISHED}{index.name}.journal")


@contextmanager
def open_journal(index: Path, about: str) -> Iterator[Journal]:
    """The journal of an index. It is removed at the end, but kept if the block is interrupted."""
    path = journal_path(index)
    try:
        try:
            journal = Journal(path, about)
        except sqlite3.OperationalError:  # the disk, or the lock
            raise
        except sqlite3.DatabaseError:  # damaged
            _remove(path)
            journal = Journal(path, about)
        with closing(journal.database):
            try:
                yield journal
            except BaseException:
                if not journal.files:
                    _remove(path)
                raise
            _remove(path)  # before the lock is released
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise ValueError(
                f"another process is writing {index}: wait for it, or choose another file"
            ) from error
        raise TrainingFailed(f"cannot write {path}: {error}; fix it and rerun") from error


def _remove(path: Path) -> None:
    for name in (path, path.with_name(f"{path.name}-journal")):
        name.unlink(missing_ok=True)


def embed_files(
    embedder: ImageEmbedder, root: Path, files: Sequence[Found], workers: int | None = None
) -> Iterator[tuple[list[Found], NDArray[np.float32], list[Unreadable]]]:
    """Batch by batch, in order, files with their embeddings (n, d), and unreadable ones.

    Threads decode ahead of the network.
    """
    batches = (files[at : at + BATCH] for at in range(0, len(files), BATCH))
    pool = ThreadPoolExecutor(max(1, Resources(workers=workers).loader_workers))
    begun = ([(f, pool.submit(embedder.opened, root / f.path)) for f in each] for each in batches)
    try:
        waiting = deque(islice(begun, AHEAD))
        while waiting:
            waiting.extend(islice(begun, 1))
            good: dict[Found, Picture] = {}
            bad: list[Unreadable] = []
            for file, image in waiting.popleft():
                try:
                    good[file] = image.result()
                except UnreadableImage as error:
                    bad.append(Unreadable(file.path, error.reason))
            rows = embedder.embed(list(good.values()), workers).numpy()
            finite = np.isfinite(rows).all(axis=1)
            lost = [file for file, fine in zip(good, finite, strict=True) if not fine]
            bad += [Unreadable(file.path, "its embedding is not finite") for file in lost]
            yield [file for file in good if file not in lost], rows[finite], bad
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
