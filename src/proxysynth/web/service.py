"""What the routes ask for: decoding, embedding and searching, each off the event loop."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from proxysynth.search.describe_model import PictureEmbedder
from proxysynth.search.index import Index
from proxysynth.training.load import Picture

from .batching import Batcher
from .files import PICTURE, Thumbnails, encoded
from .limits import Limits
from .live_index import LiveIndex
from .refusal import Refused
from .searching import (
    Found,
    OtherModel,
    Question,
    Wanted,
    check_item,
    embed_all,
    search_all,
)
from .snapshot import Snapshot
from .uploads import decode

log = logging.getLogger("proxysynth.serve")

Made = TypeVar("Made")

DECODERS = 2
"""Threads that decode pictures. Few: each may hold a whole picture of the largest size."""

REPLACED = 3
"""How often a search may begin again because the model was replaced under it."""


class Service:
    """The index and the threads that work for it.

    Args:
        run: where the run that made the index is now, if its folder was moved.
    """

    def __init__(
        self,
        index: Index,
        limits: Limits | None = None,
        run: str | os.PathLike[str] | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.live = LiveIndex(index, run)
        self._run = run
        self._loading = Lock()
        self.searcher: Batcher[Question, Found] = Batcher(
            lambda questions: search_all(self.live.current, questions)
        )
        self.embedder: Batcher[tuple[Snapshot, Picture], NDArray[np.float32]] = Batcher(
            embed_all, most=16
        )
        self._decoders = ThreadPoolExecutor(DECODERS, thread_name_prefix="decode")
        self._thumbnails = Thumbnails(self.limits)
        self._map: tuple[str, asyncio.Future[Any]] | None = None

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the index meanwhile and lay out its map; end the threads afterwards."""
        layout = asyncio.create_task(self.map())
        try:
            async with self.live.watched():
                yield
        finally:
            layout.cancel()
            await asyncio.gather(layout, return_exceptions=True)
            self.searcher.close()
            self.embedder.close()
            self._decoders.shutdown(wait=False, cancel_futures=True)

    async def by_picture(self, file: BinaryIO, wanted: Wanted) -> Found:
        """The neighbours of an uploaded picture."""
        for _ in range(REPLACED):
            now = self.live.current
            vector = await self.embed(now, file)
            question = Question(wanted, vector, model=now.index.model)
            try:
                return await self._in_time(self.searcher.ask(question))
            except OtherModel:
                continue
        raise Refused(503, "the index is being replaced again and again: try later")

    async def embed(self, now: Snapshot, file: BinaryIO) -> NDArray[np.float32]:
        """The embedding (d,) of a picture by the model of a snapshot."""
        image = await self._decoding(lambda: decode(file, self.limits, self._model(now)))
        return await self._in_time(self.embedder.ask((now, image)))

    def _model(self, now: Snapshot) -> PictureEmbedder:
        with self._loading:  # by one thread, once
            try:
                return now.index.embedder(self._run)
            except (ValueError, OSError, RuntimeError) as error:
                log.warning("the model cannot be loaded: %s", error)
                raise Refused(
                    503, "the model of this index cannot be loaded: the service's log says why"
                ) from error

    async def by_vector(self, numbers: Sequence[float], wanted: Wanted) -> Found:
        """The neighbours of an embedding."""
        vector = np.asarray(numbers, dtype=np.float64)
        # Only its direction counts; brought near 1 it cannot overflow in float32.
        vector = vector / (np.abs(vector).max() or 1.0)
        question = Question(wanted, vector.astype(np.float32))
        return await self._in_time(self.searcher.ask(question))

    async def by_item(self, number: int, generation: str | None, wanted: Wanted) -> Found:
        """The neighbours of a picture of the index, itself left out."""
        question = Question(wanted, item=number, generation=generation)
        return await self._in_time(self.searcher.ask(question))

    def item(self, number: int, generation: str | None) -> tuple[Snapshot, str]:
        """The current snapshot and the path of one of its items."""
        now = self.live.current
        check_item(now, number, generation)
        return now, now.index.paths[number]

    async def thumbnail(self, number: int, generation: str | None) -> bytes:
        now, path = self.item(number, generation)
        held = self._thumbnails
        return await self._decoding(lambda: held.get(now.generation, number, now.index.root, path))

    async def picture(self, number: int, generation: str | None) -> bytes:
        now, path = self.item(number, generation)
        return await self._decoding(lambda: encoded(now.index.root, path, PICTURE, self.limits))

    async def map(self) -> dict[str, Any]:
        """The map of the current snapshot, computed once."""
        now = self.live.current
        if self._map is None or self._map[0] != now.generation:
            made = asyncio.ensure_future(asyncio.to_thread(now.map, self.limits.map_points))
            self._map = (now.generation, made)
        # Shielded: one client that hangs up must not end it for the others.
        told: dict[str, Any] = await self._in_time(asyncio.shield(self._map[1]))
        return told

    async def _decoding(self, work: Callable[[], Made]) -> Made:
        loop = asyncio.get_running_loop()
        return await self._in_time(loop.run_in_executor(self._decoders, work))

    async def _in_time(self, work: Any) -> Any:
        try:
            return await asyncio.wait_for(work, self.limits.answer_seconds)
        except asyncio.TimeoutError as error:
            seconds = self.limits.answer_seconds
            raise Refused(503, f"no answer within {seconds:g} seconds: try later") from error
