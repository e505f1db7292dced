import io
import os
import pickle
import pickletools
import struct
import zlib

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings, strategies as st

from benchmark_imitations import python2_pickle
from proxysynth.data.benchmarks.files import (
    Row,
    read_mat,
    read_pickle,
    relative_name,
    rows,
)


def write(tmp_path, data):
    path = tmp_path / "labels.txt"
    path.write_bytes(data)
    return path


def test_rows_are_split_at_whitespace(tmp_path):
    path = write(tmp_path, b"\xef\xbb\xbf1 a/b c.jpg \r\n\n  2\td.jpg")
    found = list(rows(path, ("number", "path")))
    assert [row.columns for row in found] == [["1", "a/b c.jpg"], ["2", "d.jpg"]]
    assert [row.where for row in found] == [f"line 1 of {path}", f"line 3 of {path}"]


def test_rows_after_a_header(tmp_path):
    path = write(tmp_path, b"2\nname   part\na.jpg train\nb.jpg test\n")
    found = list(rows(path, ("name", "part"), header=True))
    assert [row.columns for row in found] == [["a.jpg", "train"], ["b.jpg", "test"]]
    assert found[0].where == f"line 3 of {path}"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"1 a.jpg\n2\n", "line 2 of .*labels.txt"),
        (b"<!DOCTYPE\n", "line 1 of .*labels.txt"),
        (b"\xff\xfe\x00", "utf-8"),
    ],
)
def test_invalid_lines_are_rejected(tmp_path, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        list(rows(write(tmp_path, data), ("number", "path")))
    assert "\n" not in str(caught.value)


def test_missing_header_and_missing_file_are_rejected(tmp_path):
    for data in (b"", b"<html>\n<body>\n"):
        with pytest.raises(ValueError, match="name, part"):
            list(rows(write(tmp_path, data), ("name", "part"), header=True))
    with pytest.raises(ValueError, match="none.txt cannot be read .no such file"):
        list(rows(tmp_path / "none.txt", ("name",)))
    with pytest.raises(ValueError, match="cannot be read"):
        list(rows(tmp_path, ("name",)))


@pytest.mark.parametrize("text", ["-1", "1.0", "x", "", "²"])
def test_integer_columns(text):
    assert Row(["a", "042"], "here").integer(1) == 42
    with pytest.raises(ValueError, match="here must have an integer"):
        Row([text], "here").integer(0)


@pytest.mark.parametrize("text", ["/etc/passwd", "../a.jpg", "a/../../b.jpg", ".", "..", "a/.."])
def test_image_path_outside_folder_is_rejected(text):
    assert relative_name("./a//b/../c.jpg", "here") == "a/c.jpg"
    with pytest.raises(ValueError, match="here must name an image under its own folder"):
        relative_name(text, "here")


def saved(tmp_path, compressed=False, **variables):
    path = tmp_path / "labels.mat"
    scipy.io.savemat(path, variables, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [False, True])
def test_read_mat_variables(tmp_path, compressed):
    annotations = np.zeros((1, 3), dtype=[("fname", "O"), ("class", "O")])
    for i in range(3):
        annotations[0, i] = (f"{i:05d}.jpg", np.array([[i + 1]], dtype=np.uint8))
    x = np.random.default_rng(3).integers(0, 100, (4, 3, 2, 1)).astype(np.uint8)
    path = saved(tmp_path, compressed, X=x, annotations=annotations, other=7)
    held = read_mat(path, ("X", "absent"))
    assert list(held) == ["X"]
    assert held["X"].dtype == np.uint8
    assert np.array_equal(held["X"], x)
    simple = read_mat(path, ("annotations",), simplify=True)["annotations"]
    assert [(row["fname"], row["class"]) for row in simple] == [
        ("00000.jpg", 1),
        ("00001.jpg", 2),
        ("00002.jpg", 3),
    ]


def element(kind, body):
    return struct.pack("<II", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def array(shape, body, sort=9):
    head = element(6, struct.pack("<II", sort, 0))
    head += element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, head + element(1, b"y") + body)


def mat_file(tmp_path, body):
    path = tmp_path / "by_hand.mat"
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM" + body)
    return path


def bomb(size):
    """Compressed zeros behind a tag that announces some size."""
    packed = zlib.compress(struct.pack("<II", 14, size) + bytes(100_000))
    return struct.pack("<II", 15, len(packed)) + packed


NUMBERS = element(2, b"\1\2\3\4")


@pytest.mark.parametrize(
    "body",
    [
        array((2, 2), NUMBERS)[:-9],
        array((2, 3), NUMBERS),
        array((-1, -4), NUMBERS),
        array((1 << 20, 1 << 20), NUMBERS),
        array((1 << 20, 1 << 20), NUMBERS) + array((2, 2), NUMBERS),
        array((1, 1 << 30), NUMBERS, sort=1),
        bomb(1 << 31),
        struct.pack("<II", 15, 8) + b"not zlib",
    ],
)
@pytest.mark.parametrize("simplify", [False, True])
def test_damaged_mat_files_are_rejected(tmp_path, body, simplify):
    path = mat_file(tmp_path, body)
    with pytest.raises(ValueError, match="download it again") as caught:
        read_mat(path, ("y",), simplify)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def nested(depth, sort=1, sizes=True):
    """Cells in cells; scipy does not look at the sizes of the inner ones."""
    head = element(6, struct.pack("<II", sort, 0)) + element(5, struct.pack("<2i", 1, 1))
    inner = len(head) + 16
    heads = [
        struct.pack("<II", 14, (depth - i) * (inner + 8) if sizes or i == 0 else 8)
        + head
        + element(1, b"y" if i == 0 else b"")
        for i in range(depth)
    ]
    return b"".join(heads)


@pytest.mark.parametrize(("sizes", "compressed"), [(False, True), (True, False), (False, False)])
def test_deeply_nested_cells_are_rejected(tmp_path, sizes, compressed):
    """20,000 of them overflow the stack in scipy."""
    body = nested(20_000, sizes=sizes) + struct.pack("<II", 14, 0)
    if compressed:
        packed = zlib.compress(body)
        body = struct.pack("<II", 15, len(packed)) + packed
    for simplify in (False, True):
        with pytest.raises(ValueError, match=r"by_hand\.mat"):
            read_mat(mat_file(tmp_path, body), ("y",), simplify)


def test_read_nested_mat_values(tmp_path):
    value = {"a": [{"b": "text", "c": 1 + 2j}, {"b": "", "c": 3.5}], "d": np.array([[1, 2]])}
    held = read_mat(saved(tmp_path, True, y=value), ("y",), simplify=True)["y"]
    assert held["a"][0]["b"] == "text"
    assert held["a"][0]["c"] == 1 + 2j
    assert held["d"].tolist() == [1, 2]


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"", "download"),
        (b"<!DOCTYPE html><html><head><title>404 Not Found</title></head>".ljust(300), "HTML"),
        (bytes(400), "download"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM", "-v7"),
    ],
)
def test_non_mat_file_is_rejected(tmp_path, data, word):
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=word):
        read_mat(path, ("X",))
    with pytest.raises(ValueError, match="no such file"):
        read_mat(tmp_path / "other.mat", ("X",))


