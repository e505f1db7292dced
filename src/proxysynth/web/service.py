"""What the routes call: decoding, embedding and searching, each off the event loop.

Queries that wait at the same moment are answered together: a product of eight vectors with the
embeddings reads them once, as does a product of one. A request works with the snapshot of the index
that it has taken first; after the index file is replaced, the next request sees the new one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from proxysynth.retrieval.calibration import DEFAULT_TARGET
from proxysynth.search.index import Hit, Index
from proxysynth.training.run_folder import REPORT, find_run
from proxysynth.web.guard import Limits, Refused
from proxysynth.web.images import decode_upload, encoded_image, release_memory
from proxysynth.web.layout import METHOD, evenly, layout

log = logging.getLogger("proxysynth.serve")

Key = TypeVar("Key", bound=Hashable)
Query = TypeVar("Query")
Answer = TypeVar("Answer")
Value = TypeVar("Value")

CHECK_SECONDS = 0.25  # between looks at the index file
DECODERS = 2  # threads; few, because each may hold an image of the largest size


@dataclass(eq=False)
class Batcher(Generic[Key, Query, Answer]):
    """Collects queries and answers at most `most` of the same key in one call, in its own thread.

    While a batch is computed the next one collects by itself; only a query that finds the thread
    idle waits a moment, `patience` seconds, for others.
    """

    answer_all: Callable[[Key, Sequence[Query]], Sequence[Answer]]
    most: int = 64
    patience: float = 0.001

    def __post_init__(self) -> None:
        self._waiting: dict[Key, list[tuple[Query, asyncio.Future[Answer]]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")

    def __len__(self) -> int:
        """The number of queries that are not yet being answered."""
        return sum(map(len, self._waiting.values()))

    async def ask(self, key: Key, query: Query) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append((query, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """Let the thread end once it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        await asyncio.sleep(self.patience)
        loop = asyncio.get_running_loop()
        while self._waiting:
            key = next(iter(self._waiting))
            together = self._waiting.pop(key)
            if len(together) > self.most:  # the rest goes behind the other keys
                self._waiting[key] = together[self.most :]
            batch = [one for one in together[: self.most] if not one[1].done()]  # hung up
            if not batch:
                continue
            queries = [query for query, _ in batch]
            try:
                answers = await loop.run_in_executor(self._thread, self.answer_all, key, queries)
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
            else:
                for (_, future), answer in zip(batch, answers, strict=True):
                    if not future.done():
                        future.set_result(answer)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An open index and what is known of its run, else None; unchanged if the file is replaced."""

    index: Index
    folder: Path | None = None  # of the run
    seen: frozenset[str] | None = None  # the classes that the model was trained on
    threshold: float | None = None  # the similarity from which two images count as the same class
    threshold_about: str | None = None  # what it was fitted to, and its rate of false accepts

    @staticmethod
    def of(index: Index, run: str | os.PathLike[str] | None = None) -> Snapshot:
        """The index with the classes its model has seen, if its run can still be read."""
        place = run if run is not None else index.model.folder
        if place is None:
            return Snapshot(index)
        try:
            recorded, made = find_run(Path(place)), index.calibration(run)
        except (ValueError, OSError, RuntimeError):
            recorded = made = None
        seen = None if recorded is None else frozenset(recorded.classes)
        threshold = None if made is None else made.thresholds.get(DEFAULT_TARGET)
        about = None if made is None or threshold is None else made.about()
        return Snapshot(index, Path(place), seen, threshold, about)

    @property
    def report(self) -> Path | None:
        path = None if self.folder is None else self.folder / REPORT
        # A link might lead anywhere.
        return path if path is not None and path.is_file() and not path.is_symlink() else None

    def was_seen(self, label: str | None) -> bool | None:
        """Whether the model was trained on the label; None if that is not known."""
        return None if self.seen is None or label is None else label in self.seen

    def item(self, number: int) -> dict[str, Any]:
        """An item for the API."""
        path, label = self.index.paths[number], self.index.labels[number]
        seen = self.was_seen(label)
        return {"number": number, "id": number, "path": path, "label": label, "seen": seen}

    @cached_property
    def labels(self) -> list[dict[str, Any]]:
        """Every label and the number of its items."""
        codes = self.index.labels.codes
        counts = np.bincount(codes[codes >= 0], minlength=len(self.index.label_names)).tolist()
        return [
            {"label": name, "count": count, "seen": self.was_seen(name)}
            for name, count in zip(self.index.label_names, counts, strict=False)
        ]

    def items(self, k: int, label: str | None, start: int | None) -> dict[str, Any]:
        """k items of one label or of all, from a position on or evenly spaced, for the API."""
        numbers = range(len(self.index)) if label is None else self.index.labels.items_of(label)
        total = len(numbers)
        chosen = evenly(total, k) if start is None else range(total)[start : start + k]
        hits = [self.item(int(numbers[place])) for place in chosen]
        return {"generation": self.index.generation, "total": total, "hits": hits}

    def map(self, most: int) -> dict[str, Any]:
        """Positions of at most `most` items on the map, column by column."""
        chosen = evenly(len(self.index), most)
        x = np.nan_to_num(self.index.vectors()[torch.from_numpy(chosen)].numpy())
        places = layout(x).round(4)
        codes = np.asarray(self.index.labels.codes)[chosen].tolist()
        names = list(self.index.label_names)
        seen = [self.was_seen(name) for name in names]
        return {
            "generation": self.index.generation,
            "items": len(self.index),
            "method": METHOD,
            "number": chosen.tolist(),
            "id": chosen.tolist(),
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "label": codes,
            "labels": names,
            "seen": [None if code < 0 else seen[code] for code in codes],
        }


Vector = NDArray[np.float32]
SearchQuery = tuple[Vector, int, float | None, int | None]
"""A vector (d,), how many neighbors, their minimum similarity, and an item not to be found."""


def search_all(where: tuple[Snapshot, str | None], asked: Sequence[SearchQuery]) -> list[list[Hit]]:
    """The neighbors of each query among all items or those of one label, by one product."""
    (now, label), (vectors, ks, thresholds, exclude) = where, zip(*asked, strict=True)
    found = now.index.search_vectors(np.stack(vectors), max(ks), label=label, exclude=exclude)
    return [
        [hit for hit in hits[:k] if threshold is None or hit.similarity >= threshold]
        for hits, k, threshold in zip(found, ks, thresholds, strict=True)
    ]


def as_query(now: Snapshot, numbers: Sequence[float]) -> Vector:
    """A vector (d,) of a client: only its direction matters; scaled to 1 it fits into float32."""
    vector, dim = np.asarray(numbers, dtype=np.float64), now.index.dim
    if len(vector) != dim:
        expected = f"a vector must have the {dim} dimensions of the index, got {len(vector)}"
        raise Refused(422, f"{expected}: embed the image with its model")
    return (vector / (np.abs(vector).max() or 1.0)).astype(np.float32)


class Service:
    """The index that is served now, and the threads that work for it.

    The index is read into memory, so that overwriting its file in place does no harm. `current` is
    replaced atomically: a request that has started with the old one finishes with it. If the new
    file is not an index, the old one stays.

    Attributes:
        loads: how often an index was loaded.
        reload: set to reload the index and the information about its run, even if the file is the
            same.
    """

    def __init__(
        self, index: Index, limits: Limits | None = None, run: str | os.PathLike[str] | None = None
    ) -> None:
        self.limits, self._run = limits or Limits(), run
        self.current = Snapshot.of(index.reload(force=True, in_memory=True), run)
        self.loads, self.reload = 1, False
        self.searcher = Batcher(search_all)
        self.embedder = Batcher(self._embed_all, most=16)
        self._last_warning = ""
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        self._map: tuple[str, asyncio.Future[dict[str, Any]]] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the index and lay out its map meanwhile; end the threads afterwards."""
        tasks = [asyncio.create_task(self.map()), asyncio.create_task(self._watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.searcher.close()
            self.embedder.close()
            self._decoders.shutdown(wait=False, cancel_futures=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.to_thread(self.check)

    def check(self) -> None:
        """Open the new index if the file has been replaced."""
        old, forced, self.reload = self.current.index, self.reload, False
        try:
            new = old.reload(forced, in_memory=True)
            if new is not old:
                self.current = Snapshot.of(new, self._run)
                self.loads += 1
                log.info("Index reloaded: %s images", f"{len(new):,}")
            self._last_warning = ""
        except (ValueError, OSError) as error:
            if str(error) != self._last_warning:  # once, not four times a second
                log.warning("the index that was loaded before is still served: %s", error)
                self._last_warning = str(error)

    def snapshot(self, number: int, generation: str | None) -> Snapshot:
        """The current snapshot; an error unless it is the one the client means and has the item."""
        now = self.current
        if generation is not None and generation != now.index.generation:
            raise Refused(409, "the index has been replaced: search again")
        if number >= (n := len(now.index)):
            raise Refused(404, f"the index has the items 0 to {n - 1}, there is no {number}")
        return now

    async def search(
        self,
        now: Snapshot,
        vector: Vector,
        k: int = 10,
        threshold: float | None = None,
        label: str | None = None,
        exclude: int | None = None,
    ) -> list[Hit]:
        """The neighbors of a vector, of one label unless that is None or empty."""
        if not (np.isfinite(vector).all() and vector.any()):
            raise Refused(422, "a vector must be finite and not all zeros: it has no direction")
        query = vector, k, threshold, exclude
        return await self._in_time(self.searcher.ask((now, label or None), query))

    async def embed_file(self, now: Snapshot, file: BinaryIO) -> Vector:
        """The embedding (d,) of an image file by the model of a snapshot."""
        side = now.index.model.shrink
        image = await self._decoding(lambda: decode_upload(file, self.limits, side))
        try:
            return await self._in_time(self.embedder.ask(now, image))
        except (ValueError, OSError, RuntimeError) as error:
            raise Refused(503, f"the images cannot be embedded: {error}") from error
        finally:
            pixels = image.width * image.height  # all of the file's, if the model takes these
            asyncio.get_running_loop().call_later(0.5, release_memory, pixels)

    def _embed_all(self, now: Snapshot, images: Sequence[Image.Image]) -> list[Vector]:
        """The embedding (d,) of each image by the model of a snapshot."""
        try:
            model = now.index.embedder(self._run)
        except (ValueError, OSError, RuntimeError) as error:
            log.warning("the model cannot be loaded: %s", error)
            detail = "the model of this index cannot be loaded: see the log of the service"
            raise Refused(503, detail) from error
        return list(model.embed(images, workers=1).numpy())

    async def image(self, now: Snapshot, number: int, side: int) -> bytes:
        """An image of the index as a JPEG of at most `side` pixels."""
        root, path = now.index.root, now.index.paths[number]
        return await self._decoding(lambda: encoded_image(root, path, side, self.limits))

    async def map(self) -> dict[str, Any]:
        """The map of the current snapshot, computed once."""
        now = self.current
        if self._map is None or self._map[0] != now.index.generation:
            made = asyncio.ensure_future(asyncio.to_thread(now.map, self.limits.map_points))
            self._map = (now.index.generation, made)
        # Shielded: a client that disconnects must not cancel it for the others.
        return await self._in_time(asyncio.shield(self._map[1]))

    async def _decoding(self, work: Callable[[], Value]) -> Value:
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._decoders, work))

    async def _in_time(self, work: Awaitable[Value]) -> Value:
        try:
            return await asyncio.wait_for(work, self.limits.answer_seconds)
        except asyncio.TimeoutError as error:
            seconds = self.limits.answer_seconds
            raise Refused(503, f"no answer within {seconds:g} seconds: try later") from error
