"""What the routes call: decoding, embedding and searching, each off the event loop.

Queries that wait at the same moment are answered together: a product of eight vectors with the
embeddings reads them once, as does a product of one. When the index file is replaced, the next
query sees the new one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from proxysynth.search.index import Hit, Index
from proxysynth.search.index_file import IndexChanged
from proxysynth.search.model import ImageEmbedder, ModelIdentity
from proxysynth.training.inference import Picture
from proxysynth.training.run_folder import find_run

from .guard import Limits, Refused
from .images import LARGE, THUMBNAIL, decode_upload, encoded_image, release_memory
from .layout import METHOD, evenly, layout

log = logging.getLogger("proxysynth.serve")

Query = TypeVar("Query")
Answer = TypeVar("Answer")
Result = TypeVar("Result")

REPORT = "report.html"
CHECK_SECONDS = 0.25  # between looks at the index file
DECODERS = 2  # threads; few, because each may hold an image of the largest size
THUMBNAILS = 2000  # kept in memory, 10 to 30 KB each
REPLACED = 3  # times a search may start again because the model was replaced


@dataclass(eq=False)
class Batcher(Generic[Query, Answer]):
    """Collects queries and answers many of them in one call, in its own thread.

    While a batch is computed the next one collects by itself; only a query that finds the thread
    idle waits a moment for others.

    Args:
        answer_all: gives one answer, or one exception, for each of at most `most` queries.
        patience: seconds that a first query waits for others.

    Attributes:
        waiting: queries that are not yet being answered.
    """

    answer_all: Callable[[Sequence[Query]], Sequence[Answer | Exception]]
    most: int = 64
    patience: float = 0.001

    def __post_init__(self) -> None:
        self.waiting: list[tuple[Query, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")

    async def ask(self, query: Query) -> Answer:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.waiting.append((query, future))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        return await future

    def close(self) -> None:
        """Let the thread end once it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        await asyncio.sleep(self.patience)
        loop = asyncio.get_running_loop()
        answers: Sequence[Answer | Exception]
        while self.waiting:
            batch, self.waiting = self.waiting[: self.most], self.waiting[self.most :]
            batch = [(query, future) for query, future in batch if not future.done()]  # hung up
            if not batch:
                continue
            try:
                queries = [query for query, _ in batch]
                answers = await loop.run_in_executor(self._thread, self.answer_all, queries)
            except Exception as error:
                answers = [error] * len(batch)
            for (_, future), answer in zip(batch, answers, strict=True):
                if future.done():
                    continue
                if isinstance(answer, Exception):
                    future.set_exception(answer)
                else:
                    future.set_result(answer)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An open index and what follows from it; unchanged when the file is replaced.

    Args:
        folder: of the run that made it; None if there is no run.
        seen: the classes its model was trained on; None if that is not known.
        threshold: the similarity from which two images count as the same class, likewise.
    """

    index: Index
    folder: Path | None = None
    seen: frozenset[str] | None = None
    threshold: float | None = None

    @staticmethod
    def of(index: Index, run: str | os.PathLike[str] | None = None) -> Snapshot:
        """The index with the classes its model has seen, if its run can still be read."""
        place = run if run is not None else index.model.folder
        if place is None:
            return Snapshot(index)
        try:
            recorded, threshold = find_run(Path(place)), index.threshold(run=run)
        except (ValueError, OSError, RuntimeError):
            recorded = threshold = None
        seen = None if recorded is None else frozenset(recorded.classes)
        return Snapshot(index, Path(place), seen, threshold)

    @property
    def generation(self) -> str:
        """Identifies this writing of the index; item numbers belong to it."""
        return self.index.generation

    @property
    def report(self) -> Path | None:
        path = None if self.folder is None else self.folder / REPORT
        # A link might lead anywhere.
        return path if path is not None and path.is_file() and not path.is_symlink() else None

    @cached_property
    def names(self) -> list[str]:
        return list(self.index.label_names)

    def was_seen(self, label: str | None) -> bool | None:
        """Whether the model was trained on the label; None if that is not known."""
        return None if self.seen is None or label is None else label in self.seen

    def item(self, number: int) -> dict[str, Any]:
        """An item for the API."""
        path, label = self.index.paths[number], self.index.labels[number]
        return {"id": number, "path": path, "label": label, "seen": self.was_seen(label)}

    @cached_property
    def labels(self) -> list[dict[str, Any]]:
        """Every label and the number of its items."""
        codes = self.index.labels.codes
        counts = np.bincount(codes[codes >= 0], minlength=len(self.names)).tolist()
        return [
            {"label": name, "count": count, "seen": self.was_seen(name)}
            for name, count in zip(self.names, counts, strict=False)
        ]

    def sample(self, label: str | None, most: int) -> Sequence[int]:
        """At most `most` items, evenly spaced, of one label or of all."""
        if label is None:
            return evenly(len(self.index), most).tolist()
        if label not in self.names:
            return []
        found = self.index.labels.items_of(label)
        return found[evenly(len(found), most)].tolist()

    def map(self, most: int) -> dict[str, Any]:
        """Positions of at most `most` items on the map, column by column."""
        chosen = evenly(len(self.index), most)
        x = np.nan_to_num(self.index.all_vectors[torch.from_numpy(chosen)].numpy())
        places = layout(x).round(4)
        codes = np.asarray(self.index.labels.codes)[chosen].tolist()
        seen = [self.was_seen(name) for name in self.names]
        return {
            "generation": self.generation,
            "items": len(self.index),
            "method": METHOD,
            "id": chosen.tolist(),
            "x": places[:, 0].tolist(),
            "y": places[:, 1].tolist(),
            "label": codes,
            "labels": self.names,
            "seen": [None if code < 0 else seen[code] for code in codes],
        }


class LiveIndex:
    """The index that is served now.

    `current` is replaced in a single step: a request that has taken it finishes with it. A file
    that is not an index leaves the old one in place.

    Attributes:
        loads: how often an index was loaded.
        reload: set to load the index and the facts of its run again, even if the file is the same.
    """

    def __init__(self, index: Index, run: str | os.PathLike[str] | None = None) -> None:
        self._run = run
        self.current = Snapshot.of(index, run)
        self._complaint = ""
        self.loads = 1
        self.reload = False

    def check(self) -> None:
        """Open the new index if the file has been replaced."""
        old, forced, self.reload = self.current.index, self.reload, False
        try:
            new = old.reload(forced)
            if new is old:
                self._complaint = ""
                return
            made = Snapshot.of(new, self._run)
        except (ValueError, OSError, IndexChanged) as error:
            if str(error) != self._complaint:  # once, not four times a second
                log.warning("the index that was loaded before is still served: %s", error)
                self._complaint = str(error)
            return
        self.current = made
        self.loads += 1
        log.warning("the index was loaded again: %s images now", f"{len(new):,}")

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await asyncio.to_thread(self.check)


@dataclass(frozen=True)
class Wanted:
    """The number of neighbors, their minimal similarity, and their label."""

    k: int = 24
    threshold: float | None = None
    label: str | None = None


@dataclass(frozen=True, eq=False)
class SearchQuery:
    """A search with a vector (d,) or, without one, with an item, which is not found itself.

    Args:
        generation: of the index to which the number belongs; None for the current one.
        model: that made the vector; None if the client did.
    """

    wanted: Wanted
    vector: NDArray[np.float32] | None = None
    item: int = -1
    generation: str | None = None
    model: ModelIdentity | None = None


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The neighbors, and the snapshot to which their numbers belong."""

    snapshot: Snapshot
    hits: list[Hit]


