"""Questions that wait at the same moment are answered together, by one call in one thread.

A product of one vector with the whole gallery reads the whole gallery; a product of eight reads it
once, too. While a batch is computed the next one gathers by itself; only a question that finds
nobody at work waits a moment for company.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batcher(Generic[Question, Answer]):
    """Gathers questions and asks `answer_all` for many at once.

    Args:
        answer_all: gives one answer, or one exception, for each question; runs in a thread.
        most: questions of one call.
        patience: seconds that a first question waits for others.

    Attributes:
        calls: how often `answer_all` was asked.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Question]], Sequence[Answer | Exception]],
        most: int = 64,
        patience: float = 0.001,
    ) -> None:
        self._answer_all = answer_all
        self._most = most
        self._patience = patience
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._work: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")
        self.calls = 0

    async def ask(self, question: Question) -> Answer:
        """The answer to one question."""
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((question, future))
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._go_on())
        return await future

    def close(self) -> None:
        """Let the thread end once it is done."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _go_on(self) -> None:
        """Batch after batch until nobody waits."""
        await asyncio.sleep(self._patience)
        while self._waiting:
            batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
            # Whoever has hung up meanwhile is not computed for.
            batch = [(question, future) for question, future in batch if not future.done()]
            if batch:
                await self._answer(batch)

    async def _answer(self, batch: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        self.calls += 1
        loop = asyncio.get_running_loop()
        answers: Sequence[Answer | Exception]
        try:
            questions = [question for question, _ in batch]
            answers = await loop.run_in_executor(self._thread, self._answer_all, questions)
        except Exception as error:
            answers = [error] * len(batch)
        for (_, future), answer in zip(batch, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
