"""Exact ranks: both algorithms against loops that sort, and against each other."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from proxysynth.retrieval import Ranking, rank, ranking as ranking_module
from proxysynth.retrieval.ranking import ranges
from retrieval.oracle import ranked, similarities


def table(ranking: Ranking) -> np.ndarray:
    columns = (
        ranking.positives,
        ranking.first,
        ranking.r_precision,
        ranking.average_precision,
    )
    return torch.stack([column.double() for column in columns], 1).numpy()


def assert_equal(ranking: Ranking, expected: np.ndarray) -> None:
    got = table(ranking)
    np.testing.assert_array_equal(got[:, :2], expected[:, :2])
    np.testing.assert_allclose(got[:, 2:], expected[:, 2:], rtol=0, atol=1e-12)


def random_points(r: np.random.Generator, n: int, d: int) -> np.ndarray:
    return r.normal(size=(n, d))


def duplicates(r: np.random.Generator, n: int, d: int) -> np.ndarray:
    few = max(1, n // 3)
    return r.normal(size=(few, d))[r.integers(0, few, n)]


def signs(r: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Length 4 exactly, so that the many ties of their products are ties in any arithmetic."""
    return r.choice([-1.0, 1.0], size=(n, 16))


def collapsed(r: np.random.Generator, n: int, d: int) -> np.ndarray:
    return np.tile(r.normal(size=d), (n, 1)) * 2.0 ** r.integers(-3, 4, size=(n, 1))


KINDS = [random_points, duplicates, signs, collapsed]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_float64_is_exact(kind, seed: int) -> None:
    r = np.random.default_rng(seed)
    n, d = int(r.integers(2, 220)), int(r.choice([1, 2, 5, 33]))
    x, y = kind(r, n, d), r.integers(0, r.integers(1, n + 1), n) * 7 - 50
    assert_equal(rank(x, y, block=48), ranked(x, y))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_separate_query_and_gallery(kind, seed: int) -> None:
    r = np.random.default_rng(100 + seed)
    n, d = int(r.integers(2, 260)), int(r.choice([1, 2, 5, 33]))
    x, y = kind(r, n, d), r.integers(0, r.integers(1, n + 1), n)
    q = int(r.integers(1, n))
    got = rank(x[:q], y[:q], gallery=x[q:], gallery_labels=y[q:], block=96)
    assert_equal(got, ranked(x[:q], y[:q], x[q:], y[q:]))


@pytest.mark.parametrize("own", [True, False])
def test_float32_is_exact_for_separated_neighbors(own: bool) -> None:
    r = np.random.default_rng(3)
    y = r.integers(0, 30, 400)
    x = (r.normal(size=(30, 24))[y] + r.normal(size=(400, 24))).astype(np.float32)
    if own:
        got, expected, S = rank(x, y), ranked(x, y), similarities(x, x)
    else:
        got = rank(x[:150], y[:150], gallery=x[150:], gallery_labels=y[150:])
        expected = ranked(x[:150], y[:150], x[150:], y[150:])
        S = similarities(x[:150], x[150:])
    clear = (np.diff(np.sort(S, axis=1), axis=1) > 1e-6).all(1)
    assert clear.mean() > 0.5
    np.testing.assert_allclose(table(got)[clear], expected[clear], rtol=0, atol=1e-12)


def test_imbalanced_classes() -> None:
    r = np.random.default_rng(5)
    y = np.concatenate([np.zeros(300, int), np.arange(1, 40), np.repeat(np.arange(50, 70), 3)])
    y = r.permutation(y)
    x = r.normal(size=(70, 8))[y] + r.normal(size=(len(y), 8))
    assert_equal(rank(x, y), ranked(x, y))
    assert_equal(rank(x, y, block=48), ranked(x, y))


def test_too_many_positives_for_memory_go_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    r = np.random.default_rng(6)
    y = r.integers(0, 3, 250)
    x = r.normal(size=(3, 6))[y] + 2 * r.normal(size=(250, 6))
    monkeypatch.setattr(ranking_module, "POSITIVES", 1000)
    assert_equal(rank(x, y, block=96), ranked(x, y))


def test_a_duplicate_of_the_query_is_a_neighbor_and_the_query_is_not() -> None:
    x = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.9, 0.1]])
    ranking = rank(x, np.array([0, 1, 1, 0]))
    # Query 0 meets its copy 1 first, then 3; for query 3 the copies tie and the lower is right.
    assert ranking.first.tolist() == [1, 2, 2, 0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [3, 16, 64, 100, 512])
