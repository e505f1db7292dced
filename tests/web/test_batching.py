"""Questions asked together are answered together, each with its own answer."""

from __future__ import annotations

import asyncio
import threading

import pytest

from proxysynth.web.service import Batcher


def test_waiting_questions_share_calls() -> None:
    sizes = []

    def square(questions):
        sizes.append(len(questions))
        return [question**2 for question in questions]

    async def ask():
        batcher = Batcher(square, most=16)
        answers = await asyncio.gather(*(batcher.ask(i) for i in range(40)))
        batcher.close()
        return answers

    assert asyncio.run(ask()) == [i**2 for i in range(40)]
    assert sizes == [16, 16, 8]


def test_an_answer_may_be_an_error_of_its_own() -> None:
    async def ask():
        batcher = Batcher(lambda all_: [ValueError(q) if q % 2 else q for q in all_])
        return await asyncio.gather(*(batcher.ask(i) for i in range(4)), return_exceptions=True)

    answers = asyncio.run(ask())
    assert answers[::2] == [0, 2]
    assert [type(answer) for answer in answers[1::2]] == [ValueError, ValueError]


def test_a_call_that_fails_fails_its_questions_and_no_others() -> None:
    async def ask():
        def fail_on_first(questions):
            if questions == ["first"]:
                raise RuntimeError("broken")
            return questions

        batcher = Batcher(fail_on_first)
        with pytest.raises(RuntimeError, match="broken"):
            await batcher.ask("first")
        return await batcher.ask("second")

    assert asyncio.run(ask()) == "second"


def test_questions_gather_while_a_batch_is_computed_and_the_loop_stays_free() -> None:
    sizes, go_on = [], threading.Event()

    def slow(questions):
        sizes.append(len(questions))
        assert go_on.wait(10)
        return questions

    async def ask():
        batcher = Batcher(slow)
        first = asyncio.create_task(batcher.ask(0))
        while not sizes:
            await asyncio.sleep(0.001)  # the loop turns while the thread waits
        others = [asyncio.create_task(batcher.ask(i)) for i in range(1, 6)]
        await asyncio.sleep(0.01)
        go_on.set()
        return await asyncio.gather(first, *others)

    assert asyncio.run(ask()) == [0, 1, 2, 3, 4, 5]
    assert sizes == [1, 5]


def test_who_hangs_up_is_not_computed_for() -> None:
    seen = []

    async def ask():
        batcher = Batcher(lambda all_: seen.extend(all_) or list(all_), patience=0.05)
        gone = asyncio.create_task(batcher.ask("gone"))
        stays = asyncio.create_task(batcher.ask("stays"))
        await asyncio.sleep(0.001)
        gone.cancel()
        return await stays

    assert asyncio.run(ask()) == "stays"
    assert seen == ["stays"]
