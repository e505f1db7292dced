"""The queries that are shown, against neighbours found by sorting."""

import numpy as np
import pytest
import torch

from proxysynth.report.examples import choose, disagreement, look_up
from proxysynth.retrieval.knn import as_sets


def by_sorting(data, query, k):
    """Cosines in float64, sorted; the query itself left out by its index."""
    y, labels = data.y.numpy(), data.gallery_y.numpy()
    x, g = data.x[query].double().numpy(), data.gallery.double().numpy()
    cosine = g @ x / np.linalg.norm(g, axis=1) / np.linalg.norm(x)
    order = [i for i in np.argsort(-cosine, kind="stable") if not data.own or i != query]
    return [(i, labels[i] == y[query], cosine[i]) for i in order[:k]]


def own(x, labels):
    """Queries that are their own gallery."""
    return as_sets(x, labels, None, None)


@pytest.fixture(params=["own", "apart"])
def data(request):
    draw = np.random.default_rng(3)
    labels = np.repeat(np.arange(6), 5)
    centre = draw.normal(size=(6, 8))
    x = (centre[labels] + draw.normal(size=(30, 8))).astype(np.float32)
    if request.param == "own":
        return own(x, labels)
    g = (centre[labels] + draw.normal(size=(30, 8))).astype(np.float32)
    return as_sets(x, labels, g[:25], labels[:25])


def test_neighbors_are_nearest_and_marked(data):
    examples = look_up(data, list(range(30)), k=4)
    assert len(examples) == 30
    for example in examples:
        want = by_sorting(data, example.query, 4)
        assert [n.index for n in example.neighbors] == [i for i, _, _ in want]
        right = [n.label == example.label for n in example.neighbors]
        assert right == [bool(r) for _, r, _ in want]
        assert example.right == right[0]
        assert [n.similarity for n in example.neighbors] == pytest.approx(
            [s for _, _, s in want], abs=1e-5
        )
        assert example.label == data.y[example.query]


def test_query_is_not_its_own_neighbor():
    x = np.ones((4, 2), np.float32)
    data = own(x, np.array([0, 0, 1, 1]))
    examples = look_up(data, list(range(4)), k=3)
    assert len(examples) == 4
    for example in examples:
        assert example.query not in [n.index for n in example.neighbors]
        assert len(example.neighbors) == 3


def test_choose_returns_right_and_wrong_examples(data):
    right, wrong = choose(data, each=3)
    assert len(right) == len(wrong) == 3
    assert all(example.neighbors[0].label == example.label for example in right)
    assert all(example.neighbors[0].label != example.label for example in wrong)
    assert choose(data, each=3) == (right, wrong)
    assert choose(data, each=3, seed=1) != (right, wrong)


def test_choose_returns_no_wrong_example_if_all_are_right():
    x = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    right, wrong = choose(own(x, np.repeat(np.arange(3), 4)), each=5)
    assert len(right) == 5
    assert wrong == []


def test_query_without_positives_is_not_shown():
    x = np.eye(5, dtype=np.float32)
    right, wrong = choose(own(x, np.array([0, 0, 0, 1, 2])), each=5)
    assert {example.query for example in right + wrong} == {0, 1, 2}


def test_disagreement_counts_each_query_once(data):
    draw = np.random.default_rng(9)
    moved = data.x.numpy() + draw.normal(size=data.x.shape).astype(np.float32)
    other = own(moved, data.y) if data.own else data._replace(x=torch.from_numpy(moved))
    found = disagreement("a", data, "b", other, shown=2)
    there = set(data.gallery_y.tolist())
    queries = [query for query, label in enumerate(data.y.tolist()) if label in there]
    pairs = [
        tuple(bool(by_sorting(which, query, 1)[0][1]) for which in (data, other))
        for query in queries
    ]
    assert found.both == pairs.count((True, True))
    assert found.neither == pairs.count((False, False))
    assert found.only_first == pairs.count((True, False))
    assert found.only_second == pairs.count((False, True))
    assert found.queries == len(queries)
    assert found.only_first + found.only_second > 0
    for shown, winner in ((found.first_right, 0), (found.second_right, 1)):
        assert len(shown) <= 2
        for pair in shown:
            assert pair[winner].right
            assert not pair[1 - winner].right
            assert pair[0].query == pair[1].query


def test_disagreement_on_different_images_is_rejected(data):
    other = own(data.x, data.y.flip(0))
    with pytest.raises(ValueError, match="different images"):
        disagreement("a", data, "b", other)
