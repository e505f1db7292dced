"""A batch of questions: each answered as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("fastapi")

from proxysynth.search import Index
from proxysynth.web.guard import Refused
from proxysynth.web.service import (
    OtherModel,
    SearchQuery,
    SearchResult,
    Snapshot,
    Wanted,
    search_all,
)
from web.made_index import identity, write_vectors


@pytest.fixture
def now(tmp_path):
    write_vectors(tmp_path / "an.index", np.random.default_rng(0).normal(size=(200, 8)))
    return Snapshot.of(Index.open(tmp_path / "an.index"))


def vector(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=8).astype(np.float32)


def test_a_mixed_batch_gives_what_each_gives_alone(now) -> None:
    questions = [
        SearchQuery(Wanted(3), vector(1)),
        SearchQuery(Wanted(20, label="label2"), vector(2)),
        SearchQuery(Wanted(500), item=7),
        SearchQuery(Wanted(5, threshold=0.4), vector(3)),
        SearchQuery(Wanted(5, label="unknown"), vector(4)),
        SearchQuery(Wanted(9, label="label2"), item=2, generation=now.generation),
    ]
    together = search_all(now, questions)
    for question, found in zip(questions, together, strict=True):
        alone = search_all(now, [question])[0]
        assert isinstance(found, SearchResult)
        assert found.hits == alone.hits
    counts = [len(found.hits) for found in together]
    assert counts[:3] == [3, 20, 199]
    assert counts[4] == 0
    assert all(hit.similarity >= 0.4 for hit in together[3].hits)
    assert {hit.label for hit in together[1].hits} == {"label2"}
    assert 2 not in [hit.number for hit in together[5].hits]


def test_a_bad_question_spoils_no_other(now) -> None:
    good = SearchQuery(Wanted(4), vector(1))
    short = SearchQuery(Wanted(4), np.ones(3, np.float32))
    nowhere = SearchQuery(Wanted(4), item=200)
    old = SearchQuery(Wanted(4), item=0, generation="old")
    other = SearchQuery(Wanted(4), vector(1), model=identity(8, weights="another"))
    same = SearchQuery(Wanted(4), vector(1), model=identity(8))
    answers = search_all(now, [short, good, nowhere, old, other, same])
    kinds = [type(answer) for answer in answers]
    assert kinds == [Refused, SearchResult, Refused, Refused, OtherModel, SearchResult]
    refused = [answer.status_code for answer in answers if isinstance(answer, Refused)]
    assert refused == [422, 404, 409]
    assert answers[1].hits == answers[5].hits
