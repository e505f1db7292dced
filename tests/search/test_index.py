import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

import proxysynth as ps
from proxysynth.retrieval.knn import as_excluded, nearest
from proxysynth.search import Hit, Index, index as index_module
from proxysynth.search.build import update_index
from proxysynth.search.index import Labels, RoundedRows, Texts
from proxysynth.search.index_file import encoded, pack
from proxysynth.search.model import open_model
from search.made_up import made_up, vectors


@pytest.fixture
def index(index_file):
    return Index.open(index_file)


def test_index_of_a_folder(index, photos, run_folder):
    files = sorted(path.relative_to(photos).as_posix() for path in photos.rglob("*.png"))
    assert list(index.paths) == files
    assert index.labels[0] == "class0"
    assert index.labels[len(index) - 1] is None  # loose.png
    assert list(index.label_names) == [f"class{i}" for i in range(4)]
    assert index.path(0) == photos / files[0]
    expected = ps.load(run_folder).embed([photos / name for name in files])
    torch.testing.assert_close(index.vectors(), expected, rtol=0, atol=1e-6)
    assert "12 images" in repr(index)


def test_copy_of_an_image_finds_it_but_an_indexed_image_skips_itself(index, photos, tmp_path):
    path = photos / "class1" / "0.png"
    (tmp_path / "copy.png").write_bytes(path.read_bytes())
    number = index.find(path)
    for query in (tmp_path / "copy.png", Image.open(path), np.asarray(Image.open(path))):
        hits = index.search(query, k=3)
        assert hits[0].number == number
        assert hits[0].similarity == pytest.approx(1, abs=1e-6)
    with open(path, "rb") as file:
        assert index.search(file, k=1)[0].path == "class1/0.png"
    own = index.search(path, k=20)
    assert number not in [hit.number for hit in own]
    assert len(own) == len(index) - 1
    assert own == index.search("class1/0.png", k=20)


def test_hits_match_a_matrix_product(index, photos):
    number = index.find("class2/1.png")
    x = index.vectors().double()
    cosines = x @ x[number]
    cosines[number] = -9
    order = torch.argsort(cosines, descending=True)[:4].tolist()
    hits = index.search("class2/1.png", k=4)
    assert [hit.number for hit in hits] == order
    assert [hit.similarity for hit in hits] == pytest.approx(cosines[order].tolist(), abs=1e-6)
    assert hits[0] == Hit(order[0], index.paths[order[0]], index.labels[order[0]],
                          hits[0].similarity)  # fmt: skip


@pytest.mark.parametrize("query", [None, 3, [None], b"bytes"])
def test_invalid_query_type_is_rejected(index, query):
    with pytest.raises(ValueError, match="embed takes paths"):
        index.search(query)


def test_several_queries_are_searched_by_their_mean(index, photos):
    names = ["class0/1.png", "class3/2.png"]
    numbers = [index.find(name) for name in names]
    mean = index.vectors()[numbers].double().mean(0)
    expected = torch.argsort(index.vectors().double() @ mean, descending=True).tolist()
    expected = [number for number in expected if number not in numbers]
    assert [hit.number for hit in index.search(names, k=50)] == expected
    outside = index.search([Image.open(photos / name) for name in names], k=2)
    assert outside[0].similarity == pytest.approx(
        float((index.vectors() @ (mean / mean.norm()).float()).max()), abs=1e-5
    )


def test_threshold_and_label_filter_hits(index):
    every = index.search("loose.png", k=50)
    middle = every[4].similarity
    assert index.search("loose.png", k=50, threshold=middle) == every[:5]
    assert index.search("loose.png", k=50, threshold=1.0) == []
    some = index.search("loose.png", k=50, label="class2")
    assert some == [hit for hit in every if hit.label == "class2"]
    assert len(some) == 3


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"k": 0}, "k must"),
        ({"k": 2.5}, "k must"),
        ({"k": True}, "k must"),
        ({"threshold": 1.5}, "threshold must"),
        ({"threshold": float("nan")}, "threshold must"),
        ({"label": "clas1"}, "clas1.*did you mean 'class1'"),
    ],
)
def test_invalid_search_options_are_rejected(index, asked, expected):
    with pytest.raises(ValueError, match=expected):
        index.search("loose.png", **asked)


