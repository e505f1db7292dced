"""Search in large indexes: our exact search over the number of items, and what to grow into.

Exact search is measured as the service uses it, with the index in memory: one query alone, and
batches of eight. At the largest size, LanceDB (IVF-PQ on disk, filled from the exported Parquet
table) is compared with it: time of a query, and recall@10 against exact search. Needs
`pip install lancedb`.

The files of a million items take minutes to write and to index, which need no idle machine:

    python -m benchmarks.growth prepare FOLDER
    python -m benchmarks.growth measure FOLDER      # prints and saves the tables
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from proxysynth.search.export import export
from proxysynth.search.index import Index
from proxysynth.search.index_file import write_index
from proxysynth.search.model import ModelIdentity

K = 10
BATCH = 8  # queries that the service answers together, with eight clients


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Args:
        items: sizes of the exact search, ascending; the last is also the size of the others.
        dimensions: of the embeddings.
        latent: dimensions in which the synthetic embeddings mostly vary, like real ones.
        queries: for the recall.
        probes: partitions of LanceDB that a query searches.
        refine: for each hit, candidates that LanceDB ranks by their full vectors.
    """

    items: tuple[int, ...] = (10_000, 50_000, 100_000, 200_000, 500_000, 1_000_000)
    dimensions: int = 512
    latent: int = 64
    queries: int = 200
    probes: tuple[int, ...] = (20, 100, 300)
    refine: int = 20


QUICK = Size((1_000, 20_000), 32, 8, queries=20, probes=(5,))


def run(quick: bool = False) -> list[dict[str, Any]]:
    """Rows of both tables: "exact" and "larger"."""
    size = QUICK if quick else Size()
    with tempfile.TemporaryDirectory() as place:
        prepare(Path(place), size)
        return measure(Path(place), size)


