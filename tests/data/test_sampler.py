import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from proxysynth.data import SAMPLERS, MPerClass, Shuffled, in_order


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 80), st.integers(2, 30), st.integers(0, 5))
def test_shuffled_takes_every_picture_once(n, size, epoch):
    batches = Shuffled(seed=1)(np.zeros(n, np.int64), epoch, size)
    assert sorted(np.concatenate(batches).tolist()) == list(range(n))
    assert all(len(batch) == size for batch in batches[:-1])
    assert 2 <= len(batches[-1]) <= size + 1


def test_a_single_picture_left_over_joins_the_batch_before():
    batches = Shuffled()(np.zeros(9, np.int64), 0, 4)
    assert [len(batch) for batch in batches] == [4, 5]


def test_drop_last_keeps_full_batches_only():
    for n in (9, 10, 12):
        batches = Shuffled(drop_last=True)(np.zeros(n, np.int64), 0, 4)
        assert [len(batch) for batch in batches] == [4] * (n // 4)
    few = Shuffled(drop_last=True)(np.zeros(3, np.int64), 0, 4)
    assert [len(batch) for batch in few] == [3], "a set smaller than a batch is still trained on"


@pytest.mark.parametrize("sampler", [Shuffled(seed=3), MPerClass(m=2, seed=3)])
def test_an_epoch_depends_on_seed_and_epoch_only(sampler):
    labels = np.arange(40) % 8
    one = [batch.tolist() for batch in sampler(labels, 5, 8)]
    assert one == [batch.tolist() for batch in sampler(labels, 5, 8)]
    assert one != [batch.tolist() for batch in sampler(labels, 6, 8)]
    other = type(sampler)(seed=4)
    assert one != [batch.tolist() for batch in other(labels, 5, 8)]


def test_the_order_is_the_same_in_every_session():
    order = np.concatenate(Shuffled()(np.zeros(8, np.int64), 0, 4))
    assert order.tolist() == [1, 2, 3, 5, 0, 4, 7, 6]


def test_every_position_is_as_likely_as_any_other():
    counts = np.zeros((5, 5))
    for epoch in range(2000):
        counts[np.arange(5), np.concatenate(Shuffled()(np.zeros(5, np.int64), epoch, 5))] += 1
    assert np.abs(counts - 400).max() < 5 * np.sqrt(400 * 0.8)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 12), st.integers(1, 5), st.integers(0, 3), st.data())
def test_m_per_class(classes, m, epoch, data):
    sizes = data.draw(st.lists(st.integers(1, 9), min_size=classes, max_size=classes))
    labels = np.repeat(np.arange(classes), sizes)
    per_batch = data.draw(st.integers(1, classes))
    if per_batch * m < 2:
        return
    batches = MPerClass(m=m, seed=2)(labels, epoch, per_batch * m)
    seen = np.zeros(classes, dtype=int)
    for batch in batches:
        found, counts = np.unique(labels[batch], return_counts=True)
        assert len(found) == per_batch
        assert (counts == m).all()
        for label in found:
            own = batch[labels[batch] == label]
            assert len(set(own.tolist())) == min(m, sizes[label])
        seen[found] += 1
    assert seen.max() - seen.min() <= 1
    assert len(batches) == max(1, len(labels) // (per_batch * m))


def test_m_per_class_deals_all_pictures_before_any_again():
    labels = np.repeat([0, 1], 6)
    dealt = np.concatenate(MPerClass(m=2)(labels, 0, 4))
    assert sorted(dealt.tolist()) == list(range(12))


def test_classes_without_a_picture_are_passed_over():
    labels = np.array([0, 0, 3, 3])
    assert len(MPerClass(m=2)(labels, 0, 4)[0]) == 4


@pytest.mark.parametrize("size", [6, 12])
def test_m_per_class_names_what_would_fit(size):
    with pytest.raises(ValueError, match="multiple of m=4 pictures of at most 2 classes"):
        MPerClass(m=4)(np.repeat([0, 1], 9), 0, size)


@pytest.mark.parametrize("name", SAMPLERS)
def test_faults_are_named(name):
    with pytest.raises(ValueError, match="at least 2 pictures, got batch_size 1"):
        SAMPLERS[name]()(np.array([0, 1, 0, 1]), 0, 1)
    with pytest.raises(ValueError, match="at least 2 pictures, got 1"):
        SAMPLERS[name]()(np.array([0]), 0, 4)
    with pytest.raises(ValueError, match="at least 1"):
        MPerClass(m=0)


def test_in_order_covers_everything_once():
    assert [batch.tolist() for batch in in_order(5, 2)] == [[0, 1], [2, 3], [4]]
    assert in_order(0, 2) == []
    with pytest.raises(ValueError, match="at least 1 picture"):
        in_order(5, 0)
