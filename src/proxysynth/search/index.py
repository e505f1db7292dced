"""An index: the embeddings of a folder of pictures, and who is nearest to whom."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from proxysynth.retrieval.similarity import Array, as_embeddings, as_matrix, is_integer, unit
from proxysynth.search.describe_model import (
    ModelIdentity,
    PictureEmbedder,
    Source,
    open_model,
    several,
)
from proxysynth.search.index_file import Mapped, NotAnIndex, file_stamp, map_index
from proxysynth.search.search import nearest_rows
from proxysynth.search.texts import Labels, Texts

if TYPE_CHECKING:
    from proxysynth.search.approximate import Approximate

LeaveOut = int | Sequence[int] | None


@dataclass(frozen=True)
class Hit:
    """A picture that was found.

    Args:
        number: its place in the index.
        path: under the index's root.
        label: None where none is known.
        similarity: cosine, in [-1, 1].
    """

    number: int
    path: str
    label: str | None
    similarity: float


class Index:
    """Embeddings, paths and labels, mapped from a file: opening it reads next to nothing.

    What is open stays as it was when another process replaces the file; `reload` gives the new one.

    Attributes:
        file: where it is.
        root: the folder of the pictures.
        paths: of the items, under `root`, sorted; read when asked for.
        labels: of the items, None where none is known.
        label_names: every label once.
        model: what made the embeddings.
        generation: a text that differs for every writing of the file.
    """

    def __init__(self, file: Path, mapped: Mapped) -> None:
        told, parts = mapped.about, mapped.parts
        try:
            self.model = ModelIdentity.from_json(told["model"])
            self.root = Path(told["root"])
            self.generation = str(told["generation"])
        except (KeyError, TypeError, ValueError) as error:
            raise NotAnIndex(
                f"the index {file} does not say which model made it: index the folder again with "
                "--rebuild"
            ) from error
        self.file = file
        self.label_names = Texts(parts["label_text"], parts["label_ends"])
        self.paths = Texts(parts["path_text"], parts["path_ends"])
        self.labels = Labels(self.label_names, parts["label_codes"])
        self.stamps = parts["stamps"]
        self._rows = as_matrix(parts["embeddings"], "embeddings")
        self._stamp = mapped.stamp
        self._embedder: PictureEmbedder | None = None
        self._approximate: Approximate | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Index:
        """Open the file of an index."""
        file = Path(path).expanduser()
        return cls(file, map_index(file))

    def reload(self) -> Index:
        """The index that has taken this one's place in the file; itself where none has."""
        if file_stamp(self.file) == self._stamp:
            return self
        newer = Index.open(self.file)
        if self._embedder is not None and newer.model.same_as(self.model):
            newer._embedder = self._embedder
        return newer

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def items(self) -> int:
        return len(self)

    @property
    def dim(self) -> int:
        return self._rows.shape[1]

    def __repr__(self) -> str:
        return f"Index({self.file}: {len(self):,} pictures of {self.root}, by {self.model.name})"

    def path(self, number: int) -> Path:
        """The file of an item."""
        return self.root / self.paths[number]

    def hit(self, number: int, similarity: float = 1.0) -> Hit:
        """An item as a hit."""
        return Hit(int(number), self.paths[number], self.labels[number], float(similarity))

    def vectors(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Embeddings of items start to stop, (stop - start, d) float32; mapped, not to be
        changed."""
        return self._rows[start:stop]

    def find(self, path: str | os.PathLike[str]) -> int | None:
        """The number of a picture by its path: a file's own, or the one under the root."""
        asked = os.fspath(path)
        for full in (os.path.abspath(os.path.expanduser(asked)), os.path.realpath(asked)):
            if full.startswith(os.path.join(self.root, "")):
                under = os.path.relpath(full, self.root).replace(os.sep, "/")
                if (number := self.paths.find(under)) is not None:
                    return number
        if os.path.exists(asked):  # another picture that happens to have such a name
            return None
        return self.paths.find(asked.replace(os.sep, "/"))

    def embedder(
        self, run: str | os.PathLike[str] | None = None, device: str | None = None
    ) -> PictureEmbedder:
        """The model that made the index, loaded at the first call.

        Args:
            run: where the run is now, if its folder was moved.
            device: see `Resources`.
        """
        if self._embedder is None:
            place = run if run is not None else self.model.folder or self.model.backbone
            if self.model.folder and run is None and not os.path.isdir(place):
                raise ValueError(
                    f"{self.model.name}, which made the index {self.file}, is gone: put it back, "
                    "or say with --run where it is now"
                )
            made = open_model(place, device)
            if not made.identity.same_as(self.model):
                raise ValueError(
                    f"the index {self.file} was made by another model than {made.identity.name} "
                    f"is now (weights {self.model.weights} there, {made.identity.weights} here): "
                    "index the folder again with --rebuild"
                )
            self._embedder = made
        return self._embedder

    def approximate(self, say: Callable[[str], None] | None = None) -> Approximate:
        """The FAISS structure of this index, made or read at the first call."""
        if self._approximate is None:
            from proxysynth.search.approximate import open_approximate

            self._approximate = open_approximate(self, say)
        return self._approximate

    def search(
        self,
        query: Source | Iterable[Source],
        k: int = 10,
        *,
        threshold: float | None = None,
        label: str | None = None,
        approximate: bool = False,
    ) -> list[Hit]:
        """The pictures most like the query, the most similar first.

        Args:
            query: a path, an opened file, a Pillow image or an array; several of them are searched
                by their mean. A path that is in the index is not embedded again, and is not found.
            k: how many.
            threshold: of the similarity; hits below it are left out.
            label: only pictures of this label.
            approximate: by FAISS instead, which may miss some; a search within a label is exact.
        """
        pictures = list(several(query))
        if not pictures:
            raise ValueError("a search needs at least one picture, got none")
        vectors, known = self.query_vectors(pictures)
        mean = vectors.mean(dim=0, keepdim=True)
        return self.search_vectors(
            mean, k, threshold=threshold, label=label, leave_out=[known], approximate=approximate
        )[0]

    def query_vectors(self, pictures: Sequence[Source]) -> tuple[Tensor, list[int]]:
        """Embeddings (n, d) of pictures, and the numbers of those that are in the index."""
        paths = [p if isinstance(p, (str, os.PathLike)) else None for p in pictures]
        numbers = [None if path is None else self.find(path) for path in paths]
        made = torch.empty(len(pictures), self.dim)
        for place, number in enumerate(numbers):
            if number is not None:
                made[place] = self._rows[number]
        others = [place for place, number in enumerate(numbers) if number is None]
        if others:
            made[others] = self.embedder().embed([pictures[place] for place in others])
        return made, [number for number in numbers if number is not None]

    def search_vectors(
        self,
        vectors: Array,
        k: int = 10,
        *,
        threshold: float | None = None,
        label: str | None = None,
        leave_out: Sequence[LeaveOut] | None = None,
        approximate: bool = False,
    ) -> list[list[Hit]]:
        """The k nearest of each vector: exact, all of them by one pass over the file.

        Args:
            vectors: (q, d) of any length.
            leave_out: for each vector a number, or several, that must not be found.
        """
        x = unit(as_embeddings(vectors, "vectors").to(torch.float32, copy=True))
        self._check(x, k, threshold, leave_out)
        out = [_numbers(one) for one in leave_out] if leave_out is not None else None
        among = None if label is None else self.labels.items_of(label)
        if approximate and among is None:
            ranked = self.approximate().nearest_rows(x, self._rows, k, out)
        else:
            ranked = nearest_rows(x, self._rows, k, among=among, leave_out=out)
        least = -2.0 if threshold is None else threshold
        return [
            [
                self.hit(number, cosine)
                for number, cosine in zip(*one, strict=True)
                if cosine >= least
            ]
            for one in ranked
        ]

    def _check(
        self, x: Tensor, k: int, threshold: float | None, leave_out: Sequence[LeaveOut] | None
    ) -> None:
        if x.shape[1] != self.dim:
            raise ValueError(
                f"vectors must have the {self.dim} dimensions of the index, got {x.shape[1]}: "
                "embed them with its own model"
            )
        if not is_integer(k) or k < 1:
            raise ValueError(f"k must be a whole number from 1 on, got {k!r}")
        if threshold is not None and not -1 <= threshold <= 1:
            raise ValueError(f"threshold is a cosine, from -1 to 1, got {threshold!r}")
        if leave_out is not None and len(leave_out) != len(x):
            raise ValueError(
                f"leave_out must have an entry for each of {len(x)} vectors, got {len(leave_out)}"
            )


def _numbers(left_out: LeaveOut) -> Sequence[int]:
    if left_out is None:
        return ()
    return left_out if isinstance(left_out, Sequence) else (int(left_out),)
