"""`proxysynth predict`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import UnreadableImage
from proxysynth.search.build import scan_folder
from proxysynth.search.index import Index
from proxysynth.training.callbacks import Bars
from proxysynth.training.inference import BATCH, Prediction, Trained, load


def run_predict(args: argparse.Namespace) -> dict[str, Any]:
    """Predict the classes of the images and print them."""
    machine = resources(args, set_threads=True)
    with usage_errors():
        threshold = _threshold(args.threshold)
        if args.k < 1 or (args.k > 1 and args.index is None):
            raise ValueError(f"-k must be an integer >= 1, and needs --index, got {args.k}")
        model = load(args.run, args.device, backbone=args.backbone, trust=args.trust)
        index = None if args.index is None else Index.open(args.index)
        paths = _files(args.pictures)
        least = (
            model.known_from(threshold) if index is None else index.threshold(threshold, args.run)
        )
    options = {"index": index, "k": args.k, "threshold": -2.0 if least is None else least}
    made: list[tuple[Path, Prediction]] = []
    unreadable: list[dict[str, str]] = []
    with Bars().task("predicting", len(paths)) as tick, usage_errors():
        for at in range(0, len(paths), BATCH):
            batch = paths[at : at + BATCH]
            made += _predict(model, batch, unreadable, {**options, "workers": machine.workers})
            tick(len(batch), "")
    if not args.json:
        rows = [
            (
                "unknown" if one.label is None else one.label,
                f"{one.similarity:.4f}",
                "" if one.label == one.nearest else one.nearest,
                str(path),
            )
            for path, one in made
        ]
        headings: dict[str, Any] = {"class": "left", "similarity": "right"}
        Console().columns(headings | {"nearest class": "left", "image": "left"}, rows)
        if least is not None and any(one.label is None for _, one in made):
            Console().say(f"Unknown: similarity below {least:.4f}; --threshold sets another limit.")
    for one in unreadable:
        Bars().say(f"skipped {one['path']}: {one['reason']}")
    if not made:
        raise UsageError("none of the images can be read: give others")
    return {
        "run": str(args.run),
        "by": "proxies" if index is None else str(args.index),
        "threshold": None if least is None or least < -1 else least,
        "predictions": [{"path": str(path), **one._asdict()} for path, one in made],
        "unknown": sum(one.label is None for _, one in made),
        "unreadable": unreadable,
    }


def _threshold(text: str | None) -> float | str | None:
    """A similarity, or a target; "none" accepts everything."""
    if text is None or text == "none":
        return None if text is None else -2.0
    try:
        return float(text)
    except ValueError:
        return text


def _files(pictures: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in pictures:
        if path.is_dir():
            found += [path / file.path for file in scan_folder(path)]
        elif path.exists():
            found.append(path)
        else:
            raise ValueError(f"there is no file {path}: give images or folders of images")
    return found


def _predict(
    model: Trained, paths: list[Path], unreadable: list[dict[str, str]], options: dict[str, Any]
) -> list[tuple[Path, Prediction]]:
    """The predictions of a batch; if it has an unreadable image, of each image by itself."""
    try:
        return list(zip(paths, model.predict(paths, **options), strict=True))
    except UnreadableImage as error:
        if len(paths) == 1:
            unreadable.append({"path": str(paths[0]), "reason": error.reason})
            return []
        return [pair for path in paths for pair in _predict(model, [path], unreadable, options)]
