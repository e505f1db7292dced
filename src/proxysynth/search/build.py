"""From a folder of images to an index; the next call embeds only what has changed since."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from proxysynth.data import UnreadableImage
from proxysynth.data.folders import existing_folder, folder_entries, is_image
from proxysynth.errors import TrainingFailed, cannot_write
from proxysynth.files import UNFINISHED, CannotWrite
from proxysynth.search.index import Index
from proxysynth.search.index_file import Damage, encoded, write_index
from proxysynth.search.model import ImageEmbedder
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.inference import BATCH, Picture, Trained
from proxysynth.training.resources import Resources

AHEAD = 2  # batches decoded in advance
JOURNAL_SECONDS = 2.0  # of work that a kill may cost
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
        damage: what was damaged in the existing index, and is repaired now; empty if nothing.
        verified: whether all data of the existing index was compared with its checksums; None if
            it has no checksums.
        written: whether the file was replaced; False if nothing has changed.
    """

    file: Path
    items: int
    embedded: int
    resumed: int
    kept: int
    removed: int
    unreadable: tuple[Unreadable, ...]
    damage: str
    verified: bool | None
    written: bool
    seconds: float

    @property
    def summary(self) -> str:
        counts = {name: getattr(self, name) for name in ("embedded", "resumed", "kept", "removed")}
        counts["unreadable"] = len(self.unreadable)
        parts = [f"{n:,} {what}" for what, n in counts.items() if n or what == "embedded"]
        state = "" if self.written else "; nothing has changed"
        state += f"; it was damaged and is repaired ({self.damage})" if self.damage else ""
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
    begun, out = time.perf_counter(), Path(os.path.abspath(os.path.expanduser(file)))
    embedder = model if isinstance(model, ImageEmbedder) else ImageEmbedder(model)
    root = os.path.abspath(os.path.expanduser(folder))
    found, progress = scan_folder(root), progress or Silent()
    old = None if rebuild or not out.exists() else _existing(out, embedder, root)
    known: dict[Found, int] = {}  # the row of each file; one that has changed is another one
    damage: Damage | None = None
    verified: bool | None = False
    if old is not None:
        with suppress(ValueError):  # a damaged path
            stamped = zip(old.paths, old.stamps.tolist(), strict=True)
            known = {Found(path, *stamp): row for row, (path, stamp) in enumerate(stamped)}
        changed = known.keys() != set(found)
        thorough = verify or changed or out.stat().st_size <= QUICK_TO_VERIFY
        damage = old.damage(embeddings=thorough)
        verified = None if damage is None else thorough
        if damage and {"path_text", "path_ends", "stamps"} & set(damage.parts):
            known = {}
        elif damage:  # labels follow from the paths
            known = {one: row for one, row in known.items() if not damage.rows[row]}
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        about = json.dumps({"model": asdict(embedder.identity), "root": root})
        with open_journal(out, about, embedder.dim) as journal:
            resumed = sum(one in journal.files and one not in known for one in found)
            todo = [one for one in found if one not in known and one not in journal.files]
            _check_room(out.parent, len(todo), len(found), embedder.dim)
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
            journal.finished = True
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
        damage=str(damage) if damage else "",
        verified=verified,
        written=written,
        seconds=time.perf_counter() - begun,
    )


def scan_folder(folder: str | os.PathLike[str]) -> list[Found]:
    """Every file with the suffix of an image, sorted by the bytes of its path.

    Hidden files are skipped and links are followed. A broken link is listed with size and time 0,
    so that it is reported when it is read.
    """
    base = existing_folder(folder, "give a folder of images")
    found = sorted(_files(str(base), "", frozenset()), key=lambda file: encoded(file.path))
    if not found:
        raise ValueError(
            f"expected images in {base} or its sub-folders, found none: give another folder, or "
            "convert them to JPEG or PNG"
        )
    return found


