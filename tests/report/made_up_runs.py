"""Folders of finished runs without any training: pictures, embeddings and metrics made by hand."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from proxysynth.retrieval import evaluate
from proxysynth.tensor_files import write_tensors
from proxysynth.training.defaults import default_run
from proxysynth.training.finish import why_this_epoch
from proxysynth.training.prepare import open_splits
from proxysynth.training.run import Split
from proxysynth.training.run_folder import (
    EMBEDDINGS,
    Recorded,
    Result,
    describe,
    write_metrics,
    write_result,
    write_run,
)

SEEN = ("cat", "dog")
UNSEEN = ('<img src="http://evil">', "R&D", "owl")
EACH = 4
VOID = {"img", "br", "meta"}


def make_pictures(root: Path, classes=(*SEEN, *UNSEEN), each: int = EACH) -> Path:
    """A folder per class with pictures of one colour."""
    for number, name in enumerate(classes):
        # A folder's name cannot hold a slash; the rest of what breaks HTML it can.
        place = root / name.replace("/", "∕")
        place.mkdir(parents=True)
        for i in range(each):
            Image.new("RGB", (90, 60), (40 * number, 20 * i, 90)).save(place / f"{i}.png")
    return root


def unseen() -> tuple[str, ...]:
    return tuple(name.replace("/", "∕") for name in UNSEEN)


def circle(degrees) -> np.ndarray:
    """Unit vectors at these angles."""
    angle = np.deg2rad(np.asarray(degrees, float))
    return np.stack([np.cos(angle), np.sin(angle)], 1).astype(np.float32)


# Three classes of four pictures in the order of the listing. The first query of each of the last
# two classes sits among strangers, so that its nearest neighbour is wrong.
DEGREES = (0, 1, 2, 3, 1.4, 120, 121, 122, 120.4, 240, 241, 242)


def make_run(
    folder: Path,
    root: Path,
    degrees=DEGREES,
    *,
    metrics=None,
    untrained=None,
    history=None,
    epoch: int = 3,
    finished: bool = True,
    split: Split | None = None,
    **changes,
) -> Path:
    """Write a run's folder. `metrics` are added to those of the embeddings, or replace them."""
    folder.mkdir(parents=True)
    fields = {"epochs": 3, "pretrained": False, **changes}
    run = default_run(root, split=split or Split(unseen_classes=unseen()), **fields)
    splits = open_splits(run)
    data, labels = describe(splits), torch.from_numpy(splits.query.labels.copy())
    write_run(folder, Recorded(run, run.identity, data, splits.train.classes, 32, 36))
    query = torch.from_numpy(circle(degrees))
    tensors = {"query": query, "query_labels": labels}
    about = {"classes": splits.query.classes, "query": splits.query.names}
    apart = {}
    if splits.gallery is not None:
        there = circle(np.linspace(0, 300, len(splits.gallery)))
        apart = {
            "gallery": torch.from_numpy(there),
            "gallery_labels": torch.from_numpy(splits.gallery.labels.copy()),
        }
        tensors |= apart
        about["gallery"] = splits.gallery.names
    measured = {**evaluate(query, labels, **apart), **(metrics or {})}
    lines = history or [
        {"epoch": e, "step": 10 * e, "loss": 3.0 / e, **measured} for e in range(1, run.epochs + 1)
    ]
    write_metrics(folder, lines)
    if not finished:
        return folder
    write_tensors(folder / EMBEDDINGS, tensors, about)
    write_result(
        folder,
        Result(
            run=run.identity,
            metrics=measured,
            untrained=untrained or {"recall@1": 0.25, "r_precision": 0.2, "map@r": 0.1},
            epoch=epoch,
            epochs=run.epochs,
            chosen=run.report_epoch,
            why=why_this_epoch(run),
            seconds=75.0,
            device="cpu (1 thread)",
            data=data,
            provenance={"commit": "abc123", "torch": "2.13.0", "machine": "a machine"},
            notes=splits.remarks(),
        ),
    )
    return folder


class Page(HTMLParser):
    """A page taken apart; it fails where elements are not closed in the order they were opened."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, dict]] = []
        self.tags: list[tuple[str, dict]] = []
        self.texts: list[str] = []
        self.rows: list[tuple[str, list[tuple[str, str]]]] = []  # query's class, (kind, class)
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.tags.append((tag, given))
        kinds = (given.get("class") or "").split()
        if "shot" in kinds and "query" in kinds:
            self.rows.append((given["title"], []))
        elif "shot" in kinds:
            self.rows[-1][1].append((kinds[1], given["title"]))
        if tag not in VOID:
            self.open.append((tag, given))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1][0] == tag, f"</{tag}> closes <{self.open[-1][0]}>"
        self.open.pop()

    def handle_data(self, data):
        if not any(tag == "style" for tag, _ in self.open):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def assert_self_contained(self) -> None:
        for tag, given in self.tags:
            assert tag not in ("script", "link", "iframe", "object", "embed", "base", "form"), tag
            for key, value in given.items():
                assert not key.startswith("on"), (tag, key)
                if key in ("src", "srcset", "href", "xlink:href", "data", "action", "poster"):
                    assert value.startswith(("data:image/", "#")), (tag, key, value[:60])
                if key == "style":
                    assert "url(" not in value or "url(#" in value

    def assert_ids_are_unique(self) -> None:
        ids = [given["id"] for _, given in self.tags if "id" in given]
        assert len(ids) == len(set(ids))