def vectors(size: Size, n: int, seed: int) -> Iterator[NDArray[np.float32]]:
    """n unit vectors in blocks: classes of twenty in a space of few dimensions, and some noise."""
    into = np.random.default_rng(0).normal(size=(size.latent, size.dimensions)).astype(np.float32)
    for at in range(0, n, 20_000):
        draw = np.random.default_rng([seed, at])
        shape = (min(20_000, n - at), size.latent)
        # Queries have another seed, but classes of the same centers.
        centers = np.random.default_rng([7, at]).normal(size=(1_000, size.latent))
        z = centers[np.arange(shape[0]) // 20 % 1_000] + 0.7 * draw.normal(size=shape)
        x = z.astype(np.float32) @ into
        x += draw.normal(size=x.shape).astype(np.float32)
        yield (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def prepare(folder: Path, size: Size) -> None:
    """Write the indexes, the exported table, and the structures of the approximate searches."""
    folder.mkdir(parents=True, exist_ok=True)
    model = ModelIdentity(
        None, None, 0, "none", size.dimensions, "imagenet", 256, 224, 256, "0" * 16
    )
    for n in size.items:
        paths, stamps = [f"{i:08d}.jpg" for i in range(n)], np.zeros((n, 2), dtype=np.int64)
        write_index(_file(folder, n), model, folder, paths, [None] * n, stamps,
                    chain.from_iterable(vectors(size, n, 1)))  # fmt: skip
    largest, costs = size.items[-1], dict[str, float]()
    with _cpu(costs, "export"):
        export(Index.open(_file(folder, largest)), "parquet", folder / "items.parquet")
    with _cpu(costs, "lancedb"):
        _build_lancedb(folder, largest)
    (folder / "costs.json").write_text(json.dumps(costs))


def _build_lancedb(folder: Path, n: int) -> None:
    import lancedb
    import pyarrow.parquet as parquet
    from lancedb.index import IvfPq

    source = parquet.ParquetFile(folder / "items.parquet")
    table = lancedb.connect(folder / "lance").create_table("items", schema=source.schema_arrow)
    for batch in source.iter_batches(batch_size=50_000):
        table.add(batch)
    dim = source.schema_arrow.field("vector").type.list_size
    table.create_index(
        "vector",
        config=IvfPq(
            distance_type="cosine",
            num_partitions=max(1, round(n**0.5)),
            num_sub_vectors=max(1, dim // 8),
        ),
    )


def measure(folder: Path, size: Size) -> list[dict[str, Any]]:
    """Time the searches over prepared files."""
    rows = [_exact(Index.open(_file(folder, n), in_memory=True), size) for n in size.items]
    largest = Index.open(_file(folder, size.items[-1]), in_memory=True)
    x = _queries(size, largest)
    truth = [[hit.number for hit in hits] for hits in largest.search_vectors(x, K)]
    costs = json.loads((folder / "costs.json").read_text())
    common = {"table": "larger", "items": len(largest), "dimensions": largest.dim}
    ours = rows[-1]
    rows.append(common | {"search": "exact, in memory", "query_ms": ours["query_ms"],
                          "recall_at_10": 1.0, "gigabytes": ours["gigabytes"]})  # fmt: skip
    import lancedb

    table = lancedb.connect(folder / "lance").open_table("items")
    for probes in size.probes:

        def found(q: NDArray[np.float32], probes: int = probes) -> list[int]:
            query: Any = table.search(q)
            search = query.distance_type("cosine").nprobes(probes).refine_factor(size.refine)
            ids = search.limit(K).select(["id", "_distance"]).to_arrow()["id"]
            return [int(number) for number in ids.to_pylist()]

        near, ms = _each(found, x)
        rows.append(common | {
            "search": f"LanceDB IVF-PQ, on disk ({probes} of {round(len(largest) ** 0.5)} "
            f"partitions, refine {size.refine})",
            "query_ms": ms, "recall_at_10": _recall(truth, near),
            "export_cpu_seconds": costs["export"], "build_cpu_seconds": costs["lancedb"],
            "gigabytes": _bytes(folder / "lance") / 1e9,
        })  # fmt: skip
    return rows


def _exact(index: Index, size: Size) -> dict[str, Any]:
    x = _queries(size, index)[:40]
    _, alone = _each(lambda q: index.search_vectors(q[None], K), x)
    batches = [x[at : at + BATCH] for at in range(0, len(x), BATCH)]
    _, together = _each(lambda q: index.search_vectors(q, K), batches)
    return {
        "table": "exact",
        "items": len(index),
        "dimensions": index.dim,
        "query_ms": alone,
        "batch": BATCH,
        "batch_ms": together,
        "queries_per_second": BATCH / together * 1000,
        "gigabytes": 4 * len(index) * index.dim / 1e9,
    }


def _queries(size: Size, index: Index) -> NDArray[np.float32]:
    """New members of classes that are in the index."""
    first = next(vectors(size, min(len(index), 20_000), 2))
    return first[np.linspace(0, len(first) - 1, size.queries).astype(int)]


def _each(search: Callable[[Any], Any], queries: Any) -> tuple[list[Any], float]:
    """The result of each query, and the median time in milliseconds, after a warm-up."""
    for query in queries[:3]:
        search(query)
    results, times = [], []
    for query in queries:
        begun = time.perf_counter()
        results.append(search(query))
        times.append(time.perf_counter() - begun)
    return results, 1000 * float(np.median(times))


def _recall(truth: list[list[int]], near: list[list[int]]) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(a) for a, b in zip(truth, near, strict=True)]))


@contextmanager
def _cpu(costs: dict[str, float], name: str) -> Iterator[None]:
    """Processor time of all threads, which other programs hardly change."""
    begun = time.process_time()
    yield
    costs[name] = time.process_time() - begun


def _file(folder: Path, n: int) -> Path:
    return folder / f"{n}.index"


def _bytes(path: Path) -> int:
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file()]
    return sum(one.stat().st_size for one in files)


if __name__ == "__main__":
    from rich.console import Console

    from benchmarks import save, show

    torch.set_grad_enabled(False)
    task, place = sys.argv[1], Path(sys.argv[2])
    if task == "prepare":
        prepare(place, Size())
    else:
        found = [{"bench": "growth", **row} for row in measure(place, Size())]
        show(found, Console())
        save(found, place)
