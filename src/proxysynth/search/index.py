"""An index: the embeddings of a folder of images, and the search for the nearest of them."""

from __future__ import annotations

import math
import os
import time
import timeit
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from proxysynth.formatting import or_join
from proxysynth.retrieval import knn
from proxysynth.retrieval.calibration import DEFAULT_TARGET, Calibration
from proxysynth.search import index_file
from proxysynth.search.approximate import Approximate, open_approximate
from proxysynth.search.index_file import Damage, IndexFile, Labels, NotAnIndex, Texts
from proxysynth.search.model import ImageEmbedder, ModelIdentity, open_model
from proxysynth.training.inference import Picture, Prediction, as_list, read_calibration
from proxysynth.training.run_folder import find_run
from proxysynth.values import build

if TYPE_CHECKING:
    from proxysynth.retrieval.reranking import Search

CHEAP_TO_VERIFY = 32 * 2**20  # bytes of a file that is verified when opened: about 25 ms
CHECKED = 100_000  # files of a large index whose existence is checked, at most
SIMILARITIES = 2**22  # of an int8 product: more would leave the cache
TOGETHER = 8  # queries that share an int8 product, at least
FASTER = 0.7  # int8 must take less than this share of the time of float32
CANDIDATES = 1 / 16  # share of the rows that may remain; with more, float32 is as fast
REBUILD = "index the folder again with --rebuild"


@dataclass(frozen=True)
class Hit:
    """An image found by a search.

    Args:
        number: its number in the index.
        path: relative to the root of the index.
        label: None where none is known.
        similarity: cosine, in [-1, 1].
    """

    number: int
    path: str
    label: str | None
    similarity: float