@pytest.mark.parametrize("compressed", [False, True])
def test_truncated_mat_file_is_rejected(tmp_path, compressed):
    draw = np.random.default_rng(0)
    path = saved(tmp_path, compressed, X=draw.integers(0, 256, (8, 8, 3, 4), np.uint8))
    whole = path.read_bytes()
    for length in range(130, len(whole) - 8, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"labels\.mat"):
            read_mat(path, ("X",))


DATA = np.arange(3 * 300, dtype=np.uint8).reshape(3, 300)
HELD = {b"labels": [6, 9, 300], b"data": DATA, b"batch_label": b"training batch 1 of 5"}


def read(tmp_path, data):
    path = tmp_path / "data_batch_1"
    path.write_bytes(data)
    return read_pickle(path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_python2_pickle_is_read(tmp_path):
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
def test_python3_pickle_is_read(tmp_path, protocol):
    held = {"labels": [1, 2], "data": DATA, "more": DATA, "names": ("a", "b", "c", "d", None, True)}
    made = read(tmp_path, pickle.dumps(held, protocol=protocol))
    assert np.array_equal(made.pop("data"), DATA)
    assert np.array_equal(made.pop("more"), DATA)  # the same array twice: by way of the memo
    assert made == {"labels": [1, 2], "names": held["names"]}


def test_fortran_order_array_is_read(tmp_path):
    columns = np.asfortranarray(DATA)
    assert np.array_equal(read(tmp_path, pickle.dumps({"data": columns}, 4))["data"], DATA)


class Call:
    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Plain:
    pass


@pytest.mark.parametrize(
    ("function", "protocol"), [*(("os", p) for p in range(6)), ("eval", 2), ("numpy", 4)]
)
def test_pickled_call_is_rejected_without_execution(tmp_path, protocol, function):
    trap = tmp_path / "trap"
    calls = {
        "os": Call(os.mkdir, str(trap)),
        "eval": Call(eval, f"__import__('os').mkdir({str(trap)!r})"),
        "numpy": Call(np.save, str(trap), 1),
    }
    data = pickle.dumps({"labels": [calls[function]], "data": DATA}, protocol=protocol)
    with pytest.raises(ValueError, match=r"data_batch_1 cannot be read") as caught:
        read(tmp_path, data)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data_batch_1"]
    pickle.loads(data)  # the trap is a real one: Python's own reader falls into it
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02cos\nsystem\nU\x04true\x85R.", "os.system"),
        (b"\x80\x02cbuiltins\ngetattr\n.", "builtins.getattr"),
        (b"\x80\x02cnumpy\nload\n.", "numpy.load"),
        (b"(S'true'\nios\nsystem\n.", "os.system"),
        (pickle.dumps(Plain()), "not allowed"),
        (b"\x80\x02cnumpy\ndtype\nU\x01O\x85R.", "instead of bytes"),
        (b"\x80\x02cnumpy\ndtype\n}b.", "cannot be read"),  # state is not set on anything
        (b"\x80\x02]}b.", "cannot be read"),
        (pickle.dumps([1, 2]), "it holds a list instead of a dict"),
        (b"", "cannot be read"),
        (b"<!DOCTYPE html><html>", "cannot be read"),
        (python2_pickle(HELD)[:-40], "cannot be read"),
        (b"\x80\x02K\x01.", "instead of a dict"),
        (b"\x80\x02u.", "cannot be read"),
        (b"\x80\x02h\x07.", "cannot be read"),
        (b"\x80\x02}](K\x01e}s.", "cannot be read"),  # a list as a key
        (
            b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
            "cannot be read",
        ),  # tuples in tuples as a key
        (b"\x80\x02}T\xff\xff\xff\x7fab.", "cannot be read"),  # a text of 2 GB in 12 bytes
        (pickle.dumps({"data": DATA.astype(np.float64)}, 2), "instead of bytes"),
    ],
)
def test_invalid_pickles_are_rejected(tmp_path, data, words):
    with pytest.raises(ValueError, match=words) as caught:
        read(tmp_path, data)
    assert str(tmp_path / "data_batch_1") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mismatched_array_shape_is_rejected(tmp_path):
    good = python2_pickle({b"data": DATA})
    # The first side, 3, becomes a list repeated by the second: nothing is multiplied with it.
    for wrong in (b"K\x04M\x2c\x01\x86", b"]M\x2c\x01\x86"):
        data = good.replace(b"K\x03M\x2c\x01\x86", wrong)
        assert data != good
        with pytest.raises(ValueError, match="size of an array"):
            read(tmp_path, data)


def test_missing_pickle_is_reported(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        read_pickle(tmp_path / "data_batch_1")


@pytest.mark.filterwarnings("ignore:invalid escape:DeprecationWarning")
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_pickle_is_read_or_rejected(tmp_path_factory, data):
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


def test_imitation_uses_opcodes_of_published_files():
    steps = {step.name for step, _, _ in pickletools.genops(io.BytesIO(python2_pickle(HELD)))}
    assert {"SHORT_BINSTRING", "BINSTRING", "GLOBAL", "REDUCE", "BUILD"} <= steps
