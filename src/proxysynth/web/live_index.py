"""The index that is served now. When its file is replaced, the next question sees the new one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxysynth.search.index import Index

from .snapshot import Snapshot, snapshot

LOOK_EVERY = 0.25
"""Seconds between looks at the file."""

log = logging.getLogger("proxysynth.serve")


class LiveIndex:
    """Holds the current snapshot.

    `current` is one reference and changes in a single step: whoever has taken it goes on with what
    was open then, to the end. A file that is no index leaves the old one in place.
    """

    def __init__(self, index: Index, run: str | os.PathLike[str] | None = None) -> None:
        self._run = run
        self.current: Snapshot = snapshot(index, run)
        self._complaint = ""

    def look(self) -> None:
        """Take the new index if the file has been replaced."""
        old = self.current.index
        try:
            new = old.reload()
            if new is old:
                self._complaint = ""
                return
            made = snapshot(new, self._run)
        except (ValueError, OSError) as error:
            if str(error) != self._complaint:  # say it once, not four times a second
                log.warning("still serving the index as it was: %s", error)
                self._complaint = str(error)
            return
        self.current = made
        log.warning("the index was replaced: %s pictures now", f"{len(new):,}")

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Look at the file again and again meanwhile."""
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
            await asyncio.to_thread(self.look)
