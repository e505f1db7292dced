"""`evaluate` against its peers on one thread, with few and with many images per class.

The peers: a blocked `topk`, faiss with the same metrics, pytorch-metric-learning's
AccuracyCalculator, and the bare matrix product for reference. They run alternately, after a check
that their results agree.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import Row
from benchmarks.timing import alternate, in_own_process, peak, reset_peak, threads
from proxysynth.retrieval import evaluate

KS = (1, 2, 4, 8)
SIZES = tuple((10_000, d, per_class) for d in (128, 512) for per_class in (5, 60, 1_000))
"""Images, dimensions, images per class."""
ALONE = (60_502, 512, 5)
"""The size of Stanford Online Products' test half, for memory."""

QUICK_SIZES = ((1_500, 64, 5), (1_500, 64, 60))
QUICK_ALONE = (4_000, 64, 5)
TOLERANCE = 1e-3
"""Peers round differently, so near ties may be ordered differently; nothing more may differ."""

Measures = dict[str, float]


def run(quick: bool = False) -> list[Row]:
    """One row per method and size, then one of `evaluate` alone at a large size with its memory.

    Each row has `method`, `pictures`, `dimensions`, `per_class`, `seconds` (median of the repeats),
    `times_ours` (median over the repeats of its seconds divided by ours in the same repeat), the
    repeats and the metrics it found. The last has `extra_megabytes`, the peak memory above what was
    resident when `evaluate` was called, measured in a separate process.
    """
    rows = []
    for n, d, per_class in QUICK_SIZES if quick else SIZES:
        rows += compare(n, d, per_class, repeats=3 if quick else 5)
    return [*rows, alone(*(QUICK_ALONE if quick else ALONE))]


def compare(n: int, d: int, per_class: int, repeats: int = 5) -> list[Row]:
    """Rows of all methods at one size, on one thread."""
    x, y = clustered(n, d, per_class)
    methods: dict[str, Callable[[Tensor, Tensor], Measures]] = {
        "proxysynth": ours,
        "bare product": bare_product,
        "blocked topk": blocked_topk,
        "faiss flat": faiss_flat,
        "AccuracyCalculator": accuracy_calculator,
    }
    with threads(1):
        found = {name: method(x, y) for name, method in methods.items()}  # also warms up
        for name, measures in found.items():
            agree(name, measures, found["proxysynth"])
        sides = {name: lambda _, method=method: method(x, y) for name, method in methods.items()}
        seconds = alternate(sides, range(repeats))
    return [
        {
            "method": name,
            "pictures": n,
            "dimensions": d,
            "per_class": per_class,
            "seconds": statistics.median(taken),
            "times_ours": statistics.median(
                theirs / mine for theirs, mine in zip(taken, seconds["proxysynth"], strict=True)
            ),
            "repeats": repeats,
            "threads": 1,
            **found[name],
        }
        for name, taken in seconds.items()
    ]


def agree(name: str, measures: Measures, expected: Measures) -> None:
    """Raise RuntimeError if two methods disagree: comparing their speed would be meaningless."""
    for key, value in measures.items():
        if abs(value - expected[key]) > TOLERANCE:
            raise RuntimeError(f"{name} gives {key} {value:.6f}, proxysynth {expected[key]:.6f}")


