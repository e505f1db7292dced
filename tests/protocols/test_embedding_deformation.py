"""Mixed embeddings that look for each other: by loops, by the other half of retrieval, and the peak
at one half."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
import torch

from proxysynth.protocols import EmbeddingDeformation
from proxysynth.protocols.embedding_deformation import LAMS
from proxysynth.retrieval.knn import nearest
from proxysynth.retrieval.metrics import rank


def clusters(classes=20, each=16, d=12, spread=0.35, seed=0):
    """Embeddings as training leaves them: each class a cloud around its direction."""
    draw = np.random.default_rng(seed)
    centres = draw.normal(size=(classes, d))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    x = np.repeat(centres, each, axis=0) + spread * draw.normal(size=(classes * each, d)) / d**0.5
    return torch.from_numpy(x), torch.arange(classes).repeat_interleave(each)


def by_loops(x, parents, lam):
    """Recall@1 from the definition: one query, one cosine at a time."""
    x = [v / np.linalg.norm(v) for v in x.numpy()]
    made, pairs = [], parents.pair.tolist()
    for a, b in zip(parents.first.tolist(), parents.second.tolist(), strict=True):
        mixed = lam * x[a] + (1 - lam) * x[b]
        made.append(mixed / np.linalg.norm(mixed))
    right = 0
    for i, query in enumerate(made):
        best, answer = -2.0, None
        for j, other in enumerate(made):
            if j != i and query @ other > best:
                best, answer = query @ other, pairs[j]
        for other in x:
            if query @ other > best:
                best, answer = query @ other, None
        right += answer == pairs[i]
    return right / len(made)


def test_default_lams_match_the_table() -> None:
    assert len(LAMS) == 18
    assert LAMS[0] == 0.10
    assert LAMS[8] == 0.50
    assert LAMS[-1] == 0.95


@pytest.mark.parametrize("seed", range(2))
def test_metric_matches_a_loop_of_its_definition(seed) -> None:
    x, y = clusters(classes=6, each=5, seed=seed)
    protocol = EmbeddingDeformation(pairs=5, per_order=4, lams=(0.1, 0.35, 0.5, 0.8), seed=seed)
    made = protocol(7 * x, y)  # lengths do not matter
    assert made == {lam: by_loops(x, protocol.draw(y), lam) for lam in protocol.lams}
    assert len(set(made.values())) > 1


@pytest.mark.parametrize("lam", [0.2, 0.5])
def test_metric_matches_recall_at_1_of_rank(lam) -> None:
    """All of them as queries, each original with a label that no other has."""
    x, y = clusters()
    protocol = EmbeddingDeformation(lams=(lam,))
    parents = protocol.draw(y)
    unit = x / x.norm(dim=1, keepdim=True)
    mixed = lam * unit[parents.first] + (1 - lam) * unit[parents.second]
    labels = torch.cat((parents.pair, 1_000_000 + torch.arange(len(x))))
    found = rank(torch.cat((mixed, unit)), labels).found(1)[: len(mixed)]
    assert protocol(x, y)[lam] == found.double().mean().item()


def test_drawn_class_pairs_orders_and_parents() -> None:
    _, y = clusters(classes=9, each=7)
    protocol = EmbeddingDeformation(pairs=20)
    parents = protocol.draw(y)
    seen = defaultdict(list)
    for a, b, pair in zip(*(t.tolist() for t in (parents.first, parents.second, parents.pair)),
                          strict=True):  # fmt: skip
        seen[pair].append((a, b))
    assert len(seen) == 20
    unordered = set()
    for couples in seen.values():
        orders = Counter((int(y[a]), int(y[b])) for a, b in couples)
        (one, other), counts = zip(*orders.items(), strict=True)
        assert one == other[::-1]
        assert one[0] != one[1]
        assert counts == (8, 8)
        unordered.add(frozenset(one))
        assert len({frozenset(couple) for couple in couples}) == 16, "no two are copies at 0.5"
    assert len(unordered) == 20


def test_all_class_pairs_are_used_if_there_are_few() -> None:
    _, y = clusters(classes=5)
    assert len(EmbeddingDeformation().draw(y).pair.unique()) == 10


def test_results_depend_on_the_seed() -> None:
    x, y = clusters(classes=8)
    assert EmbeddingDeformation()(x, y) == EmbeddingDeformation()(x, y)
    assert EmbeddingDeformation(seed=1)(x, y) != EmbeddingDeformation()(x, y)


@pytest.mark.parametrize(("spread", "each"), [(0.6, 8), (0.9, 30), (1.3, 8)])
def test_recall_peaks_at_one_half(spread, each) -> None:
    """There both orders fall together: twice as many companions in the same place."""
    x, y = clusters(classes=30, each=each, d=32, spread=spread)
    made = EmbeddingDeformation()(x, y)
    assert max(made, key=made.get) == 0.5
    assert made[0.5] > max(made[0.45], made[0.55])
    assert made[0.5] > 1.5 * max(made[0.1], made[0.95])


def test_both_orders_coincide_at_one_half() -> None:
    """Of the 15 companions there, 8 are of the other order; they are found as often as the others,
    and away from one half hardly ever."""
    x, y = clusters(classes=30, d=32, spread=0.6)
    parents = EmbeddingDeformation().draw(y)
    order = y[parents.first] > y[parents.second]
    unit = x / x.norm(dim=1, keepdim=True)
    others = {}
    for lam in (0.3, 0.5):
        made = lam * unit[parents.first] + (1 - lam) * unit[parents.second]
        found = nearest(made, made, 1, exclude=torch.arange(len(made))).indices[:, 0]
        right = parents.pair[found] == parents.pair
        others[lam] = (order[found] != order)[right].double().mean().item()
    assert others[0.5] == pytest.approx(8 / 15, abs=0.05)
    assert others[0.3] < 0.01


def test_classes_with_few_images_are_skipped() -> None:
    x, y = clusters(classes=6, each=4)
    small = torch.cat((y, torch.tensor([6, 6, 6])))
    parents = EmbeddingDeformation().draw(small)
    assert int(parents.first.max()) < len(y)
    with pytest.raises(ValueError, match="4 images or more, got 1"):
        EmbeddingDeformation()(x[:7], y[:7])


@pytest.mark.parametrize(
    "fields", [{"pairs": 0}, {"per_order": 1}, {"seed": -1}, {"lams": ()}, {"lams": (1.2,)}]
)
def test_settings_out_of_range_are_rejected(fields) -> None:
    with pytest.raises(ValueError, match="EmbeddingDeformation"):
        EmbeddingDeformation(**fields)


def test_progress_is_reported() -> None:
    x, y = clusters(classes=4)
    told = []
    EmbeddingDeformation()(x, y, tick=lambda count, note: told.append((count, note)))
    assert told[0] == (1, "lam 0.10")
    assert len(told) == 18