class RoundedRows:
    """Rows quantized to int8: the first pass of an exact search.

    A search in float32 is limited by memory bandwidth: every batch of queries reads every row. int8
    takes a quarter of that, and processors multiply it faster. With x' and y' the quantized query
    and row,

        | x . y - x' . y' |  <=  |x - x'| |y| + |x'| |y - y'|  <=  e

    so few rows remain that can be among the k nearest,

        x' . y'  >=  s_k - 2 e          s_k the k-th largest

    and cosines in float64 decide among them. The result is exactly that of `knn.nearest`.
    """

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows
        # In blocks: a copy of all rows in float32 would double the memory.
        parts = [_quantized(part) for part in rows.split(2**16)]
        self.int8, self.step, error = map(torch.cat, zip(*parts, strict=True))
        self.error = float(error.max())

    @staticmethod
    def of(rows: Tensor) -> RoundedRows | None:
        """None where float32 is as fast, or where a row of a damaged file is not finite."""
        made = RoundedRows(rows) if _int8_is_fast(rows.shape[1]) else None
        return made if made and math.isfinite(made.error) else None

    def nearest(self, x: Tensor, k: int, exclude: knn.Excluded) -> knn.Neighbors:
        """The k nearest rows of each of the queries x (q, d)."""
        height = max(TOGETHER, SIMILARITIES // len(self.rows))
        parts = [
            self._nearest(x[at : at + height], k, exclude[at : at + height])
            for at in range(0, len(x), height)
        ]
        return knn.Neighbors(*map(torch.cat, zip(*parts, strict=True)))

    def _nearest(self, x: Tensor, k: int, exclude: knn.Excluded) -> knn.Neighbors:
        short, step, error = _quantized(x)
        S = torch._int_mm(short, self.int8.T).float()
        S.mul_(step[:, None]).mul_(self.step)
        for query, hidden in enumerate(exclude):
            S[query, list(hidden)] = -torch.inf
        e = error + (1 + error) * self.error + knn.summation_error(2, torch.float32)
        low = S.topk(k, dim=1).values[:, -1] - 2 * e
        near = low.clamp(min=-4)[:, None] <= S
        if int(near.sum()) > CANDIDATES * near.numel():
            return knn.nearest(x, self.rows, k, exclude=exclude)
        return knn.top(x, self.rows, *knn.nonzero(near), k)


def _quantized(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The rows, normalized, as int8, the step of each, and the norm of each rounding error."""
    x = knn.normalize_rows_(x.to(torch.float32, copy=True))
    step = x.abs().amax(1).clamp_(min=1e-9) / 127
    short = (x / step[:, None]).round_()
    error = torch.linalg.vector_norm(x - short * step[:, None], dim=1)
    return short.to(torch.int8), step, error


@lru_cache
def _int8_is_fast(d: int) -> bool:
    """Whether this processor multiplies int8 without overflow and faster than float32."""
    x = torch.full((512, d), 127, dtype=torch.int8)
    y = x.float()
    try:
        right = bool((torch._int_mm(x, x.T) == 127 * 127 * d).all())
        in_int8 = timeit.repeat(lambda: torch._int_mm(x, x.T), timer=time.thread_time, number=1)
    except RuntimeError:  # not supported by this processor
        return False
    in_float = timeit.repeat(lambda: y @ y.T, timer=time.thread_time, number=1)
    return right and min(in_int8) < FASTER * min(in_float)


class Index:
    """Embeddings, paths and labels of a folder of images.

    An open index does not change when another process replaces the file; `reload` opens the new
    one. By default the file is memory-mapped: opening ten million images reads a few kilobytes.

    Attributes:
        file: the index file.
        root: the folder of the images: `folder` if given, else beside the index if it was moved
            along with it, else where it was when indexed.
        paths: of the items, relative to `root`, sorted; decoded on access.
        labels: of the items, None where none is known.
        label_names: every label once.
        model: identity of the model that made the embeddings.
        generation: a string that changes whenever the file is written.
        rerank: the re-ranking of searches that do not name one, see `search`; None for none.
    """

    def __init__(self, opened: IndexFile, file: Path, folder: str | None, in_memory: bool):
        about, parts = opened.about, opened.parts
        try:
            model: ModelIdentity = build(ModelIdentity, about["model"], {})
            self._runs = _locations(file, about, "run", model.folder) if model.folder else []
            self._roots = [folder] if folder else _locations(file, about, "root", about["root"])
            self.model = replace(model, folder=self._runs[0] if self._runs else None)
            self.root = Path(self._roots[0])
            self.generation = str(about["generation"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise NotAnIndex(f"{file} does not say which model made it: {REBUILD}") from error
        self.file = file
        self.label_names = Texts(parts["label_text"], parts["label_ends"])
        self.paths = Texts(parts["path_text"], parts["path_ends"])
        self.labels = Labels(self.label_names, parts["label_codes"])
        self.stamps = parts["stamps"]
        self._vectors = knn.as_matrix(parts["embeddings"], "embeddings")
        self.dim: int = self._vectors.shape[1]
        self.rerank: str | None = None
        self._opened, self._folder = opened, folder
        self._rounded = RoundedRows.of(self._vectors) if in_memory else None
        self._embedder: ImageEmbedder | None = None
        self._approximate: Approximate | None = None
        self._rerankers: dict[str, Search] = {}

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        folder: str | os.PathLike[str] | None = None,
        verify: bool | None = None,
        in_memory: bool = False,
    ) -> Index:
        """Open an index file.

        Args:
            folder: of the images, if it was moved without the index.
            verify: compare the data with its checksums. Default: only if that is cheap, for files
                of up to 32 MB and for those that are read into memory.
            in_memory: read the file into memory instead of mapping it, for faster searches. Then
                overwriting the file in place does no harm.
        """
        file = Path(path).expanduser()
        opened = IndexFile.open(file, in_memory)
        root = None if folder is None else os.path.abspath(os.path.expanduser(folder))
        if root is not None and not os.path.isdir(root):
            raise ValueError(f"there is no folder {root}: give the folder of the images")
        index = cls(opened, file, root, in_memory)
        if verify is None:
            verify = in_memory or opened.stamp[2] <= CHEAP_TO_VERIFY
        if verify and (damage := index.damage()):
            raise index_file.damaged(file, f"the checksum does not match: {', '.join(damage)}")
        return index

    def damage(self) -> Damage:
        """The parts that do not match their checksums; empty if the file has none."""
        return self._opened.damage()

    def reload(self, force: bool = False, in_memory: bool = False) -> Index:
        """The index that has replaced this one in the file; itself if none has, unless forced."""
        if not force and index_file.file_stamp(self.file) == self._opened.stamp:
            return self
        newer = Index.open(self.file, in_memory=in_memory, folder=self._folder)
        if self._embedder is not None and newer.model.same_as(self.model):
            newer._embedder = self._embedder
        newer.rerank = self.rerank
        if newer.rerank is not None:
            newer.reranker(newer.rerank)
        return newer

    def __len__(self) -> int:
        return len(self._vectors)

    def __repr__(self) -> str:
        return f"Index({self.file}: {len(self):,} images of {self.root}, by {self.model.name})"

    def path(self, number: int) -> Path:
        return self.root / self.paths[number]

    def missing_images(self) -> str:
        """What to do about images that no longer exist, as a sentence; empty if all do."""
        checked = range(0, len(self), -(-len(self) // CHECKED))
        lost = sum(not os.path.exists(self.path(number)) for number in checked)
        verb = "is" if lost == 1 else "are"
        where = f"{lost:,} of {len(checked):,} images {verb} not in {or_join(self._roots)}"
        return f"{where}: restore them, or give their folder with --folder" if lost else ""

    def hit(self, number: int, similarity: float = 1.0) -> Hit:
        return Hit(int(number), self.paths[number], self.labels[number], float(similarity))

    def vectors(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Embeddings of items start to stop, (stop - start, d) float32; read-only."""
        return self._vectors[start:stop]

    def find(self, path: str | os.PathLike[str]) -> int | None:
        """The number of an image by its path, absolute or relative to the root."""
        asked = os.fspath(path)
        for full, root in (
            (os.path.abspath(os.path.expanduser(asked)), str(self.root)),
            (os.path.realpath(asked), os.path.realpath(self.root)),
        ):
            if full.startswith(os.path.join(root, "")):
                under = os.path.relpath(full, root).replace(os.sep, "/")
                if (number := self.paths.find(under)) is not None:
                    return number
        if os.path.exists(asked):  # another image that happens to have such a name
            return None
        return self.paths.find(asked.replace(os.sep, "/"))

    def embedder(
        self,
        run: str | os.PathLike[str] | None = None,
        device: str | None = None,
        *,
        backbone: str | None = None,
        trust: bool = False,
    ) -> ImageEmbedder:
        """The model that made the index, loaded at the first call.

        Args:
            run: the run's folder, if it was moved; likewise below.
            backbone, trust: for a run with a backbone of your own, see `ps.load`.
        """
        if self._embedder is not None:
            return self._embedder
        place = run if run is not None else self.model.folder or self.model.backbone
        if self.model.folder and run is None and not os.path.isdir(place):
            places = " or ".join(self._runs)
            raise ValueError(
                f"the index's run is not at {places}: move it there, or give its folder to "
                "`search` or `serve` with --run"
            )
        made = open_model(place, device, backbone=backbone, trust=trust)
        self.model.check_same(made.identity, self.file, REBUILD)
        self._embedder = made
        return made

    def calibration(self, run: str | os.PathLike[str] | None = None) -> Calibration | None:
        """The thresholds of the run that made the index; None if it is missing or has none."""
        folder = run if run is not None else self.model.folder
        if folder is None or (recorded := find_run(Path(folder))) is None:
            return None
        return read_calibration(folder) if recorded.identity == self.model.run else None

    def predict_vectors(
        self, vectors: knn.Array, k: int = 1, threshold: float | str | None = None
    ) -> list[Prediction]:
        """`Trained.predict` of vectors: a vote of the k nearest labeled items.

        Only those that reach the threshold vote; if none does, the image is unknown.
        """
        numbers = np.flatnonzero(np.asarray(self.labels.codes) >= 0)
        if not len(numbers):
            raise ValueError(f"no item of {self.file} has a label: nothing can be predicted")
        least = self.threshold(threshold)
        x = self._checked(vectors, k)
        found = self._nearest(x, min(k, len(numbers)), numbers, [()] * len(x))
        made = []
        for indices, s in zip(found.indices.tolist(), found.similarities.tolist(), strict=True):
            similar = sum(least is None or similarity >= least for similarity in s)
            labels = [self.labels[number] for number in indices[: similar or 1]]
            votes: Counter[str] = Counter()
            for label, similarity in zip(labels, s, strict=False):
                votes[label] += max(0.0, similarity)
            winner = votes.most_common(1)[0][0]  # of equals, the nearest
            similarity = s[labels.index(winner)]
            made.append(Prediction(winner if similar else None, winner, similarity))
        return made

    def threshold(
        self, wanted: float | str | None = None, run: str | os.PathLike[str] | None = None
    ) -> float | None:
        """The similarity from which two images count as the same class.

        Args:
            wanted: a similarity, which is returned; a target such as "far=0.01" or "f1", fitted by
                the run; None for the run's default, and then None if the run has none.
        """
        if wanted is not None and not isinstance(wanted, str):
            return wanted if wanted == knn.ANY else knn.check_threshold(wanted)
        made = self.calibration(run)
        if wanted is None:
            return None if made is None else made.thresholds.get(DEFAULT_TARGET)
        if made is None:
            name = self.model.name
            if run is None and self.model.folder is None:
                advice = "use a similarity such as --threshold 0.6, or an index made by a run"
                raise ValueError(f"{name} was not trained here, so it has no thresholds: {advice}")
            advice = "give a similarity with --threshold, or the folder of a moved run with --run"
            raise ValueError(f"no thresholds of {name} were found: {advice}")
        return made.threshold(wanted)

    def approximate(self, say: Callable[[str], None] | None = None) -> Approximate:
        """The FAISS structure of this index, read or built at the first call."""
        if self._approximate is None:
            self._approximate = open_approximate(self, say)
        return self._approximate

    def search(
        self,
        query: Picture | Iterable[Picture],
        k: int = 10,
        *,
        threshold: float | None = None,
        label: str | None = None,
        approximate: bool = False,
        rerank: str | None = None,
    ) -> list[Hit]:
        """The images most similar to the query, the most similar first.

        Args:
            query: a path, an open file, a Pillow image or an array; several of them are searched
                by their mean. A path in the index is not embedded again, and does not find itself.
            k: the number of hits.
            threshold: minimum similarity of a hit.
            label: only images with this label.
            approximate: search with FAISS, which may miss some; a search by label is exact.
            rerank: methods of `retrieval.reranking`, such as "query_expansion": they change which
                images are found and their order, not the similarities.
        """
        images = list(as_list(query))
        if not images:
            raise ValueError("a search needs at least one image, got none")
        numbers = [self.find(i) if isinstance(i, (str, os.PathLike)) else None for i in images]
        others = [image for image, number in zip(images, numbers, strict=True) if number is None]
        made = iter(self.embedder().embed(others) if others else ())
        rows = [next(made) if n is None else self.vectors(n, n + 1)[0] for n in numbers]
        return self.search_vectors(
            torch.stack(rows).mean(dim=0, keepdim=True),
            k,
            threshold=threshold,
            label=label,
            exclude=[[number for number in numbers if number is not None]],
            approximate=approximate,
            rerank=rerank,
        )[0]

    def search_vectors(
        self,
        vectors: knn.Array,
        k: int = 10,
        *,
        threshold: float | None = None,
        label: str | None = None,
        exclude: knn.Exclude | None = None,
        approximate: bool = False,
        rerank: str | None = None,
    ) -> list[list[Hit]]:
        """The k nearest items of each vector: exact, in one pass over the file for all vectors.

        Args:
            vectors: (q, d) of any length.
            exclude: for each vector an item number, or several, that must not be found.
        """
        x = self._checked(vectors, k)
        least = knn.ANY if threshold is None else knn.check_threshold(threshold)
        k, hidden = min(k, len(self)), knn.as_excluded(exclude, len(x))
        among = None if label is None else self.labels.items_of(label)
        rerank = rerank or self.rerank
        if rerank is not None:
            if approximate:
                raise ValueError("re-ranking needs exact search: omit approximate or rerank")
            indices = self.reranker(rerank)(x, k, hidden, among)
            row, place = (indices >= 0).nonzero(as_tuple=True)
            exact = knn.normalize_rows_(x.to(torch.float64, copy=True))
            similarities = torch.full(indices.shape, -torch.inf, dtype=torch.float64)
            similarities[row, place] = knn.cosines(exact, self._vectors, row, indices[row, place])
            found = knn.Neighbors(similarities, indices)
        elif approximate and among is None:
            found = self.approximate().nearest(x, self._vectors, k, hidden)
        else:
            found = self._nearest(x, k, among, hidden)
        return [
            [self.hit(number, s) for number, s in zip(*one, strict=True) if s >= least]
            for one in zip(found.indices.tolist(), found.similarities.tolist(), strict=True)
        ]

    def reranker(self, methods: str) -> Search:
        """A search of these vectors with re-ranking, prepared at the first call."""
        if methods not in self._rerankers:
            from proxysynth.retrieval.reranking import reranked  # scipy, slow

            def search(x: Tensor, k: int, exclude: knn.Excluded, among: Any) -> Tensor:
                return self._nearest(x.float(), min(k, len(self)), among, exclude).indices

            self._rerankers[methods] = reranked(self.vectors(), methods, search)
        return self._rerankers[methods]

    def _nearest(self, x: Tensor, k: int, among: knn.Among, exclude: knn.Excluded) -> knn.Neighbors:
        if self._rounded is not None and among is None:
            return self._rounded.nearest(x, k, exclude)
        return knn.nearest(x, self._vectors, k, exclude=exclude, among=among)

    def _checked(self, vectors: knn.Array, k: int) -> Tensor:
        x = knn.as_embeddings(vectors, "vectors").to(torch.float32)
        if x.shape[1] != self.dim:
            expected = f"vectors must have the {self.dim} dimensions of the index"
            raise ValueError(f"{expected}, got {x.shape[1]}: embed them with its own model")
        if not knn.is_integer(k) or k < 1:
            raise ValueError(f"k must be an integer >= 1, got {k!r}")
        return x


def _locations(file: Path, about: Mapping[str, Any], name: str, recorded: str) -> list[str]:
    """Where the folder "root" or "run" may be: beside the index if moved along, or as recorded.

    If one of them exists, that one alone.
    """
    relative = about.get("relative", {}).get(name)
    home = os.path.dirname(os.path.abspath(file))
    beside = [] if relative is None else [os.path.normpath(os.path.join(home, relative))]
    places = list(dict.fromkeys([*beside, recorded]))
    return next(([place] for place in places if os.path.isdir(place)), places)
