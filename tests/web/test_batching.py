"""Questions asked together are answered together, each with its own answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proxysynth.web.service import Batcher


def test_waiting_queries_share_batches() -> None:
    sizes = []

    def square(_, questions):
        sizes.append(len(questions))
        return [question**2 for question in questions]

    async def ask():
        batcher = Batcher(square, most=16)
        answers = await asyncio.gather(*(batcher.ask(None, i) for i in range(40)))
        batcher.close()
        return answers

    assert asyncio.run(ask()) == [i**2 for i in range(40)]
    assert sizes == [16, 16, 8]


def test_batches_have_one_key_and_keys_take_turns() -> None:
    calls = []

    async def ask():
        batcher = Batcher(lambda key, all_: calls.append((key, len(all_))) or list(all_), most=2)
        return await asyncio.gather(*(batcher.ask("ab"[i == 2], i) for i in range(5)))

    assert asyncio.run(ask()) == [0, 1, 2, 3, 4]
    assert calls == [("a", 2), ("b", 1), ("a", 2)]


def test_failed_batch_fails_only_its_queries() -> None:
    async def ask():
        def fail_on_first(_, questions):
            if questions == ["first"]:
                raise RuntimeError("broken")
            return questions

        batcher = Batcher(fail_on_first)
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.ask(None, "first")
        return await batcher.ask(None, "second")

    assert asyncio.run(ask()) == "second"


def test_queries_queue_during_a_batch_without_blocking_the_loop() -> None:
    sizes, go_on = [], threading.Event()

    def slow(_, questions):
        sizes.append(len(questions))
        assert go_on.wait(10)
        return questions

    async def ask():
        batcher = Batcher(slow)
        first = asyncio.create_task(batcher.ask(None, 0))
        while not sizes:
            await asyncio.sleep(0.001)  # the loop turns while the thread waits
        others = [asyncio.create_task(batcher.ask(None, i)) for i in range(1, 6)]
        await asyncio.sleep(0.01)
        go_on.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [0, 1, 2, 3, 4, 5]
    assert sizes == [1, 5]


def test_canceled_query_is_not_computed() -> None:
    seen = []

    async def ask():
        batcher = Batcher(lambda _, all_: seen.extend(all_) or list(all_), patience=0.05)
        gone = asyncio.create_task(batcher.ask(None, "gone"))
        stays = asyncio.create_task(batcher.ask(None, "stays"))
        await asyncio.sleep(0.001)
        gone.cancel()
        return await stays

    assert asyncio.run(ask()) == "stays"
    assert seen == ["stays"]