def _files(place: str, prefix: str, above: frozenset[str]) -> Iterator[Found]:
    real = os.path.realpath(place)
    if real in above:  # a link to a folder above
        return
    folders, others = folder_entries(place)
    for folder in folders:
        yield from _files(folder.path, f"{prefix}{folder.name}/", above | {real})
    for entry in others:
        if is_image(entry.name):
            size = time_ns = 0
            with suppress(OSError):
                size, time_ns = entry.stat().st_size, entry.stat().st_mtime_ns
            yield Found(f"{prefix}{entry.name}", size, time_ns)


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

    An open journal is locked: one process at a time writes an index. `files` are those it holds;
    once the index is written, it is `finished` and no longer needed.
    """

    def __init__(self, path: Path, about: str, dim: int) -> None:
        self.database = database = sqlite3.connect(path, timeout=0)
        self.finished, self.saved = False, time.perf_counter()
        try:
            database.execute("PRAGMA locking_mode = EXCLUSIVE")  # from now on, until it is closed
            with database:
                database.execute("BEGIN EXCLUSIVE")
                database.execute("CREATE TABLE IF NOT EXISTS about (text TEXT)")
                database.execute(
                    "CREATE TABLE IF NOT EXISTS images (path BLOB PRIMARY KEY, size INTEGER, "
                    "time INTEGER, vector BLOB, crc32 INTEGER)"
                )
                if database.execute("PRAGMA quick_check").fetchall() != [("ok",)]:
                    raise sqlite3.DatabaseError("the journal is damaged")
                if database.execute("SELECT text FROM about").fetchall() != [(about,)]:
                    database.execute("DELETE FROM images")  # of another model or folder
                    database.execute("DELETE FROM about")
                    database.execute("INSERT INTO about VALUES (?)", (about,))
            stored = database.execute("SELECT * FROM images WHERE length(vector) = ?", (4 * dim,))
            self.files = {
                Found(path.decode("utf-8", "surrogateescape"), size, time_ns)
                for path, size, time_ns, vector, crc32 in stored
                if crc32 == _row_sum(path, size, time_ns, vector)
            }
        except BaseException:
            database.close()
            raise

    def add(self, embedded: Iterable[tuple[Found, NDArray[np.float32]]]) -> None:
        """Save files and their embeddings (d,), on the disk every few seconds."""
        for file, vector in embedded:
            row = (encoded(file.path), file.size, file.time, vector.astype("<f4").tobytes())
            insert = "INSERT OR REPLACE INTO images VALUES (?, ?, ?, ?, ?)"
            self.database.execute(insert, (*row, _row_sum(*row)))
            self.files.add(file)
        if time.perf_counter() - self.saved >= JOURNAL_SECONDS:
            self.database.commit()
            self.saved = time.perf_counter()

    def vector(self, file: Found) -> NDArray[np.float32]:
        query = "SELECT vector FROM images WHERE path = ?"
        (data,) = self.database.execute(query, (encoded(file.path),)).fetchone()
        return np.frombuffer(data, dtype="<f4")


def _row_sum(path: bytes, size: int, time_ns: int, vector: bytes) -> int:
    return zlib.crc32(b"%b %d %d %b" % (path, size, time_ns, vector))


def journal_path(index: Path) -> Path:
    return index.with_name(f"{UNFINISHED}{index.name}.journal")


@contextmanager
def open_journal(index: Path, about: str, dim: int) -> Iterator[Journal]:
    """The journal of an index, removed afterwards if the index is finished or it is empty."""
    path = journal_path(index)
    if path.is_dir():  # of version 0.1
        shutil.rmtree(path)
    journal = None
    try:
        try:
            journal = Journal(path, about, dim)
        except (sqlite3.Error, TypeError, AttributeError) as error:  # the latter: damaged rows
            if "locked" in str(error):
                raise ValueError(
                    f"another process is writing {index}: wait for it, or choose another file"
                ) from error
            if _disk_error(error) is not None:
                raise
            _remove(path)  # damaged, or of an older version
            journal = Journal(path, about, dim)
        with closing(journal.database):
            try:
                yield journal
            finally:
                if journal.finished or not journal.files:
                    _remove(path)  # before the lock is released
                else:
                    journal.database.commit()
    except sqlite3.Error as error:
        code = _disk_error(error)
        if journal is None or code is None:
            _remove(path)
        raise CannotWrite(code or errno.EIO, str(error), str(path)) from error


def _disk_error(error: Exception) -> int | None:
    """The errno of a full or forbidden disk; None for a damaged journal."""
    codes = {"full": errno.ENOSPC, "readonly": errno.EROFS, "disk I/O": errno.EIO}
    codes["unable to open"] = errno.EACCES
    return next((code for text, code in codes.items() if text in str(error)), None)


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
            rows = embedder.embed(list(good.values()), workers)
            finite = torch.isfinite(rows).all(dim=1)
            kept = []
            for file, fine in zip(good, finite.tolist(), strict=True):
                if fine:
                    kept.append(file)
                else:
                    bad.append(Unreadable(file.path, "its embedding is not finite"))
            yield kept, rows[finite].numpy(), bad
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _check_room(folder: Path, todo: int, total: int, dim: int) -> None:
    """Fail now instead of after hours: rows are written to the journal and to the index."""
    need, free = (todo + total) * (4 * dim + 200) + 65536, shutil.disk_usage(folder).free
    if need > free:
        raise TrainingFailed(
            f"an index of {total:,} images needs about {need / 1e6:,.2f} MB and {folder} has "
            f"{free / 1e6:,.2f} MB left: free some space, or choose another place with -o"
        )
