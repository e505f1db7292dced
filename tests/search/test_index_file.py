import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings, strategies as st

from proxysynth.retrieval import knn
from proxysynth.search import Index, index_file
from proxysynth.search.index_file import ABOUT, FORMAT, HEADER_SUM, PARTS, NotAnIndex
from search.made_up import identity, made_up, vectors


@pytest.fixture
def file(tmp_path):
    return made_up(tmp_path / "a.index", vectors(11, 4))


def header_of(file) -> tuple[dict, bytes]:
    data = file.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def write(file, header, body) -> None:
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_safetensors_library_reads_an_index(file):
    tensors = safetensors.numpy.load_file(file)
    np.testing.assert_array_equal(tensors["embeddings"], vectors(11, 4))
    np.testing.assert_array_equal(tensors["stamps"], np.arange(22).reshape(11, 2))
    ends = tensors["path_ends"]
    assert tensors["path_text"][ends[3] : ends[4]].tobytes() == b"00000003.jpg"
    assert set(tensors) == set(PARTS)


def test_write_read_round_trip(file):
    index = Index.open(file)
    assert len(index) == 11
    assert index.dim == 4
    assert index.model == identity(4)
    assert index.root == file.parent
    assert index.labels[:5] == [None, "label1", "label2", None, "label1"]
    np.testing.assert_array_equal(index.vectors(2, 5).numpy(), vectors(11, 4)[2:5])


def test_truncated_file_is_rejected(file):
    data = file.read_bytes()
    for length in [*range(40), *range(40, len(data), 37), len(data) - 1]:
        file.write_bytes(data[:length])
        with pytest.raises(NotAnIndex, match="index"):
            Index.open(file)


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("embeddings", {"data_offsets": [0, 176]}),  # over another part
        ("embeddings", {"shape": [11, 5]}),
        ("embeddings", {"shape": [44]}),
        ("embeddings", {"shape": [0, 4], "data_offsets": [0, 0]}),
        ("embeddings", {"shape": [11, 0], "data_offsets": [0, 0]}),
        ("embeddings", {"shape": [-11, -4]}),
        ("embeddings", {"shape": [True, 4]}),
        ("embeddings", {"shape": "many"}),
        ("embeddings", {"dtype": "F64"}),
        ("embeddings", {"data_offsets": [10**12, 10**12 + 176]}),
        ("embeddings", {"shape": [1 << 62, 1 << 62], "data_offsets": [0, 1 << 124]}),
        ("path_ends", {"shape": [11], "data_offsets": [0, 88]}),
        ("path_text", {"data_offsets": [-5, 0]}),
        ("path_text", {"data_offsets": [5]}),
        ("label_codes", {"shape": [10]}),
        ("label_codes", None),
        ("stamps", {"data_offsets": [1, 177]}),
    ],
)
def test_crafted_header_is_rejected(file, part, changed):
    header, body = header_of(file)
    if changed is None:
        del header[part]
    else:
        header[part] |= changed
    metadata = header.pop("__metadata__")  # with a checksum that fits
    checked = (metadata[ABOUT] + json.dumps(header, sort_keys=True)).encode()
    metadata[HEADER_SUM] = f"{zlib.crc32(checked):08x}"
    write(file, {"__metadata__": metadata, **header}, body)
    for in_memory in (False, True):
        with pytest.raises(NotAnIndex, match="--rebuild") as said:
            Index.open(file, in_memory=in_memory)
        assert "\n" not in str(said.value)


@pytest.mark.parametrize(
    ("about", "expected"),
    [
        ("{}", "not an index"),
        ("[" * 100_000, "not an index"),
        (json.dumps({"format": FORMAT + 1}), "newer version"),
        (json.dumps({"format": FORMAT}), "which model"),
        (json.dumps({"format": FORMAT, "model": {"dim": 3}}), "which model"),
        (
            json.dumps({"format": FORMAT, "root": 5, "generation": "", "model": {}}),
            "which model",
        ),
    ],
)
def test_invalid_metadata_is_rejected(file, about, expected):
    header, body = header_of(file)
    header["__metadata__"] = {ABOUT: about}
    write(file, header, body)
    with pytest.raises(NotAnIndex, match=expected):
        Index.open(file)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_are_detected(changes):
    with tempfile.TemporaryDirectory() as folder:
        file = made_up(Path(folder) / "a.index", vectors(11, 4))
        data = bytearray(file.read_bytes())
        before = bytes(data)
        for place, byte in changes:
            data[place % len(data)] = byte
        file.write_bytes(data)
        header = 8 + struct.unpack("<Q", before[:8])[0]
        try:
            index = Index.open(file)
        except NotAnIndex:
            return
        assert data[header:] == before[header:]  # at most white space of the header has changed
        assert list(index.paths) == [f"{i:08d}.jpg" for i in range(11)]


def test_index_of_version_0_1_without_checksums_opens(file):
    header, body = header_of(file)
    about = json.loads(header["__metadata__"][ABOUT])
    del about["checksums"]
    header["__metadata__"] = {ABOUT: json.dumps(about)}
    write(file, header, body)
    index = Index.open(file)
    assert len(index) == 11
    assert index.damage() == {}


