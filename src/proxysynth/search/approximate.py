"""Approximate search by FAISS: an inverted file, which looks into the nearest cells only.

The structure is kept beside the index, in `FILE.faiss`: a safetensors file with FAISS's own bytes
inside and, in its header, their SHA-256 and the generation of the index they were made from. FAISS
reads no bytes but those, and a structure of an older index is made anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.files import write_bytes
from proxysynth.search.search import SPARE, Ranked, decide, nearest_rows

if TYPE_CHECKING:
    from proxysynth.search.index import Index

KS = (1, 10, 100)
SAMPLE = 200  # pictures of the index whose neighbours are looked up both ways
ENOUGH = 0.98  # of the 10 nearest: cells are added to the search until so many are found
PER_CELL = 64  # rows that teach where a cell lies
BLOCK = 65536  # rows added at a time


@dataclass(frozen=True, eq=False)
class Approximate:
    """A FAISS structure over the rows of an index.

    Args:
        faiss: FAISS's object.
        recall: for each k, the share of the k nearest of exact search that this one finds too.
        sample: over how many queries.
        cells, probes: how many cells there are, and how many are looked into.
    """

    faiss: Any
    recall: dict[int, float]
    sample: int
    cells: int
    probes: int

    @property
    def verdict(self) -> str:
        """What is lost, for people."""
        found = ", ".join(f"recall@{k} {100 * share:.1f} %" for k, share in self.recall.items())
        return (
            f"Approximate search looks into {self.probes} of {self.cells} cells; against exact "
            f"search it finds {found} ({self.sample} pictures of the index asked)."
        )

    def nearest_rows(
        self, x: Tensor, rows: Tensor, k: int, leave_out: Sequence[Sequence[int]] | None = None
    ) -> list[Ranked]:
        """As `search.nearest_rows`, but only among the candidates that FAISS finds."""
        out: Sequence[Sequence[int]] = leave_out if leave_out is not None else [()] * len(x)
        most = k + SPARE + max((len(one) for one in out), default=0)
        found = _candidates(self.faiss, x, min(most, len(rows)), self.probes)
        made = []
        for query, numbers, left_out in zip(x, found, out, strict=True):
            kept = numbers[(numbers >= 0) & ~np.isin(numbers, np.asarray(left_out, dtype=np.int64))]
            made.append(decide(query, rows, kept, k))
        return made


def open_approximate(index: Index, say: Callable[[str], None] | None = None) -> Approximate:
    """The structure of this very index, read from beside it or made, which may take a while."""
    faiss = _faiss()
    path = index.file.with_name(f"{index.file.name}.faiss")
    read = _read(path, index.generation, faiss)
    if read is not None:
        return read
    if say is not None:
        say(f"Making the approximate search of {len(index):,} pictures, kept in {path} ...")
    made = make_approximate(index.vectors())
    data = np.asarray(faiss.serialize_index(made.faiss))
    about = {
        "generation": index.generation,
        "sha256": _sha256(data),
        "recall": list(made.recall.items()),
        "sample": made.sample,
        "cells": made.cells,
        "probes": made.probes,
    }
    told = {"approximate": json.dumps(about)}
    write_bytes(path, safetensors.numpy.save({"faiss": data}, metadata=told))
    return made


def make_approximate(rows: Tensor, seed: int = 0) -> Approximate:
    """Learn the cells, add the rows, and look into as many cells as the recall needs."""
    faiss = _faiss()
    n, d = rows.shape
    cells = int(min(65536, max(1, round(4 * n**0.5)), max(1, n // 32)))
    draw = np.random.default_rng(seed)
    made = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, cells, faiss.METRIC_INNER_PRODUCT)
    made.cp.seed = seed + 1
    made.cp.min_points_per_centroid = 1  # small indexes have few rows a cell, and say so anyway
    taught = np.sort(draw.choice(n, min(n, cells * PER_CELL), replace=False))
    made.train(_array(rows[torch.from_numpy(taught)]))
    for at in range(0, n, BLOCK):
        made.add(_array(rows[at : at + BLOCK]))
    asked = np.sort(draw.choice(n, min(n, SAMPLE), replace=False)).astype(np.int64)
    probes, recall = _measured(made, rows, asked, cells)
    return Approximate(made, recall, len(asked), cells, probes)


def _measured(
    made: Any, rows: Tensor, asked: NDArray[np.int64], cells: int
) -> tuple[int, dict[int, float]]:
    """The fewest cells that find enough of the 10 nearest, and the recall with them."""
    x = rows[torch.from_numpy(asked)].clone()
    itself = [(int(number),) for number in asked]
    most = max(KS)
    exact = nearest_rows(x, rows, most, leave_out=itself)
    probes = 1
    while True:
        recall: dict[int, float] = {}
        trial = Approximate(made, {}, len(asked), cells, probes)
        near = trial.nearest_rows(x, rows, most, itself)
        for k in KS:
            shares = [
                len(np.intersect1d(truth[:k], found[:k])) / len(truth[:k])
                for (truth, _), (found, _) in zip(exact, near, strict=True)
                if len(truth)
            ]
            recall[k] = float(np.mean(shares)) if shares else 1.0
        if recall[10] >= ENOUGH or probes == cells:
            return probes, recall
        probes = min(cells, 2 * probes)


def _candidates(faiss_index: Any, x: Tensor, k: int, probes: int) -> NDArray[np.int64]:
    # Not as an argument of the search: other libraries replace that function by one of their own
    # for all of the process, and theirs does not take it.
    if faiss_index.nprobe != probes:
        faiss_index.nprobe = probes
    numbers: NDArray[np.int64]
    _, numbers = faiss_index.search(_array(x), k)
    return numbers


def _read(path: Path, generation: str, faiss: Any) -> Approximate | None:
    """What is kept, if it is of this generation and whole."""
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = json.loads((file.metadata() or {})["approximate"])
            if about["generation"] != generation:
                return None
            data = file.get_tensor("faiss")
        if _sha256(data) != about["sha256"]:
            return None
        recall = {int(k): float(share) for k, share in about["recall"]}
        rest = {name: int(about[name]) for name in ("sample", "cells", "probes")}
        return Approximate(faiss.deserialize_index(data), recall, **rest)
    except (OSError, ValueError, KeyError, TypeError, safetensors.SafetensorError):
        return None


def _sha256(data: NDArray[np.uint8]) -> str:
    return hashlib.sha256(data.data).hexdigest()


def _array(x: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(x.numpy(), dtype=np.float32)


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as error:
        raise ValueError(
            "approximate search needs FAISS: pip install 'proxysynth[faiss]', or leave out "
            "--approximate for exact search"
        ) from error
    return faiss
