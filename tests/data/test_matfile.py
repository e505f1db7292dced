import io
import struct
import zlib
from functools import cache

import numpy as np
import pytest
import scipy.io
from hypothesis import given, settings, strategies as st

from proxysynth.data import matfile
from proxysynth.data.matfile import read_mat

KINDS = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"]


def saved(tmp_path, compressed=False, **variables):
    path = tmp_path / "labels.mat"
    scipy.io.savemat(path, variables, do_compression=compressed)
    return path


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_those_of_scipy(tmp_path, kind, compressed):
    draw = np.random.default_rng(3)
    variables = {
        "one": np.array([[7]], dtype=kind),
        "row": draw.integers(0, 100, (1, 5)).astype(kind),
        "X": draw.integers(0, 100, (4, 3, 2, 5)).astype(kind),
        "none": np.empty((0, 3), dtype=kind),
    }
    path = saved(tmp_path, compressed, **variables)
    made, oracle = read_mat(path), scipy.io.loadmat(path)
    assert list(made) == list(variables)
    for name in variables:
        assert made[name].dtype == oracle[name].dtype == np.dtype(kind)
        assert np.array_equal(made[name], oracle[name])
        assert made[name].shape == variables[name].shape


@pytest.mark.parametrize("compressed", [False, True])
def test_texts_cells_and_structs(tmp_path, compressed):
    names = np.empty((2, 2), dtype=object)
    names[:] = [["Citroën", "AM General Hummer SUV 2000"], ["", np.array([[1.5, 2.5]])]]
    rows = np.zeros((1, 3), dtype=[("fname", "O"), ("class", "O")])
    for i in range(3):
        rows[0, i] = (f"{i:05d}.jpg", np.array([[i + 1]], dtype=np.uint8))
    path = saved(
        tmp_path, compressed, names=names, annotations=rows, text="one", texts=["abc", "de "]
    )
    made = read_mat(path)
    assert made["text"] == "one"
    assert made["texts"] == ("abc", "de ")
    first, second, third, fourth = made["names"]  # column by column
    assert first == "Citroën"
    assert len(second) == 0
    assert third == "AM General Hummer SUV 2000"
    assert fourth.tolist() == [[1.5, 2.5]]
    assert [row["fname"] for row in made["annotations"]] == ["00000.jpg", "00001.jpg", "00002.jpg"]
    assert [int(row["class"][0, 0]) for row in made["annotations"]] == [1, 2, 3]


def element(kind, body, order=">"):
    return struct.pack(order + "II", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def array(shape, body, sort=9, order=">", name=b"y", flags=0):
    head = element(6, struct.pack(order + "II", sort | flags, 0), order)
    head += element(5, struct.pack(f"{order}{len(shape)}i", *shape), order)
    return element(14, head + element(1, name, order) + body, order)


def file_of(tmp_path, body, order=">"):
    path = tmp_path / "by_hand.mat"
    mark = b"MI" if order == ">" else b"IM"
    version = struct.pack(order + "H", 0x0100)
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + version + mark + body)
    return path


def test_the_other_byte_order(tmp_path):
    numbers = element(4, struct.pack(">3H", 1, 2, 300))  # stored in fewer bytes than they have
    path = file_of(tmp_path, array((3, 1), numbers, sort=6))
    made = read_mat(path)["y"]
    assert made.dtype == np.float64
    assert made.tolist() == scipy.io.loadmat(path)["y"].tolist() == [[1.0], [2.0], [300.0]]
    path = file_of(tmp_path, array((1, 2), element(4, "hé".encode("utf-16-be")), sort=4))
    assert read_mat(path)["y"] == "hé"


def bomb(size, order="<"):
    """Compressed zeros behind a tag that announces some size."""
    packed = zlib.compress(struct.pack(order + "II", 14, size) + bytes(100_000))
    return struct.pack(order + "II", 15, len(packed)) + packed


NUMBERS = element(2, b"\1\2\3\4", "<")
HTML = b"<!DOCTYPE html><html><head><title>404 Not Found</title></head>".ljust(300)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (array((2, 2), NUMBERS, order="<")[:-9], "it ends early"),
        (array((2, 3), NUMBERS, order="<"), r"shape \(2, 3\) has 4 numbers"),
        (array((-1, -4), NUMBERS, order="<"), r"an array has the shape"),
        (array((4,), NUMBERS, order="<"), r"an array has the shape"),
        (array((2, 2), NUMBERS, sort=5, order="<"), "an array of kind 5"),
        (array((2, 2), NUMBERS, sort=17, order="<"), "an array of kind 17"),
        (array((2, 2), NUMBERS, flags=0x0800, order="<"), "not numbers, texts"),
        (array((2, 2), element(8, b"1234", "<"), order="<"), "stored as kind 8"),
        (array((1, 1 << 30), NUMBERS, sort=1, order="<"), "it ends early"),
        (array((1, 3), element(5, b"\0\0\0\0", "<") + element(1, b"", "<"), 2, "<"), "no names"),
        (array((1, 4), element(9, bytes(8), "<"), sort=4, order="<"), "text is stored as kind 9"),
        (element(9, bytes(8), "<"), "unknown kind 9"),
        (b"\1\2\3", "it is damaged"),
        (bomb(1 << 31), "would take 2,147,483,648 bytes"),
        (bomb(50), "it ends early"),
        (struct.pack("<II", 15, 8) + b"not zlib", "it is damaged"),
    ],
)
def test_what_is_refused(tmp_path, body, words):
    path = file_of(tmp_path, body, "<")
    with pytest.raises(ValueError, match=words) as caught:
        read_mat(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deep_cells(tmp_path):
    inner = NUMBERS
    made = array((2, 2), inner, order="<")
    for _ in range(matfile.DEEPEST + 1):
        made = array((1, 1), made, sort=1, order="<")
    with pytest.raises(ValueError, match="deeper than"):
        read_mat(file_of(tmp_path, made, "<"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it has 0 bytes"),
        (HTML, "it is an HTML page"),
        (bytes(400), "its header is another"),
        (b"MATLAB 7.3 MAT-file".ljust(124) + b"\0\2IM", "save"),
    ],
)
def test_what_is_no_such_file(tmp_path, data, words):
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=words):
        read_mat(path)
    with pytest.raises(ValueError, match="no such file"):
        read_mat(tmp_path / "other.mat")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_file_is_never_taken_for_a_whole_one(tmp_path, compressed):
    draw = np.random.default_rng(0)
    path = saved(tmp_path, compressed, X=draw.integers(0, 256, (8, 8, 3, 4), np.uint8))
    whole = path.read_bytes()
    for length in range(130, len(whole) - 8, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"labels\.mat"):
            read_mat(path)


@cache
def whole(compressed):
    rows = np.zeros((1, 2), dtype=[("fname", "O"), ("class", "O")])
    for i in range(2):
        rows[0, i] = (f"{i}.jpg", np.array([[i]], dtype=np.uint8))
    stream = io.BytesIO()
    held = {"annotations": rows, "y": np.arange(6)}
    scipy.io.savemat(stream, held, do_compression=compressed)
    return stream.getvalue()


@settings(max_examples=300, deadline=None)
@given(data=st.data(), compressed=st.booleans())
def test_damage_gives_an_answer_or_a_sentence(tmp_path_factory, data, compressed):
    damaged = bytearray(whole(compressed))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.mat"
    path.write_bytes(bytes(damaged))
    try:
        answer = read_mat(path)
    except ValueError as error:
        answer = str(error)
    assert isinstance(answer, dict) or str(path) in answer
