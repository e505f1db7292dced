"""From a folder of images to an index; the next call embeds only what has changed since."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from proxysynth.data import UnreadableImage, open_image
from proxysynth.data.folders import existing_folder, files_below, is_image
from proxysynth.data.loader import prefetch
from proxysynth.data.sources import has_parts
from proxysynth.errors import cannot_write
from proxysynth.files import UNFINISHED
from proxysynth.search.index import Index
from proxysynth.search.index_file import Damage, encoded, write_index
from proxysynth.search.model import ImageEmbedder
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.inference import BATCH, Picture, Trained
from proxysynth.training.resources import Resources

AHEAD = 2  # batches decoded in advance
JOURNAL_SECONDS = 2.0  # of work that a kill may cost, or ten times what it takes to save it
QUICK_TO_VERIFY = 2**30  # bytes of an index that is always verified: about a second

Row = NDArray[np.float32]


class Found(NamedTuple):
    """A file: path below the folder with forward slashes, size in bytes, time in nanoseconds."""

    path: str
    size: int
    time: int


class Unreadable(NamedTuple):
    """A file without an embedding, and the reason."""

    path: str
    reason: str


@dataclass(frozen=True)
class IndexUpdate:
    """What indexing a folder changed.

    Args:
        items: images in the index now.
        embedded, resumed: of them, by this call and by an interrupted one before.
        kept, removed: of the existing index; the files of the latter are gone.
        damage: parts of the existing index that were damaged and are now repaired.
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
        if self.damage:
            state += f"; it was damaged and is repaired ({', '.join(self.damage)})"
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
        folder: images at any depth; for their labels see `labels_of`.
        file: the index, new or of the same model and folder.
        rebuild: embed everything, whatever the file holds.
        verify: compare all data with its checksums. Default: only if the index is to be rewritten
            or has at most 1 GB.
        workers: threads that decode images.
    """
    if not isinstance(model, Trained | ImageEmbedder):
        got = repr(model) if isinstance(model, str) else type(model).__name__
        raise ValueError(f"an index needs a model, got {got}: open a run with ps.load(folder)")
    out = Path(os.path.abspath(os.path.expanduser(file)))
    embedder = model if isinstance(model, ImageEmbedder) else ImageEmbedder(model)
    root = os.path.abspath(os.path.expanduser(folder))
    found, progress = scan_folder(root), progress or Silent()
    old = None if rebuild or not out.exists() else _existing(out, embedder, root)
    kept: dict[Found, Row] = {}  # a file that has changed is another one
    damage: Damage = {}
    if old is not None:
        with suppress(ValueError):  # a damaged path
            kept = _rows(old)
        changed = kept.keys() != set(found)
        if verify or changed or out.stat().st_size <= QUICK_TO_VERIFY:
            damage = old.damage()
        lost = [rows for part, rows in damage.items() if not part.startswith("label")]
        if lost:  # labels follow from the paths
            kept = dict(compress(kept.items(), ~np.any(lost, axis=0)))

    def write(file: Path, rows: Mapping[Found, Row]) -> None:
        items = [one for one in found if one in rows]
        paths, labels = [one.path for one in items], labels_of(root, items)
        stamps = np.array([(one.size, one.time) for one in items], dtype=np.int64)
        vectors = (rows[one] for one in items)
        write_index(file, embedder.identity, root, paths, labels, stamps, vectors)

    journal, lock = journal_path(out), out.with_name(f"{UNFINISHED}{out.name}.lock")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=0), ExitStack() as at_end:  # released if the process is killed
            at_end.callback(lock.unlink, missing_ok=True)
            earlier = _resumed(journal, embedder, root)
            new = {one: earlier[one] for one in found if one in earlier and one not in kept}
            todo = [one for one in found if one not in kept and one not in new]
            resumed, bad = len(new), list[Unreadable]()
            saved, cost = time.perf_counter(), 0.0
            try:
                with progress.task("embedding", len(found), len(found) - len(todo)) as tick:
                    for files, vectors, failed in embed_files(embedder, Path(root), todo, workers):
                        new |= zip(files, vectors, strict=True)
                        bad += failed
                        tick(len(files) + len(failed), f"{len(bad)} unreadable" if bad else "")
                        begun = time.perf_counter()
                        if begun - saved >= max(JOURNAL_SECONDS, 10 * cost):
                            write(journal, new)
                            new = _rows(Index.open(journal))  # on the disk instead of in memory
                            saved = time.perf_counter()
                            cost = saved - begun
            except BaseException:
                if new:
                    write(journal, new)
                raise
            rows = new | kept
            items = [one for one in found if one in rows]
            if not items:
                first = f"the first, {bad[0].path}: {bad[0].reason}"
                raise ValueError(f"none of {len(found)} images in {root} can be read; {first}")
            now = {one.path for one in items}
            removed = 0 if old is None or damage else sum(path not in now for path in old.paths)
            same = old is not None and str(old.root) == root and len(old) == len(items)
            written = bool(new or damage) or not same
            if written:
                write(out, rows)
            for name in (journal, journal.with_name(f"{UNFINISHED}{journal.name}")):
                name.unlink(missing_ok=True)
    except Timeout as error:
        advice = "wait for it, or choose another file"
        raise ValueError(f"another process is writing {out}: {advice}") from error
    except OSError as error:
        left = f"{out} is unchanged" if out.exists() else "no index was written"
        raise cannot_write(Path(error.filename or out), error, left) from error
    return IndexUpdate(
        file=Path(file),
        items=len(items),
        embedded=len(new) - resumed,
        resumed=resumed,
        kept=len(items) - len(new),
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
    base = existing_folder(folder, "an index takes a folder of images")
    found = []
    for place in files_below(base):
        if is_image(place):
            size = time_ns = 0
            with suppress(OSError):
                status = os.stat(place)
                size, time_ns = status.st_size, status.st_mtime_ns
            found.append(Found(os.path.relpath(place, base).replace(os.sep, "/"), size, time_ns))
    if not found:
        advice = "give another folder, or convert them to JPEG or PNG"
        raise ValueError(f"expected images in {base} or its sub-folders, found none: {advice}")
    return sorted(found, key=lambda file: encoded(file.path))


def labels_of(folder: str | os.PathLike[str], files: Sequence[Found]) -> list[str | None]:
    """The label of each file of a folder: the first sub-folder of its path, or the second if the
    first is a part such as train or test, as in training; None for a file outside of them."""
    depth = int(has_parts(folder))
    parts = (file.path.split("/") for file in files)
    return [part[depth] if len(part) > depth + 1 else None for part in parts]


def _rows(index: Index) -> dict[Found, Row]:
    """The embedding of each file, as it was when it was indexed."""
    items = zip(index.paths, index.stamps.tolist(), index.vectors().numpy(), strict=True)
    return {Found(path, *stamp): row for path, stamp, row in items}


def _resumed(journal: Path, embedder: ImageEmbedder, root: str) -> dict[Found, Row]:
    """What an interrupted indexing of the same folder by the same model has embedded."""
    with suppress(ValueError):  # there is none, or it is damaged
        begun = Index.open(journal, verify=True)
        if begun.model.same_as(embedder.identity) and str(begun.root) == root:
            return _rows(begun)
    return {}


def _existing(out: Path, embedder: ImageEmbedder, root: str) -> Index:
    """The existing index; an error if it is of another model or folder."""
    old = Index.open(out, verify=False)
    advice = "give that model, another file, or --rebuild to embed all images again"
    old.model.check_same(embedder.identity, out, advice)
    if str(old.root) != root and old.root.is_dir():  # otherwise it was moved
        advice = f"give another file for {root}, or --rebuild to replace it"
        raise ValueError(f"{out} is an index of {old.root}: {advice}")
    return old


def journal_path(index: Path) -> Path:
    return index.with_name(f"{UNFINISHED}{index.name}.journal")


def embed_files(
    embedder: ImageEmbedder, root: Path, files: Sequence[Found], workers: int | None = None
) -> Iterator[tuple[list[Found], NDArray[np.float32], list[Unreadable]]]:
    """Batch by batch, in order, files with their embeddings (n, d), and unreadable ones.

    Threads decode ahead of the network.
    """
    batches = (files[at : at + BATCH] for at in range(0, len(files), BATCH))
    pool = ThreadPoolExecutor(max(1, Resources(workers=workers).loader_workers))
    side = embedder.identity.shrink
    begun = (
        [(file, pool.submit(open_image, root / file.path, side=side)) for file in some]
        for some in batches
    )
    try:
        for batch in prefetch(begun, AHEAD):
            good: dict[Found, Picture] = {}
            bad: list[Unreadable] = []
            for file, image in batch:
                try:
                    good[file] = image.result()
                except UnreadableImage as error:
                    bad.append(Unreadable(file.path, error.reason))
            rows = embedder.embed(list(good.values()), workers).numpy()
            finite = np.isfinite(rows).all(axis=1)
            lost = compress(good, ~finite)
            bad += [Unreadable(file.path, "its embedding is not finite") for file in lost]
            yield list(compress(good, finite)), rows[finite], bad
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