class OtherModel(Exception):
    """Between embedding and searching the index was replaced by one of another model."""


def search_all(
    snapshot: Snapshot, queries: Sequence[SearchQuery]
) -> list[SearchResult | Exception]:
    """Answers in order, by one product for each label that is asked for: usually one."""
    answers: dict[int, SearchResult | Exception] = {}
    groups: dict[str | None, list[tuple[int, Tensor]]] = {}
    for place, query in enumerate(queries):
        try:
            vector = _query_vector(snapshot, query)
            groups.setdefault(query.wanted.label, []).append((place, vector))
        except (Refused, OtherModel) as error:
            answers[place] = error
    for label, group in groups.items():
        asked = [queries[place] for place, _ in group]
        if label is not None and label not in snapshot.names:
            answers |= {place: SearchResult(snapshot, []) for place, _ in group}
            continue
        found = snapshot.index.search_vectors(
            torch.stack([vector for _, vector in group]),
            max(query.wanted.k for query in asked),
            label=label,
            exclude=[None if query.vector is not None else query.item for query in asked],
        )
        for (place, _), query, hits in zip(group, asked, found, strict=True):
            least = -2.0 if query.wanted.threshold is None else query.wanted.threshold
            kept = [hit for hit in hits[: query.wanted.k] if hit.similarity >= least]
            answers[place] = SearchResult(snapshot, kept)
    return [answers[place] for place in range(len(queries))]


def _query_vector(snapshot: Snapshot, query: SearchQuery) -> Tensor:
    index = snapshot.index
    if query.vector is None:
        check_item(snapshot, query.item, query.generation)
        return index.vectors(query.item, query.item + 1)[0]
    if query.model is not None and not query.model.same_as(index.model):
        raise OtherModel
    if query.vector.shape != (index.dim,):
        raise Refused(
            422,
            f"a vector must have the {index.dim} dimensions of the index, got "
            f"{len(query.vector)}: embed the image with its model",
        )
    if not np.isfinite(query.vector).all() or not query.vector.any():
        raise Refused(422, "a vector must be finite and not all zeros: it has no direction")
    return torch.from_numpy(query.vector)


def check_item(snapshot: Snapshot, number: int, generation: str | None) -> None:
    """An error unless the number is an item's, in the index that the client means."""
    if generation is not None and generation != snapshot.generation:
        raise Refused(409, "the index has been replaced: search again")
    if not 0 <= number < len(snapshot.index):
        raise Refused(
            404, f"the index has the items 0 to {len(snapshot.index) - 1}, there is no {number}"
        )