def test_checksums_locate_damaged_embedding_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(index_file, "ROWS_PER_SUM", 4)
    file = made_up(tmp_path / "a.index", vectors(11, 4))
    data = bytearray(file.read_bytes())
    at = data.index(vectors(11, 4)[9].tobytes())
    data[at] ^= 1
    file.write_bytes(data)
    damage = Index.open(file, verify=False).damage()
    assert list(damage) == ["embeddings"]
    assert damage["embeddings"].nonzero()[0].tolist() == [8, 9, 10]
    with pytest.raises(NotAnIndex, match=r"a\.index is damaged \(.*embeddings"):
        Index.open(file)


@pytest.mark.parametrize("in_memory", [False, True])
def test_memory_mapped_and_loaded_hits_match(tmp_path, in_memory, monkeypatch):
    x = vectors(500, 40)
    monkeypatch.setattr(knn, "CELLS", 40 * 128)  # several blocks of the file
    index = Index.open(made_up(tmp_path / "a.index", x), in_memory=in_memory)
    query = vectors(7, 40, seed=1)
    cosines = query.astype(np.float64) @ x.astype(np.float64).T
    cosines[2, [4, 300]] = -2
    exclude = [None, None, [4, 300], None, None, None, None]
    for label in (None, "label1"):
        allowed = np.array([label in (None, one) for one in index.labels])
        found = index.search_vectors(query, 9, label=label, exclude=exclude)
        for scores, hits in zip(cosines, found, strict=True):
            best = np.argsort(-np.where(allowed, scores, -3), kind="stable")[:9]
            assert [hit.number for hit in hits] == best.tolist()
            np.testing.assert_allclose([hit.similarity for hit in hits], scores[best], atol=1e-6)


def test_index_larger_than_memory_is_not_loaded(tmp_path, monkeypatch):
    file = made_up(tmp_path / "a.index", vectors(50, 4))
    monkeypatch.setattr(index_file, "total_memory", lambda: 100)
    with pytest.raises(NotAnIndex, match="GB of memory"):
        Index.open(file, in_memory=True)
    assert len(Index.open(file)) == 50


def test_unsupported_file_is_rejected(tmp_path):
    safetensors.numpy.save_file({"x": np.zeros(3)}, tmp_path / "model.safetensors")
    (tmp_path / "photo.jpg").write_bytes(os.urandom(500))
    for name in ("model.safetensors", "photo.jpg"):
        with pytest.raises(NotAnIndex, match="not an index"):
            Index.open(tmp_path / name)
    with pytest.raises(NotAnIndex, match="there is no index"):
        Index.open(tmp_path / "gone.index")
    with pytest.raises(NotAnIndex, match="is a folder"):
        Index.open(tmp_path)


def test_unsorted_paths_are_rejected(tmp_path):
    from proxysynth.search.index_file import write_index

    stamps = np.zeros((2, 2), dtype=np.int64)
    with pytest.raises(ValueError, match="sorted"):
        write_index(
            tmp_path / "x", identity(2), tmp_path, ["b", "a"], [None] * 2, stamps, vectors(2, 2)
        )


OPEN = """
import resource, sys, time
from proxysynth.retrieval import knn
from proxysynth.search import Index, index_file

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

before, begun = resident(), time.perf_counter()
index = Index.open(sys.argv[1])
seconds = time.perf_counter() - begun
last = index.hit(len(index) - 1)
print(seconds, resident() - before, len(index), index.dim, repr(last.path))
"""


def sparse_index(file, n: int, d: int) -> None:
    """An index of zeros that takes no room on the disk."""
    about = {"format": FORMAT, "generation": "1", "root": "/", "model": asdict(identity(d))}
    header, at = {"__metadata__": {ABOUT: json.dumps(about)}}, 0
    shapes = {"path_ends": [n + 1], "label_ends": [2], "stamps": [n, 2], "embeddings": [n, d],
              "label_codes": [n], "path_text": [60 * n], "label_text": [0]}  # fmt: skip
    for name, shape in shapes.items():
        size = int(np.prod(shape)) * {"I64": 8, "F32": 4, "I32": 4, "U8": 1}[PARTS[name]]
        entry = {"dtype": PARTS[name], "shape": shape, "data_offsets": [at, at + size]}
        header[name], at = entry, at + size
    write(file, header, b"")
    os.truncate(file, file.stat().st_size + at)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc to read memory")
def test_index_of_ten_million_items_opens_within_a_second(tmp_path):
    file = tmp_path / "large.index"
    try:
        sparse_index(file, 10_000_000, 512)
    except OSError as error:
        pytest.skip(f"no file of 20 GB can be made here: {error}")
    found = file.stat()
    assert found.st_size > 20_000_000_000
    if found.st_blocks * 512 > 10_000_000:
        pytest.skip("this file system has no sparse files")
    done = subprocess.run(
        [sys.executable, "-c", OPEN, file], capture_output=True, text=True, check=True
    )
    seconds, resident, n, d, path = done.stdout.split()
    assert (n, d, path) == ("10000000", "512", "''")
    assert float(seconds) < 1
    assert int(resident) < 200_000_000
    file.unlink()
