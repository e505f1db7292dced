import subprocess
import sys

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import torch

from proxysynth.search import Index
from proxysynth.search.approximate import make_approximate, open_approximate
from search.made_up import made_up, vectors

faiss = pytest.importorskip("faiss")


def clustered(n: int, d: int, seed: int = 0) -> np.ndarray:
    centres = vectors(n // 20, d, seed)
    x = np.repeat(centres, 20, axis=0) + 0.6 * vectors(n, d, seed + 1)
    return (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def index(tmp_path):
    return Index.open(made_up(tmp_path / "a.index", clustered(2000, 16)))


def test_reported_recall_matches_measured_recall(index):
    made = make_approximate(index.vectors())
    assert made.probes < made.cells
    assert 0.98 <= made.recall[10] <= 1
    x = index.vectors().clone()
    exact = index.search_vectors(x, 10, exclude=range(len(x)))
    near = made.nearest(x, index.vectors(), 10, [(i,) for i in range(len(x))]).indices
    shares = [
        len({hit.number for hit in truth} & set(numbers.tolist())) / 10
        for truth, numbers in zip(exact, near, strict=True)
    ]
    assert np.mean(shares) == pytest.approx(made.recall[10], abs=0.03)  # all against a sample
    assert "recall@10" in made.verdict


def test_hits_have_exact_similarities(index):
    x = torch.from_numpy(vectors(5, 16, seed=9))
    exact = index.search_vectors(x, 200)
    near = index.search_vectors(x, 10, approximate=True, threshold=0.0)
    for truth, found in zip(exact, near, strict=True):
        by_number = {hit.number: hit for hit in truth}
        assert all(by_number[hit.number] == hit for hit in found if hit.number in by_number)
        assert all(hit.similarity >= 0 for hit in found)


def test_exclude_and_label(index):
    x = index.vectors(3, 4).clone()
    hits = index.search_vectors(x, 5, exclude=[3], approximate=True)[0]
    assert 3 not in [hit.number for hit in hits]
    assert index.search_vectors(x, 5, approximate=True)[0][0].number == 3
    with_label = index.search_vectors(x, 5, label="label1", approximate=True)
    assert with_label == index.search_vectors(x, 5, label="label1")


def test_cached_file_is_rebuilt_when_the_index_changes(index, monkeypatch):
    said = []
    first = open_approximate(index, said.append)
    assert len(said) == 1
    assert "a.index.faiss" in said[0]
    kept = open_approximate(index, said.append)
    assert len(said) == 1
    assert (kept.recall, kept.probes) == (first.recall, first.probes)
    made_up(index.file, clustered(2000, 16, seed=5))
    newer = index.reload()
    open_approximate(newer, said.append)
    assert len(said) == 2
    hits = newer.search_vectors(newer.vectors(7, 8).clone(), 1, approximate=True)
    assert hits[0][0].number == 7


@pytest.mark.parametrize("harm", ["bytes", "foreign", "cut", "metadata"])
def test_damaged_or_foreign_file_is_never_passed_to_faiss(index, harm, monkeypatch):
    open_approximate(index)
    path = index.file.with_name("a.index.faiss")
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif harm == "foreign":
        faiss.write_index(faiss.IndexFlatIP(16), str(path))
    elif harm == "metadata":
        safetensors.numpy.save_file({"faiss": np.zeros(9, np.uint8)}, path, {"made_of": "[]"})
    else:
        with safetensors.safe_open(path, framework="numpy") as file:
            about, data = file.metadata(), file.get_tensor("faiss")
        data[-40] ^= 255
        safetensors.numpy.save_file({"faiss": data}, path, about)
    read = []
    monkeypatch.setattr(faiss, "deserialize_index", lambda data: read.append(data))
    said = []
    open_approximate(index, said.append)
    assert read == []
    assert len(said) == 1


def test_tiny_index(tmp_path):
    index = Index.open(made_up(tmp_path / "b.index", vectors(2, 3)))
    assert index.approximate().recall[1] == 1
    assert len(index.search_vectors(torch.ones(1, 3), 5, approximate=True)[0]) == 2


def test_missing_faiss_error_names_the_extra(index, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ValueError, match=r"pip install 'proxysynth\[faiss\]'"):
        index.search_vectors(torch.ones(1, 16), approximate=True)


def test_works_with_faiss_torch_utils_imported(tmp_path) -> None:
    """Importing it changes faiss for the whole process, so it is done in one of its own."""
    code = """
import torch, faiss.contrib.torch_utils
from proxysynth.search.approximate import make_approximate
x = torch.nn.functional.normalize(torch.randn(300, 8), dim=1)
found = make_approximate(x).nearest(x[:2], x, 3, [(), ()])
print(found.indices[:, 0].tolist())
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert made.stdout.strip() == "[0, 1]", made.stderr
