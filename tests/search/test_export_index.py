"""An exported index, read back by the programs it is exported for.

Each of them must hold the same items, and find the ten nearest neighbors that our search finds.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import proxysynth as ps
from proxysynth.search.index_file import write_index
from proxysynth.search.model import ModelIdentity

ITEMS, DIM, QUERIES, K = 1000, 24, 50, 10


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Random embeddings; one file name is not UTF-8, and some items have no label."""
    folder = tmp_path_factory.mktemp("index")
    x = np.random.default_rng(0).normal(size=(ITEMS, DIM))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    names = [f"{i:05d}.jpg" for i in range(ITEMS - 1)] + ["9\udcff.jpg"]
    labels = [None if i % 7 == 0 else f"class{i % 13}" for i in range(ITEMS)]
    model = ModelIdentity(None, None, 0, "none", DIM, "imagenet", 256, 224, 256, "0" * 16)
    stamps = np.zeros((ITEMS, 2), dtype=np.int64)
    write_index(folder / "x.index", model, folder, names, labels, stamps, x.astype(np.float32))
    return ps.Index.open(folder / "x.index")


@pytest.fixture(scope="module")
def queries():
    return np.random.default_rng(1).normal(size=(QUERIES, DIM)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(index, queries):
    """The item numbers that our exact search finds, (queries, k)."""
    return [[hit.number for hit in hits] for hits in index.search_vectors(queries, k=K)]


@pytest.fixture(scope="module")
def table(index, tmp_path_factory):
    parquet = pytest.importorskip("pyarrow.parquet")
    file = tmp_path_factory.mktemp("parquet") / "x.parquet"
    made = ps.export(index, "parquet", file)
    assert made.about["columns"] == ["id", "path", "label", "vector"]
    return parquet.read_table(file)


def test_parquet_export(index, table, queries, expected) -> None:
    import pyarrow

    assert table.schema.field("vector").type == pyarrow.list_(pyarrow.float32(), DIM)
    assert table["id"].to_pylist() == list(range(ITEMS))
    assert table["path"].to_pylist() == [*index.paths[:-1], "9\\udcff.jpg"]
    assert table["label"].to_pylist() == index.labels[:]
    x = table["vector"].combine_chunks().flatten().to_numpy().reshape(ITEMS, DIM)
    np.testing.assert_array_equal(x, index.vectors().numpy())
    order = np.argsort(-(queries.astype(np.float64) @ x.T), axis=1)[:, :K]
    assert order.tolist() == expected


def test_npy_export(index, queries, expected, tmp_path) -> None:
    made = ps.export(index, "npy", tmp_path / "x.npy")
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert made.about["shape"] == [ITEMS, DIM]
    np.testing.assert_array_equal(x, index.vectors().numpy())
    lines = (tmp_path / "x.npy.jsonl").read_text().splitlines()
    items = [json.loads(line) for line in lines]
    assert [item["id"] for item in items] == list(range(ITEMS))
    assert [item["label"] for item in items] == index.labels[:]
    assert items[3]["path"] == index.paths[3]
    order = np.argsort(-(queries.astype(np.float64) @ x.T), axis=1)[:, :K]
    assert order.tolist() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.npy.jsonl"]


def test_faiss_export(index, queries, expected, tmp_path) -> None:
    faiss = pytest.importorskip("faiss")
    ps.export(index, "faiss", tmp_path / "x.faiss")
    opened = faiss.read_index(str(tmp_path / "x.faiss"))
    assert opened.ntotal == ITEMS
    _, found = opened.search(queries, K)
    assert found.tolist() == expected


def test_lancedb_import(table, queries, expected, tmp_path) -> None:
    lancedb = pytest.importorskip("lancedb")
    made = lancedb.connect(tmp_path).create_table("shop", data=table)
    assert made.count_rows() == ITEMS
    assert made.to_arrow()["id"].to_pylist() == table["id"].to_pylist()
    found = [
        made.search(query).distance_type("cosine").limit(K).to_arrow()["id"].to_pylist()
        for query in queries
    ]
    assert found == expected


def test_qdrant_import(table, queries, expected) -> None:
    qdrant = pytest.importorskip("qdrant_client")
    models = qdrant.models
    client = qdrant.QdrantClient(":memory:")  # a cluster: QdrantClient(url=...)
    size = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
    client.create_collection("shop", vectors_config=size)
    for batch in table.to_batches(max_chunksize=256):
        points = [
            models.PointStruct(id=row.pop("id"), vector=row.pop("vector"), payload=row)
            for row in batch.to_pylist()
        ]
        client.upsert("shop", points)
    assert client.count("shop").count == ITEMS
    points, _ = client.scroll("shop", limit=ITEMS)
    assert [point.id for point in points] == list(range(ITEMS))
    assert [point.payload["label"] for point in points] == table["label"].to_pylist()
    found = [
        [point.id for point in client.query_points("shop", query=query, limit=K).points]
        for query in queries.tolist()
    ]
    assert found == expected


def test_model_format_is_rejected_for_an_index(index, tmp_path) -> None:
    with pytest.raises(ValueError, match="onnx"):
        ps.export(index, "onnx", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