def test_ties_do_not_depend_on_position(dtype, d: int) -> None:
    r = np.random.default_rng(d)
    n = 331
    x = r.normal(size=(20, d)).astype(dtype)[r.integers(0, 20, n)]
    y = r.integers(0, 40, n)
    # All copies of a vector get one value.
    unique, copy = np.unique(x, axis=0, return_inverse=True)
    S = similarities(unique, unique)[copy.reshape(-1)][:, copy.reshape(-1)]
    right = y[:, None] == y
    first = np.full(n, -1)
    for i in range(n):
        order = sorted((j for j in range(n) if j != i), key=lambda j: (-S[i, j], j))
        hits = right[i, order].nonzero()[0]
        first[i] = hits[0] if len(hits) else -1
    for block in (48, 240, None):
        np.testing.assert_array_equal(rank(x, y, block=block).first.numpy(), first)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 150),
    block=st.integers(1, 400),
    kind=st.sampled_from(KINDS),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_block_size_does_not_change_results(seed: int, n: int, block: int, kind, dtype) -> None:
    r = np.random.default_rng(seed)
    x, y = kind(r, n, 7).astype(dtype), r.integers(0, 1 + n // 4, n)
    np.testing.assert_array_equal(table(rank(x, y, block=block)), table(rank(x, y)))


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), n=st.integers(2, 120))
def test_invariant_to_order_labels_and_scale(seed: int, n: int) -> None:
    r = np.random.default_rng(seed)
    x, y = r.normal(size=(n, 6)), r.integers(0, 1 + n // 3, n)
    expected = table(rank(x, y))
    shuffled = r.permutation(n)
    np.testing.assert_allclose(table(rank(x[shuffled], y[shuffled])), expected[shuffled])
    names = r.permutation(10**6)[: n + 1] - 5 * 10**5
    np.testing.assert_allclose(table(rank(x, names[y])), expected)
    lengths = 10.0 ** r.uniform(-3, 3, size=(n, 1))
    np.testing.assert_allclose(table(rank(x * lengths, y)), expected)


def threads_of_torch() -> int:
    """As a thread sees it that starts now: the one that set the number always sees its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(torch.get_num_threads).result()


@pytest.mark.parametrize("own", [True, False])
def test_threads_do_not_change_results_and_are_restored(own: bool) -> None:
    r = np.random.default_rng(8)
    y = r.integers(0, 40, 500)
    x = r.normal(size=(40, 9))[y] + r.normal(size=(500, 9))
    apart = {} if own else {"gallery": x[:300], "gallery_labels": y[:300]}
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = table(rank(x, y, block=48, **apart))
        torch.set_num_threads(3)
        three = table(rank(x, y, block=48, **apart))
        assert threads_of_torch() == 3
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(one, three)


def test_threads_are_restored_after_a_failure(monkeypatch) -> None:
    class Stop(Exception):
        pass

    def stop(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if threading.current_thread() is threading.main_thread():
            return ranges(*given)
        raise Stop

    monkeypatch.setattr(ranking_module, "ranges", stop)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        with pytest.raises(Stop):
            rank(torch.randn(300, 4), torch.arange(300) % 100, block=48)
        assert threads_of_torch() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("own", [True, False])
def test_inference_mode_and_gradients_change_nothing(threads: int, own: bool) -> None:
    x, y = torch.randn(200, 5), torch.arange(200) % 9
    g, gy = torch.randn(300, 5), torch.arange(300) % 9
    apart = {} if own else {"gallery": g, "gallery_labels": gy}
    expected = table(rank(x, y, **apart))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        with_gradient = rank(x.clone().requires_grad_(), y, **apart)
        with torch.inference_mode():
            apart = {key: value * 1 for key, value in apart.items()}
            inferred = rank(x * 1, y * 1, block=48, **apart)
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(table(with_gradient), expected)
    np.testing.assert_array_equal(table(inferred), expected)


def test_invalid_block_is_rejected() -> None:
    with pytest.raises(ValueError, match="block .*got 0"):
        rank(torch.randn(4, 2), torch.arange(4) % 2, block=0)


def test_the_input_is_not_modified() -> None:
    x = torch.randn(50, 4)
    kept = x.clone()
    rank(x, torch.arange(50) % 5)
    assert torch.equal(x, kept)


def test_found_marks_correct_queries() -> None:
    angle = np.deg2rad([0, 1, 40, 41, 90])
    ranking = rank(np.stack([np.cos(angle), np.sin(angle)], 1), np.array([0, 0, 1, 2, 1]))
    assert ranking.found(1).tolist() == [True, True, False, False, False]
    assert ranking.found(2).tolist() == [True, True, False, False, True]
    assert ranking.answerable.tolist() == [True, True, True, False, True]


# ---- Selecting and counting give the same ranks


def both(monkeypatch: pytest.MonkeyPatch, *args, **kwargs) -> tuple[np.ndarray, np.ndarray]:
    """The same ranking by counting and by selection."""
    monkeypatch.setattr(ranking_module, "MANY", float("inf"))
    counted = table(rank(*args, **kwargs))
    monkeypatch.setattr(ranking_module, "MANY", 0)
    return counted, table(rank(*args, **kwargs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_selection_equals_counting(monkeypatch, seed: int, kind) -> None:
    own = seed // 2 % 2 == KINDS.index(kind) % 2  # with blocks and without, of each kind
    r = np.random.default_rng(seed)
    n, d = int(r.integers(20, 600)), int(r.choice([1, 5, 33, 64]))
    y = r.integers(0, r.integers(1, n // 4), n)
    x = kind(r, n, d).astype(np.float32)
    if seed % 2 and kind is random_points:
        x += 2 * r.normal(size=(n, d)).astype(np.float32)[y]
    more = {} if own else {"gallery": x[n // 3 :], "gallery_labels": y[n // 3 :]}
    q = n if own else n // 2
    counted, selected = both(monkeypatch, x[:q], y[:q], block=(None, 48)[seed % 2], **more)
    np.testing.assert_array_equal(selected, counted)


@pytest.mark.parametrize("spread", [0.05, 0.5, 5.0])
def test_selection_equals_counting_of_classes_of_any_size(monkeypatch, spread: float) -> None:
    r = np.random.default_rng(0)
    y = r.permutation(np.repeat(np.arange(40), np.arange(40) * 3))
    x = (r.normal(size=(40, 48))[y] + spread * r.normal(size=(len(y), 48))).astype(np.float32)
    counted, selected = both(monkeypatch, x, y)
    np.testing.assert_array_equal(selected, counted)


def test_missed_candidates_are_found_in_a_second_pass(monkeypatch) -> None:
    monkeypatch.setattr(ranking_module, "MARGIN", -3.0)
    r = np.random.default_rng(0)
    y = r.integers(0, 9, 900)
    x = (r.normal(size=(9, 40))[y] + 2 * r.normal(size=(900, 40))).astype(np.float32)
    counted, selected = both(monkeypatch, x, y)
    np.testing.assert_array_equal(selected, counted)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 6)), max_size=12))
def test_ranges(runs: list[tuple[int, int]]) -> None:
    start = torch.tensor([a for a, _ in runs], dtype=torch.long)
    size = torch.tensor([n for _, n in runs], dtype=torch.long)
    which, numbers = ranges(start, size)
    expected = [(i, a + k) for i, (a, n) in enumerate(runs) for k in range(n)]
    assert list(zip(which.tolist(), numbers.tolist(), strict=True)) == expected


@pytest.mark.parametrize(("classes", "own"), [(2, True), (9, False), (40, False), (9, True)])
def test_many_ties(classes: int, own: bool) -> None:
    r = np.random.default_rng(classes)
    x, y = r.choice([-1.0, 1.0], size=(150, 16)), r.integers(0, classes, 150)
    if own:
        got, expected = rank(x, y, block=48), ranked(x, y)
    else:
        apart = {"gallery": x[60:], "gallery_labels": y[60:]}
        got = rank(x[:60], y[:60], **apart, block=48)
        expected = ranked(x[:60], y[:60], x[60:], y[60:])
    found = torch.stack([got.first.double(), got.r_precision.double()], 1).numpy()
    np.testing.assert_allclose(found, expected[:, 1:3], rtol=0, atol=1e-12)


# ---- Many blocks, imprecise products


@pytest.mark.parametrize("spread", [0.02, 0.15, 3.0])
def test_many_blocks_of_good_and_bad_embeddings(spread: float) -> None:
    r = np.random.default_rng(0)
    y = r.permutation(1500) // 6
    x = r.normal(size=(250, 48)) / 48**0.5
    x = x[y] + spread * r.normal(size=(1500, 48))
    u = x / np.linalg.norm(x, axis=1, keepdims=True)
    S = u @ u.T
    np.fill_diagonal(S, -np.inf)
    right = y[np.argsort(-S, axis=1, kind="stable")[:, :-1]] == y[:, None]
    precision = right[:, :5].cumsum(1) / np.arange(1, 6)
    got = rank(x, y, block=128)
    np.testing.assert_array_equal(got.first, right.argmax(1))
    np.testing.assert_allclose(got.r_precision, right[:, :5].mean(1))
    np.testing.assert_allclose(got.average_precision, (precision * right[:, :5]).mean(1))


def test_reduced_precision_products_are_exact() -> None:
    y = torch.arange(300) % 60
    x = torch.randn(60, 24)[y] + torch.randn(300, 24)
    expected = rank(x, y)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(rank(x, y).first, expected.first)
    finally:
        torch.set_float32_matmul_precision(before)
