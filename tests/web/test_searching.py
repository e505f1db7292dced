"""A batch of queries: each answered as if it were alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

pytest.importorskip("fastapi")

from proxysynth.search import Index
from proxysynth.search.index_file import UnknownLabel
from proxysynth.web.guard import Refused
from proxysynth.web.service import Service, as_query
from web.made_index import write_vectors


@pytest.fixture
def service(tmp_path):
    write_vectors(tmp_path / "an.index", np.random.default_rng(0).normal(size=(200, 8)))
    return Service(Index.open(tmp_path / "an.index"))


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=8).astype(np.float32)


def ask(service: Service, *queries):
    """The answers to queries (vector, settings) that are asked at the same moment."""

    async def together():
        now = service.current
        asked = [service.search(now, query, **wanted) for query, wanted in queries]
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(together())


def test_mixed_batch_matches_single_queries(service) -> None:
    queries = [
        (vector(1), {"k": 3}),
        (vector(2), {"k": 20, "label": "label2"}),
        (vector(5), {"k": 500, "exclude": 7}),
        (vector(3), {"k": 5, "threshold": 0.4}),
        (vector(6), {"k": 9, "label": "label2", "exclude": 2}),
    ]
    together = ask(service, *queries)
    for query, hits in zip(queries, together, strict=True):
        assert hits == ask(service, query)[0]
    assert [len(hits) for hits in together[:3]] == [3, 20, 199]
    assert all(hit.similarity >= 0.4 for hit in together[3])
    assert {hit.label for hit in together[1]} == {"label2"}
    assert 2 not in [hit.number for hit in together[4]]


def test_invalid_query_does_not_affect_others(service) -> None:
    bad = (np.full(8, np.nan, np.float32), {})
    zero = (np.zeros(8, np.float32), {})
    other = (vector(4), {"label": "unknown"})
    good = (vector(1), {"k": 4})
    answers = ask(service, bad, good, zero, good, other)
    assert [type(answer) for answer in answers] == [Refused, list, Refused, list, UnknownLabel]
    assert answers[1] == answers[3] == ask(service, good)[0]


def test_unknown_numbers_and_generations_are_rejected(service) -> None:
    now = service.current
    assert service.snapshot(199, now.index.generation) is now
    for number, generation, status in ((200, None, 404), (0, "old", 409)):
        with pytest.raises(Refused) as refused:
            service.snapshot(number, generation)
        assert refused.value.status_code == status
    with pytest.raises(Refused, match="8 dimensions"):
        as_query(now, [1.0] * 3)


def test_search_uses_the_snapshot_it_started_with(service, tmp_path) -> None:
    before = ask(service, (vector(1), {}))[0]
    now = service.current
    write_vectors(tmp_path / "an.index", np.random.default_rng(1).normal(size=(30, 12)), "new")
    service.check()

    async def both():
        new = np.ones(12, np.float32)
        asked = service.search(now, vector(1)), service.search(service.current, new)
        return await asyncio.gather(*asked)

    old, new = asyncio.run(both())
    assert old == before
    assert all(hit.path.startswith("new") for hit in new)
