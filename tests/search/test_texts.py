import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from proxysynth.search.texts import Labels, Texts, encoded, pack


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=8), max_size=20), st.text(max_size=8))
def test_texts_are_what_was_packed_and_are_found(words, other):
    words = sorted(set(words), key=encoded)
    texts = Texts(*pack(words))
    assert list(texts) == words
    assert len(texts) == len(words)
    assert texts[1:3] == words[1:3]
    for place, word in enumerate(words):
        assert texts.find(word) == place
    assert texts.find(other) == (words.index(other) if other in words else None)


def test_a_name_that_is_no_text_keeps_its_bytes():
    name = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    assert list(Texts(*pack([name]))) == [name]


def test_counting_from_the_end_and_beyond():
    texts = Texts(*pack(["a", "b"]))
    assert texts[-1] == "b"
    with pytest.raises(IndexError):
        texts[2]


def test_ends_outside_of_the_text_are_named():
    text, _ = pack(["abc"])
    for ends in ([0, 9], [-4, 2], [2, 1]):
        with pytest.raises(ValueError, match="damaged"):
            Texts(text, np.array(ends, dtype=np.int64))[0]


def test_labels_and_none():
    labels = Labels(Texts(*pack(["hat", "shoe"])), np.array([1, -1, 0, 2], dtype=np.int32))
    assert labels[:3] == ["shoe", None, "hat"]
    assert len(labels) == 4
    with pytest.raises(ValueError, match="damaged"):
        labels[3]
