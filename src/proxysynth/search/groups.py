"""Near-duplicates and clusters of an index, and its metrics for labeled queries."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from markupsafe import Markup
from numpy.typing import NDArray

from proxysynth.data.folders import some_names
from proxysynth.formatting import count
from proxysynth.retrieval import knn, metrics
from proxysynth.search.build import Unreadable, embed_files, labels_of, scan_folder
from proxysynth.search.index import Hit, Index
from proxysynth.training.callbacks import Progress, Silent
from proxysynth.training.run_folder import make_folder

NEAR_DUPLICATE = 0.95  # the similarity from which on two images are near-duplicates
BLOCK = 2**22  # similarities held at once
SHOWN = 200  # images on a contact sheet
MEMBERS = 5  # images of each group or cluster in a list of them


def find_duplicates(index: Index, threshold: float = NEAR_DUPLICATE) -> list[list[Hit]]:
    """Groups of near-duplicates, large groups first.

    Images belong to one group if similarities >= threshold link them, also via others. The
    similarity of each is that to its most similar image in the group.
    """
    group, best = duplicates(index.vectors(), threshold)
    numbers, sizes = np.unique(group, return_counts=True)
    several = numbers[sizes > 1][np.argsort(-sizes[sizes > 1], kind="stable")]
    members = (np.flatnonzero(group == number).tolist() for number in several)
    return [[index.hit(number, best[number]) for number in each] for each in members]


def duplicates(
    embeddings: knn.Array, threshold: float
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Groups of embeddings that are linked, also via others, by similarities >= threshold.

    Returns:
        (n,) the group of each: the number of its first member.
        (n,) the highest similarity to another one if that is >= threshold, else -1.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    knn.check_threshold(threshold)
    x = knn.normalize_rows_(
        knn.as_embeddings(embeddings).to("cpu", torch.float64, copy=True)
    ).numpy()
    n = len(x)
    group, best = np.arange(n), np.full(n, -1.0)
    height = max(1, BLOCK // n)
    for low in range(0, n, height):
        S = x[low : low + height] @ x[low:].T
        row, column = np.nonzero(np.triu(threshold <= S, 1))
        if not len(row):
            continue
        for end in (row, column):
            np.maximum.at(best, end + low, np.minimum(S[row, column], 1))
        # Earlier links are represented by one from each embedding to its group: n, not n^2.
        a, b = np.concatenate([row + low, np.arange(n)]), np.concatenate([column + low, group])
        links = coo_array((np.ones(len(a)), (a, b)), shape=(n, n))
        part = connected_components(links, directed=False)[1]
        group = np.unique(part, return_index=True)[1][part]
    return group, best


@dataclass(frozen=True)
class Cluster:
    """Images that lie close together, with their similarities to the mean."""

    number: int  # from 1, the largest cluster first; -1 for the images that belong to none
    images: list[Hit]  # the one nearest to the mean first

    @property
    def title(self) -> str:
        """Its number, size, and most common label."""
        name = "no cluster" if self.number < 0 else f"cluster {self.number}"
        label = "" if self.label is None else f", {100 * self.label[1]:.0f}% {self.label[0]}"
        return f"{name}: {count(len(self.images), 'image')}{label}"

    @property
    def label(self) -> tuple[str, float] | None:
        """The most common label and its share; None if no image has one."""
        labels = Counter(hit.label for hit in self.images if hit.label is not None)
        return next(((label, n / len(self.images)) for label, n in labels.most_common(1)), None)


def cluster_index(
    index: Index,
    method: Literal["kmeans", "hdbscan"] = "kmeans",
    *,
    k: int | None = None,
    least: int = 5,
    seed: int = 0,
) -> list[Cluster]:
    """The images of an index in clusters, the largest first, those in no cluster last.

    Args:
        method: k-means, or HDBSCAN, which finds the number of clusters and leaves images out.
        k: clusters of k-means; default: as many as there are labels.
        least: images of a cluster of HDBSCAN.
        seed: of k-means.
    """
    x = index.vectors()
    if method == "kmeans":
        names = len(index.label_names)
        if k is None and names < 2:
            raise ValueError(f"{index.file} has fewer than 2 labels: set the number of clusters -k")
        part = metrics.kmeans(x, names if k is None else k, seed=seed)
    elif method == "hdbscan":
        if k is not None:
            raise ValueError("HDBSCAN finds the number of clusters itself: omit -k")
        part = hdbscan(x, least)
    else:
        raise ValueError(f"method must be 'kmeans' or 'hdbscan', got {method!r}")
    members = [np.flatnonzero(part == number) for number in np.unique(part[part >= 0])]
    members.sort(key=lambda each: (-len(each), each[0]))
    made = [Cluster(number, _by_mean(index, each)) for number, each in enumerate(members, 1)]
    alone = np.flatnonzero(part < 0)
    return [*made, Cluster(-1, _by_mean(index, alone))] if len(alone) else made


def hdbscan(embeddings: knn.Array, least: int = 5) -> NDArray[np.int64]:
    """(n,) the cluster, of `least` images or more, of each embedding, -1 for none: HDBSCAN."""
    x = metrics.directions(embeddings)
    if not 2 <= least <= len(x):
        raise ValueError(f"a cluster must have from 2 to {len(x)} images, got {least!r}")
    cluster = metrics.scikit_learn("cluster").HDBSCAN(min_cluster_size=least, copy=True)
    return np.asarray(cluster.fit_predict(x), dtype=np.int64)


def agreement(index: Index, clusters: Sequence[Cluster]) -> float | None:
    """NMI of the clusters and the labels, over labeled images; None with fewer than 2 labels."""
    part = np.empty(len(index), dtype=np.int64)
    for cluster in clusters:
        part[[hit.number for hit in cluster.images]] = cluster.number
    codes = np.asarray(index.labels.codes)
    some = codes >= 0
    if len(np.unique(codes[some])) < 2:
        return None
    return metrics.mutual_information(codes[some].astype(np.int64), part[some])


def _by_mean(index: Index, numbers: NDArray[np.int64]) -> list[Hit]:
    x = torch.nn.functional.normalize(index.vectors()[torch.from_numpy(numbers)].double())
    s = x @ torch.nn.functional.normalize(x.mean(0), dim=0)
    order = torch.argsort(s, descending=True, stable=True)
    return [index.hit(numbers[i], float(s[i])) for i in order.tolist()]


def write_sheets(folder: Path, index: Index, clusters: Sequence[Cluster]) -> list[Path]:
    """A contact sheet for each cluster, and `index.html` with some images of every one."""
    from proxysynth.search.contact_sheet import write_sheet  # matplotlib, slow

    make_folder(folder)
    made, sections, overview = [], [], "index.html"
    for cluster in clusters:
        some = cluster.images[:SHOWN]
        lead = f"The {len(some)} nearest to the mean, with their similarity to it."
        name = "none" if cluster.number < 0 else f"{cluster.number:04d}"
        file, section = folder / f"{name}.html", ("Images", some)
        up = Markup('{} <a href="{}">All clusters</a>').format(lead, overview)
        made.append(write_sheet(file, index, cluster.title, up, [section]))
        linked = Markup('<a href="{}">{}</a>').format(file.name, cluster.title)
        sections.append((linked, cluster.images[:MEMBERS]))
    lead = f"{len(index):,} images of {index.root}, with the similarity to their cluster's mean. "
    lead += "Each heading links to all images of its cluster."
    sheet = write_sheet(folder / overview, index, "Clusters", lead, sections[:SHOWN])
    return [sheet, *made]


@dataclass(frozen=True)
class QueryResult:
    """Metrics of a folder of queries, their labels, and what was left out."""

    labels: tuple[str, ...]
    metrics: dict[str, float]
    unreadable: list[Unreadable]
    notes: tuple[str, ...]


def evaluate_queries(
    index: Index,
    folder: str | os.PathLike[str],
    *,
    ks: Sequence[int] = (1, 2, 4, 8),
    rerank: str | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> QueryResult:
    """How well the images of a folder, labeled by its sub-folders, find their label in an index.

    A query that is in the index does not find itself. Items of the index without a label are
    searched too; they are wrong for every query.
    """
    base = Path(os.path.abspath(os.path.expanduser(folder)))
    files = scan_folder(base)
    label_of = dict(zip(files, labels_of(base, files), strict=True))
    labeled = [file for file in files if label_of[file] is not None]
    names = tuple(dict.fromkeys(label for label in label_of.values() if label is not None))
    if not labeled:
        raise ValueError(f"no image in {base} is in a sub-folder, which would be its label")
    if not set(names) & set(index.label_names):
        raise ValueError(
            f"no label of {base} ({some_names(names)}) is in the index "
            f"({some_names(index.label_names)}): to evaluate new classes among themselves, use "
            f"`proxysynth eval RUN {folder}`"
        )
    codes: dict[str | None, int] = {name: code for code, name in enumerate(index.label_names)}
    vectors, labels, exclude, unreadable = [], [], [], list[Unreadable]()
    with (progress or Silent()).task("embedding", len(labeled)) as tick:
        for kept, made, bad in embed_files(index.embedder(), base, labeled, workers):
            vectors.append(torch.from_numpy(made))
            labels += [
                codes.get(label_of[file], -2) for file in kept
            ]  # -1 is an item without a label
            own = [index.find(base / file.path) for file in kept]
            exclude += [[] if number is None else [number] for number in own]
            unreadable += bad
            tick(len(kept) + len(bad), "")
    if not labels:
        raise ValueError(f"none of the {len(labeled)} images in {base} can be read")
    found = metrics.evaluate(
        torch.cat(vectors),
        torch.tensor(labels),
        gallery=index.vectors(),
        gallery_labels=np.asarray(index.labels.codes).astype(np.int64),
        ks=ks,
        rerank=rerank,
        exclude=exclude if any(exclude) else None,
    )
    notes = []
    if inside := sum(map(len, exclude)):
        text = count(inside, "query is", "queries are")
        notes.append(f"{text} in the index; none of them finds itself.")
    if others := len(files) - len(labeled):
        notes.append(f"{count(others, 'image')} without a label left out.")
    if lost := int(found["queries_without_positive"]):
        text = count(lost, "query", "queries")
        notes.append(f"{text} left out of the averages: the index has no image of their label.")
    return QueryResult(names, found, unreadable, tuple(notes))