def embed_all(
    queries: Sequence[tuple[Snapshot, Picture]],
) -> list[NDArray[np.float32] | Exception]:
    """The embedding of each image by the model of its snapshot, images of one model together."""
    answers: list[NDArray[np.float32] | Exception] = []
    for snapshot, group in groupby(queries, key=lambda query: query[0]):
        images = [image for _, image in group]
        try:
            answers.extend(snapshot.index.embedder().embed(images, workers=1).numpy())
        except (ValueError, OSError, RuntimeError) as error:
            answers += [Refused(503, f"the images cannot be embedded: {error}")] * len(images)
    return answers


class Service:
    """The index and the threads that work for it.

    The index is read into memory, so that overwriting its file in place does no harm.
    """

    def __init__(
        self,
        index: Index,
        limits: Limits | None = None,
        run: str | os.PathLike[str] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.live = LiveIndex(index.in_memory(self.limits.memory_bytes), run)
        self._run = run
        self._loading = Lock()
        self.searcher: Batcher[SearchQuery, SearchResult] = Batcher(
            lambda queries: search_all(self.live.current, queries)
        )
        self.embedder: Batcher[tuple[Snapshot, Picture], NDArray[np.float32]] = Batcher(
            embed_all, most=16
        )
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        # By generation too: another index may have another file at the same path.
        self._thumbnail = lru_cache(THUMBNAILS)(
            lambda generation, root, path: encoded_image(root, path, THUMBNAIL, self.limits)
        )
        self._map: tuple[str, asyncio.Future[Any]] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the index and lay out its map meanwhile; end the threads afterwards."""
        tasks = [asyncio.create_task(self.map()), asyncio.create_task(self.live.watch())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.searcher.close()
            self.embedder.close()
            self._decoders.shutdown(wait=False, cancel_futures=True)

    async def by_image(self, file: BinaryIO, wanted: Wanted) -> SearchResult:
        for _ in range(REPLACED):
            now = self.live.current
            vector = await self.embed(now, file)
            with suppress(OtherModel):
                return await self.search(SearchQuery(wanted, vector, model=now.index.model))
        raise Refused(503, "the index is being replaced repeatedly: try again later")

    async def embed(self, now: Snapshot, file: BinaryIO) -> NDArray[np.float32]:
        """The embedding (d,) of an image by the model of a snapshot."""
        image = await self._decoding(lambda: decode_upload(file, self.limits, self._model(now)))
        try:
            return await self._in_time(self.embedder.ask((now, image)))
        finally:
            if isinstance(image, Image.Image):  # of full size, if the model takes files like that
                pixels = image.width * image.height
                asyncio.get_running_loop().call_later(0.5, release_memory, pixels)

    def _model(self, now: Snapshot) -> ImageEmbedder:
        with self._loading:  # by one thread, once
            try:
                return now.index.embedder(self._run)
            except (ValueError, OSError, RuntimeError) as error:
                log.warning("the model cannot be loaded: %s", error)
                sentence = "the model of this index cannot be loaded: see the log of the service"
                raise Refused(503, sentence) from error

    async def by_vector(self, numbers: Sequence[float], wanted: Wanted) -> SearchResult:
        vector = np.asarray(numbers, dtype=np.float64)
        # Only its direction matters; scaled to 1 it cannot overflow in float32.
        vector = vector / (np.abs(vector).max() or 1.0)
        return await self.search(SearchQuery(wanted, vector.astype(np.float32)))

    async def search(self, query: SearchQuery) -> SearchResult:
        found: SearchResult = await self._in_time(self.searcher.ask(query))
        return found

    def item(self, number: int, generation: str | None) -> tuple[Snapshot, str]:
        """The current snapshot and the path of one of its items."""
        now = self.live.current
        check_item(now, number, generation)
        return now, now.index.paths[number]

    async def thumbnail(self, number: int, generation: str | None) -> bytes:
        now, path = self.item(number, generation)
        return await self._decoding(lambda: self._thumbnail(now.generation, now.index.root, path))

    async def image(self, number: int, generation: str | None) -> bytes:
        now, path = self.item(number, generation)
        return await self._decoding(lambda: encoded_image(now.index.root, path, LARGE, self.limits))

    async def map(self) -> dict[str, Any]:
        """The map of the current snapshot, computed once."""
        now = self.live.current
        if self._map is None or self._map[0] != now.generation:
            made = asyncio.ensure_future(asyncio.to_thread(now.map, self.limits.map_points))
            self._map = (now.generation, made)
        # Shielded: a client that disconnects must not cancel it for the others.
        result: dict[str, Any] = await self._in_time(asyncio.shield(self._map[1]))
        return result

    async def _decoding(self, work: Callable[[], Result]) -> Result:
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._decoders, work))

    async def _in_time(self, work: Any) -> Any:
        try:
            return await asyncio.wait_for(work, self.limits.answer_seconds)
        except asyncio.TimeoutError as error:
            most = f"{self.limits.answer_seconds:g} seconds"
            raise Refused(503, f"no answer within {most}: try later") from error
        except IndexChanged as error:
            raise Refused(503, f"{error}: try again in a moment") from error