def test_empty_missing_and_unreadable_queries_are_rejected(index, tmp_path):
    with pytest.raises(ValueError, match="at least one image"):
        index.search([])
    with pytest.raises(ValueError, match=r"no/such\.jpg: no such file"):
        index.search("no/such.jpg")
    (tmp_path / "a.jpg").write_text("text")
    with pytest.raises(ValueError, match=r"a\.jpg"):
        index.search(tmp_path / "a.jpg")


def test_invalid_query_vectors_are_rejected(index):
    with pytest.raises(ValueError, match=r"8 dimensions.*got 3"):
        index.search_vectors(torch.ones(1, 3))
    with pytest.raises(ValueError, match="finite"):
        index.search_vectors(torch.full((1, 8), torch.nan))
    with pytest.raises(ValueError, match="exclude"):
        index.search_vectors(torch.ones(2, 8), exclude=[1])


def test_batch_of_query_vectors(tmp_path):
    x = vectors(40, 6)
    index = Index.open(made_up(tmp_path / "a.index", x))
    hits = index.search_vectors(5 * x[:3], 2, exclude=[0, None, [2, 5]])
    assert [len(one) for one in hits] == [2, 2, 2]
    assert hits[0][0].number != 0
    assert hits[1][0].number == 1
    assert not {2, 5} & {hit.number for hit in hits[2]}
    assert index.search_vectors(x[:1], 100)[0][-1].number in range(40)
    with pytest.raises(ValueError, match="no label"):
        index.search_vectors(x[:1], label="hat")


def test_find_ignores_same_name_in_another_folder(index, tmp_path, monkeypatch):
    Image.new("RGB", (32, 32), "red").save(tmp_path / "loose.png")
    monkeypatch.chdir(tmp_path)
    assert index.find("loose.png") is None
    monkeypatch.chdir("/")
    assert index.find("loose.png") == len(index) - 1
    assert index.find(tmp_path / "photos" / "class0" / ".." / "loose.png") == len(index) - 1
    assert index.find("../secret.png") is None


def test_find_follows_a_symlink_to_the_root(index_file, photos, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(photos, target_is_directory=True)
    index = Index.open(index_file, folder=link)
    for folder in (photos, link):
        assert index.find(folder / "loose.png") == len(index) - 1


def test_open_index_is_unchanged_until_reload(index, model, photos, index_file):
    before = index.search("class1/1.png", k=50)
    assert index.reload() is index
    index.embedder()
    (photos / "class0" / "1.png").unlink()
    update_index(model, photos, index_file)
    assert index.search("class1/1.png", k=50) == before
    newer = index.reload()
    assert newer.generation != index.generation
    assert len(newer) == len(index) - 1
    assert newer.embedder() is index.embedder()  # the same model is not loaded again
    assert newer.reload() is newer


def test_missing_or_different_run(index_file, tmp_path, run_folder, photos):
    import shutil

    moved = tmp_path / "moved"
    shutil.copytree(run_folder, moved)
    file = update_index(open_model(moved), photos, tmp_path / "b.index").file
    shutil.rmtree(moved)
    index = Index.open(file)
    assert index.search("loose.png", k=1)  # nothing to embed: no model needed
    with pytest.raises(ValueError, match="--run"):
        index.embedder()
    assert index.embedder(run_folder).dim == 8
    other = Index.open(made_up(tmp_path / "c.index", vectors(4, 8)))
    with pytest.raises(ValueError, match="was made by"):
        other.embedder(run_folder)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=8), max_size=20), st.text(max_size=8))
