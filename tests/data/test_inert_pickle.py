import io
import os
import pickle
import pickletools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from benchmark_imitations import python2_pickle
from proxysynth.data.inert_pickle import read_pickle

DATA = np.arange(3 * 300, dtype=np.uint8).reshape(3, 300)
HELD = {b"labels": [6, 9, 300], b"data": DATA, b"batch_label": b"training batch 1 of 5"}


def read(tmp_path, data):
    path = tmp_path / "data_batch_1"
    path.write_bytes(data)
    return read_pickle(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_python_2_wrote(tmp_path):
    data = python2_pickle(HELD)
    oracle = pickle.loads(data, encoding="latin1")
    made = read(tmp_path, data)
    assert list(made) == list(oracle) == ["labels", "data", "batch_label"]
    assert made["labels"] == oracle["labels"] == [6, 9, 300]
    assert made["batch_label"] == oracle["batch_label"]
    assert made["data"].dtype == np.uint8
    assert np.array_equal(made["data"], oracle["data"])
    assert np.array_equal(made["data"], DATA)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_what_python_3_writes(tmp_path, protocol):
    held = {"labels": [1, 2], "data": DATA, "more": DATA, "names": ("a", "b", "c", "d", None, True)}
    made = read(tmp_path, pickle.dumps(held, protocol=protocol))
    assert np.array_equal(made.pop("data"), DATA)
    assert np.array_equal(made.pop("more"), DATA)  # the same array twice: by way of the memo
    assert made == {"labels": [1, 2], "names": held["names"]}


def test_an_array_column_by_column(tmp_path):
    columns = np.asfortranarray(DATA)
    assert np.array_equal(read(tmp_path, pickle.dumps({"data": columns}, 4))["data"], DATA)


class Call:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Plain:
    pass


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", ["os", "eval", "numpy"])
def test_a_call_is_refused_and_not_made(tmp_path, protocol, function):
    trap = tmp_path / "trap"
    calls = {
        "os": Call(os.mkdir, str(trap)),
        "eval": Call(eval, f"__import__('os').mkdir({str(trap)!r})"),
        "numpy": Call(np.save, str(trap), 1),
    }
    data = pickle.dumps({"labels": [calls[function]], "data": DATA}, protocol=protocol)
    with pytest.raises(ValueError, match=r"data_batch_1 is no file of CIFAR's") as caught:
        read(tmp_path, data)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data_batch_1"]
    pickle.loads(data)  # the trap is a real one: Python's own reader falls into it
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "it asks for os.system, which is never run"),
        (b"\x80\x02cbuiltins\ngetattr\n.", "it asks for builtins.getattr"),
        (b"\x80\x02cnumpy\nload\n.", "it asks for numpy.load"),
        (b"(S'true'\nios\nsystem\n.", "the step"),
        (pickle.dumps(Plain()), "it asks for"),
        (b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "something else than arrays of bytes"),
        (b"\x80\x02cnumpy\ndtype\n}b.", "instead of a dict"),  # state is not set on anything
        (b"\x80\x02]}b.", "something else than arrays"),
        (pickle.dumps([1, 2]), "it holds a list instead of a dict"),
        (b"", "damaged or not a pickle"),
        (b"<!DOCTYPE html><html>", "no file of CIFAR's"),
        (python2_pickle(HELD)[:-40], "no file of CIFAR's"),
        (b"\x80\x02K\x01.", "instead of a dict"),
        (b"\x80\x02u.", "damaged"),
        (b"\x80\x02h\x07.", "damaged"),
        (b"\x80\x02}](K\x01e}s.", "damaged"),  # a list as a key
        (b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.", "damaged"),  # tuples in tuples as a key
        (b"\x80\x02}T\xff\xff\xff\x7fab.", "damaged"),  # a text of 2 GB in 12 bytes
        (pickle.dumps({"data": DATA.astype(np.float64)}, 2), "something else than arrays of bytes"),
    ],
)
def test_anything_else_is_refused(tmp_path, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        read(tmp_path, data)
    assert str(tmp_path / "data_batch_1") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shape_that_the_bytes_do_not_have(tmp_path):
    good = python2_pickle({b"data": DATA})
    # The first side, 3, becomes a list repeated by the second: nothing is multiplied with it.
    for wrong in (b"K\x04M\x2c\x01\x86", b"]M\x2c\x01\x86"):
        data = good.replace(b"K\x03M\x2c\x01\x86", wrong)
        assert data != good
        with pytest.raises(ValueError, match="does not have the bytes of its shape"):
            read(tmp_path, data)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_pickle(tmp_path / "data_batch_1")


@pytest.mark.filterwarnings("ignore:invalid escape:DeprecationWarning")
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damage_gives_an_answer_or_a_sentence(tmp_path_factory, data):
    good = bytearray(python2_pickle({**HELD, b"data": DATA[:, :20]}))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(bytes(good))
    try:
        answer = read_pickle(path)
    except ValueError as error:
        answer = str(error)
    assert isinstance(answer, dict) or str(path) in answer


def test_the_imitation_has_the_steps_of_the_published_files():
    steps = {step.name for step, _, _ in pickletools.genops(io.BytesIO(python2_pickle(HELD)))}
    assert {"SHORT_BINSTRING", "BINSTRING", "GLOBAL", "REDUCE", "BUILD"} <= steps
