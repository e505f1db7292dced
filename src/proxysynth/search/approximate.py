"""Approximate search with FAISS: an inverted file, of which only the nearest cells are searched.

It is kept next to the index, in `FILE.faiss`: a safetensors file with the serialized FAISS index
and, in its header, its SHA-256 and the generation of our index. FAISS reads only bytes that
match, and the file is rebuilt when the index has changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from proxysynth.errors import TrainingFailed, import_optional
from proxysynth.retrieval.knn import Neighbors, nearest, top
from proxysynth.tensor_files import read_tensors, write_tensors

if TYPE_CHECKING:
    from proxysynth.search.index import Index

KS = (1, 10)
SPARE = 16  # candidates beyond k, because FAISS computes in float32
SAMPLE = 200  # images of the index that are searched both ways
ENOUGH = 0.98  # recall@10: the number of cells searched is doubled until it is reached
PER_CELL = 64  # training rows per cell


@dataclass(frozen=True, eq=False)
class Approximate:
    """A FAISS index over the rows of an index, of whose cells the nearest `probes` are searched.

    `recall` is, for each k, the share of the exact k nearest that are found.
    """

    faiss: Any
    recall: dict[int, float]
    cells: int
    probes: int

    @property
    def verdict(self) -> str:
        found = ", ".join(f"recall@{k} {100 * share:.1f}%" for k, share in self.recall.items())
        return (
            f"Approximate search visits {self.probes} of {self.cells} cells; compared with exact "
            f"search: {found} (images of the index as queries)."
        )

    def nearest(
        self, x: Tensor, rows: Tensor, k: int, exclude: Sequence[Sequence[int]]
    ) -> Neighbors:
        """The k nearest rows among the candidates of FAISS, by cosines in float64."""
        most = k + SPARE + max((len(one) for one in exclude), default=0)
        # Not as an argument of the search: other libraries replace that function for the whole
        # process (faiss.contrib.torch_utils), and theirs does not take it.
        self.faiss.nprobe = self.probes
        _, found = self.faiss.search(x.numpy(), min(most, len(rows)))
        kept = [
            np.sort(numbers[(numbers >= 0) & ~np.isin(numbers, np.array(hidden, dtype=np.int64))])
            for numbers, hidden in zip(found, exclude, strict=True)
        ]
        row = torch.arange(len(x)).repeat_interleave(torch.tensor([len(one) for one in kept]))
        return top(x, rows, row, torch.from_numpy(np.concatenate(kept)), k)


def open_approximate(index: Index, say: Callable[[str], None] | None = None) -> Approximate:
    """The structure of this index, read from the file next to it, or built."""
    faiss = _faiss()
    path = index.file.with_name(f"{index.file.name}.faiss")
    if path.exists():
        with suppress(TrainingFailed, ValueError, KeyError, TypeError):  # damaged, or of others
            tensors, about = read_tensors(path)
            data = tensors["faiss"].numpy()
            if about["made_of"] == [index.generation, hashlib.sha256(data.data).hexdigest()]:
                recall = {int(k): share for k, share in about["recall"].items()}
                return Approximate(faiss.deserialize_index(data), recall, **about["cells"])
    if say is not None:
        say(f"Building the approximate search of {len(index):,} images in {path} ...")
    made = make_approximate(index.vectors())
    data = faiss.serialize_index(made.faiss)
    about = {
        "made_of": [index.generation, hashlib.sha256(data.data).hexdigest()],
        "recall": made.recall,
        "cells": {"cells": made.cells, "probes": made.probes},
    }
    write_tensors(path, {"faiss": torch.from_numpy(data)}, about)
    return made


def make_approximate(rows: Tensor) -> Approximate:
    """Train the cells, add the rows, and choose how many cells to search."""
    faiss = _faiss()
    n, d = rows.shape
    cells = int(min(65536, max(1, round(4 * n**0.5)), max(1, n // 32)))
    draw = np.random.default_rng(0)
    made = faiss.IndexIVFFlat(faiss.IndexFlatIP(d), d, cells, faiss.METRIC_INNER_PRODUCT)
    made.cp.seed = 1
    made.cp.min_points_per_centroid = 1  # no warning for small indexes
    chosen = np.sort(draw.choice(n, min(n, cells * PER_CELL), replace=False))
    made.train(rows[torch.from_numpy(chosen)].numpy())
    made.add(rows.numpy())

    # Double the number of cells searched until the recall is reached.
    asked = torch.from_numpy(np.sort(draw.choice(n, min(n, SAMPLE), replace=False)))
    x, itself, most = rows[asked].clone(), asked[:, None].tolist(), min(max(KS), n)
    exact = nearest(x, rows, most, exclude=itself).indices
    probes = 1
    while True:
        trial = Approximate(made, {}, cells, probes)
        near = trial.nearest(x, rows, most, itself).indices
        for k in KS:
            found = (exact[:, :k, None] == near[:, None, :k]).any(dim=2)
            trial.recall[k] = float(found.double().mean())
        if trial.recall[10] >= ENOUGH or probes == cells:
            return trial
        probes = min(cells, 2 * probes)


def _faiss() -> Any:
    without = "drop --approximate for exact search"
    return import_optional("faiss", "faiss", "approximate search", without)