def test_packed_texts_round_trip(words, other):
    words = sorted(set(words), key=encoded)
    texts = Texts(*pack([encoded(word) for word in words]))
    assert list(texts) == words
    assert texts[1:3] == words[1:3]
    for place, word in enumerate(words):
        assert texts.find(word) == place
    assert texts.find(other) == (words.index(other) if other in words else None)


def test_damaged_texts_and_labels_are_rejected():
    text, _ = pack([b"abc"])
    for ends in ([0, 9], [-4, 2], [2, 1]):
        with pytest.raises(ValueError, match="damaged"):
            Texts(text, np.array(ends, dtype=np.int64))[0]
    labels = Labels(Texts(*pack([b"hat", b"caf\xe9"])), np.array([1, -1, 0, 2], dtype=np.int32))
    assert labels[:3] == ["caf\udce9", None, "hat"]
    with pytest.raises(ValueError, match="damaged"):
        labels[3]


def clustered(n: int, d: int, seed: int = 0) -> torch.Tensor:
    draw = np.random.default_rng(seed)
    centers = draw.normal(size=(max(1, n // 20), d))
    x = centers[draw.integers(len(centers), size=n)] + 0.5 * draw.normal(size=(n, d))
    return torch.from_numpy((x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32))


@pytest.mark.parametrize(("n", "d", "k"), [(3000, 64, 10), (500, 33, 500), (1, 5, 1)])
def test_rounded_rows_give_exact_neighbors(n, d, k, monkeypatch):
    monkeypatch.setattr(index_module, "SIMILARITIES", 1)
    rows, x = clustered(n, d), clustered(20, d, seed=1)  # more than share a product
    x[0] = rows[n // 2]
    short = RoundedRows(rows)
    exclude = [[n // 2], [], [0], *[[]] * 16, [n - 1]]
    found, exact = short.nearest(x, k, exclude), nearest(x, rows, k, exclude=exclude)
    assert torch.equal(found.indices, exact.indices)
    assert torch.equal(found.similarities, exact.similarities)


def test_rounded_rows_are_exact_over_several_blocks():
    rows, x = clustered(70_000, 64), clustered(9, 64, seed=1)
    short = RoundedRows.of(rows)
    if short is None:
        pytest.skip("float32 is the fastest type of this machine")
    exclude = [[i] for i in range(9)]
    found, exact = short.nearest(x, 5, exclude), nearest(x, rows, 5, exclude=exclude)
    assert torch.equal(found.indices, exact.indices)
    assert torch.equal(found.similarities, exact.similarities)


def test_ties_of_rounded_rows_go_to_the_lower_number():
    rows = clustered(1, 16).repeat(5000, 1)
    short = RoundedRows(rows)
    found = short.nearest(rows[:2], 7, [[], [2]])
    assert found.indices.tolist() == [[0, 1, 2, 3, 4, 5, 6], [0, 1, 3, 4, 5, 6, 7]]


def test_negative_numbers_exclude_nothing():
    rows = clustered(50, 16)
    hidden = as_excluded(torch.tensor([-1, 3]), 2)
    found = RoundedRows(rows).nearest(rows[[49, 3]], 1, hidden)
    assert found.indices[0].item() == 49
    assert found.indices[1].item() != 3


def test_rows_with_nan_are_not_rounded():
    rows = clustered(50, 64)
    rows[3, 5] = torch.nan
    assert RoundedRows.of(rows) is None


def test_int8_is_disabled_if_it_overflows_or_is_unsupported(monkeypatch):
    fast = index_module._int8_is_fast.__wrapped__
    monkeypatch.setattr(torch, "_int_mm", lambda x, y: (x.float() @ y.float()).clamp(max=2**15 - 1))
    assert not fast(64)

    def refuse(x, y):
        raise RuntimeError("not implemented")

    monkeypatch.setattr(torch, "_int_mm", refuse)
    assert not fast(64)
