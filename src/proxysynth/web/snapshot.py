"""An index as the service sees it, at one moment: what is asked of it, and what it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from proxysynth.retrieval.similarity import unit
from proxysynth.search.index import Hit, Index
from proxysynth.training.run_folder import find_run

from .coarse import Coarse, coarse
from .layout import METHOD, layout
from .projection import evenly

REPORT = "report.html"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """An open index and what follows from it. It stays as it is when the file is replaced.

    Args:
        index: the index.
        folder: of the run that made it; None where there is no run.
        seen: the classes that its model was trained on; None where that is not known.
        coarse: its rows in few bits, where that makes a search faster.
    """

    index: Index
    folder: Path | None = None
    seen: frozenset[str] | None = None
    coarse: Coarse | None = None

    @property
    def generation(self) -> str:
        """Names this writing of the index; items have their numbers in it alone."""
        return self.index.generation

    @property
    def report(self) -> Path | None:
        """The report that the run has left, where there is one."""
        path = None if self.folder is None else self.folder / REPORT
        # A link might lead anywhere.
        return path if path is not None and path.is_file() and not path.is_symlink() else None

    @cached_property
    def names(self) -> list[str]:
        """Every label once."""
        return list(self.index.label_names)

    @cached_property
    def seen_codes(self) -> NDArray[np.bool_]:
        """Whether each of `names` is a class the model was trained on."""
        return np.array([name in (self.seen or ()) for name in self.names], dtype=bool)

    def was_seen(self, label: str | None) -> bool | None:
        """Whether the model was trained on the label; None where that cannot be said."""
        return None if self.seen is None or label is None else label in self.seen

    def nearest(
        self, x: Tensor, k: int, label: str | None, leave_out: Sequence[int | None]
    ) -> list[list[Hit]]:
        """The k nearest of each vector, as `Index.search_vectors` finds them."""
        if label is not None and label not in self.names:
            return [[] for _ in x]
        if self.coarse is None:
            return self.index.search_vectors(x, k, label=label, leave_out=leave_out)
        codes = self.index.labels.codes
        among = None
        if label is not None:
            among = np.flatnonzero(codes == self.names.index(label)).astype(np.int64)
        found = self.coarse.nearest(unit(x.clone()), k, among, leave_out)
        return [
            [self.index.hit(number, cosine) for number, cosine in zip(*one, strict=True)]
            for one in found
        ]

    def item(self, number: int) -> dict[str, Any]:
        """What there is to say of an item."""
        label = self.index.labels[number]
        told = {"id": number, "path": self.index.paths[number], "label": label}
        return {**told, "seen": self.was_seen(label)}

    @cached_property
    def labels(self) -> list[dict[str, Any]]:
        """Every label with how many items have it."""
        codes = self.index.labels.codes
        counts = np.bincount(codes[codes >= 0], minlength=len(self.names))
        return [
            {"label": name, "count": int(count), "seen": self.was_seen(name)}
            for name, count in zip(self.names, counts, strict=False)
        ]

    def numbers(self, label: str | None, most: int) -> Sequence[int]:
        """At most so many items, evenly spread, of a label or of all."""
        if label is None:
            return evenly(len(self.index), most).tolist()
        if label not in self.names:
            return []
        found = np.flatnonzero(self.index.labels.codes == self.names.index(label))
        return found[evenly(len(found), most)].tolist()

    def map(self, most: int) -> dict[str, Any]:
        """Places of at most so many items on the map, column by column."""
        chosen = evenly(len(self.index), most)
        rows = self.index.vectors()
        x = (rows.clone() if len(chosen) == len(rows) else rows[chosen]).numpy()
        places = layout(x).round(4)
        codes = np.asarray(self.index.labels.codes)[chosen]
        unknown = self.seen is None or not len(self.names)
        seen = [
            None if unknown or code < 0 else bool(self.seen_codes[code]) for code in codes.tolist()
        ]
        return {
            "generation": self.generation,
            "items": len(self.index),
            "method": METHOD,
            "id": chosen.tolist(),
            "x": [float(value) for value in places[:, 0]],
            "y": [float(value) for value in places[:, 1]],
            "label": codes.tolist(),
            "labels": self.names,
            "seen": seen,
        }


def snapshot(index: Index, moved: str | os.PathLike[str] | None = None) -> Snapshot:
    """The index with the classes its model has seen, if its run is still there to say so.

    Args:
        moved: where the run is now, if not where it was.
    """
    folder = moved if moved is not None else index.model.folder
    try:
        run = None if folder is None else find_run(Path(folder))
    except (ValueError, OSError, RuntimeError):  # a report of what is seen is not worth a failure
        run = None
    known = None if run is None else frozenset(run.classes)
    return Snapshot(index, None if folder is None else Path(folder), known, coarse(index.vectors()))