def clustered(n: int, d: int, per_class: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Unit embeddings of overlapping classes, in random order, with their labels.

    The spread grows with d as the distances between random centers do, so that neighboring classes
    mix: at 10,000 x 512 with five per class, four in five queries find their class first.
    """
    generator = torch.Generator().manual_seed(seed)
    y = torch.randperm(n, generator=generator) // per_class
    centers = torch.randn(int(y.max()) + 1, d, generator=generator)
    x = torch.randn(n, d, generator=generator).mul_(0.48 * d**0.25).add_(centers[y])
    return torch.nn.functional.normalize(x, dim=1), y


def ours(x: Tensor, y: Tensor) -> Measures:
    measures = evaluate(x, y, ks=KS)
    return {key: value for key, value in measures.items() if not key.startswith("queries")}


def bare_product(x: Tensor, y: Tensor, block: int = 1_000) -> Measures:
    """All similarities, a block of rows at a time, and nothing else."""
    S = x.new_empty(block, len(x))
    for rows in x.split(block):
        torch.mm(rows, x.T, out=S[: len(rows)])
    return {}


def blocked_topk(x: Tensor, y: Tensor, block: int = 500) -> Measures:
    """As one would write it in plain torch: the R nearest of each query, in blocks of rows."""
    R = torch.bincount(y)[y] - 1
    k = max(int(R.max()), max(KS))
    place = torch.arange(1, k + 1)
    found = []
    for at in range(0, len(x), block):
        rows = slice(at, at + block)
        S = x[rows] @ x.T
        S.diagonal(at).fill_(-torch.inf)
        right = y[S.topk(k, dim=1).indices] == y[rows, None]
        top = right & (place <= R[rows, None])
        precision = (top.cumsum(1) / place).mul_(top).sum(1) / R[rows]
        recall = [right[:, :n].any(1).double() for n in KS]
        found.append(torch.stack([*recall, top.sum(1) / R[rows].double(), precision.double()], 1))
    *recall, r_precision, average = torch.cat(found).mean(0).tolist()
    measures = {f"recall@{n}": value for n, value in zip(KS, recall, strict=True)}
    return {**measures, "precision@1": recall[0], "r_precision": r_precision, "map@r": average}


def faiss_flat(x: Tensor, y: Tensor) -> Measures:
    """The nearest of an exact index, the query among them, and the metrics from these."""
    faiss = _peer("faiss")
    faiss.omp_set_num_threads(torch.get_num_threads())
    index = faiss.IndexFlatIP(x.shape[1])
    index.add(x.numpy())
    k = max(int(torch.bincount(y).max()), max(KS) + 1)
    _, neighbour = index.search(x.numpy(), min(k, len(x)))
    return measures_of_neighbours(neighbour, y.numpy())


def measures_of_neighbours(
    neighbour: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]
) -> Measures:
    """The metrics from (n, k) neighbors, nearest first, with the queries themselves among them.

    k must exceed the number of positives of any query; every query must have one.
    """
    n = len(labels)
    itself = neighbour == np.arange(n)[:, None]
    itself[~itself.any(1), -1] = True  # crowded out by copies: drop the last instead
    right = labels[neighbour[~itself].reshape(n, -1)] == labels[:, None]
    positives = np.bincount(labels)[labels] - 1
    top = right[:, : positives.max()] & (np.arange(positives.max()) < positives[:, None])
    precision = top.cumsum(1) / np.arange(1, positives.max() + 1)
    first = np.where(right.any(1), right.argmax(1), max(KS))
    return {
        **{f"recall@{k}": float((first < k).mean()) for k in KS},
        "precision@1": float((first < 1).mean()),
        "r_precision": float((top.sum(1) / positives).mean()),
        "map@r": float(((precision * top).sum(1) / positives).mean()),
    }


def accuracy_calculator(x: Tensor, y: Tensor) -> Measures:
    include = ("precision_at_1", "r_precision", "mean_average_precision_at_r")
    tester = _peer("pytorch_metric_learning.utils.accuracy_calculator")
    found = tester.AccuracyCalculator(include=include, k="max_bin_count").get_accuracy(x, y)
    return dict(
        zip(("precision@1", "r_precision", "map@r"), map(found.__getitem__, include), strict=True)
    )


def alone(n: int, d: int, per_class: int) -> Row:
    """Time and memory of `evaluate` in a separate process."""
    x, y = clustered(n, d, per_class)
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "x.npy", x.numpy())
        np.save(Path(folder) / "y.npy", y.numpy())
        found = in_own_process("neighbours", folder)
    size = {"pictures": n, "dimensions": d, "per_class": per_class}
    return {"method": "proxysynth, alone", **size, **found}


def measure_memory(folder: str) -> None:
    """Print, as JSON, time and memory of one `evaluate` of x.npy and y.npy in the folder."""
    x, y = np.load(Path(folder) / "x.npy"), np.load(Path(folder) / "y.npy")
    evaluate(x[:500], y[:500], ks=KS)  # the first call loads libraries
    before, start = reset_peak(), time.perf_counter()
    measures = ours(torch.from_numpy(x), torch.from_numpy(y))
    seconds = time.perf_counter() - start
    report = {"seconds": seconds, "threads": torch.get_num_threads()}
    print(json.dumps({**report, "extra_megabytes": peak() - before, **measures}))


def _peer(module: str) -> Any:
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as error:
        raise ValueError(
            f"bench neighbours compares with {module.partition('.')[0]}, which is not installed: "
            "pip install 'proxysynth[bench]'"
        ) from error


if __name__ == "__main__":
    measure_memory(sys.argv[1])
