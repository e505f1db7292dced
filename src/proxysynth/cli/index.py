"""`proxysynth index`, `predict`, `duplicates`, `cluster` and `export`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from proxysynth.cli.console import Console, output
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import UnreadableImage
from proxysynth.formatting import count
from proxysynth.models.libraries import backbone_option
from proxysynth.retrieval.calibration import parse_target
from proxysynth.retrieval.knn import ANY
from proxysynth.search.build import scan_folder, update_index
from proxysynth.search.export import export
from proxysynth.search.groups import (
    MEMBERS,
    agreement,
    cluster_index,
    find_duplicates,
    write_sheets,
)
from proxysynth.search.index import Hit, Index
from proxysynth.search.model import open_model
from proxysynth.training.callbacks import Bars
from proxysynth.training.inference import BATCH, Prediction, Trained, load
from proxysynth.training.run_folder import RUN

SHOWN = 20  # unreadable files, groups or clusters listed in the terminal


def run_index(args: argparse.Namespace) -> dict[str, Any]:
    machine, progress = resources(args), Bars()
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder: give a file such as {args.out / 'shop.index'}")
    options = {"rebuild": args.rebuild, "verify": args.verify, "workers": machine.workers}
    with usage_errors():
        check_order(args.model, [args.folder], "index RUN FOLDER")
        model = open_model(args.model, args.device, backbone=args.backbone, trust=args.trust)
        built = update_index(model, args.folder, args.out, **options, progress=progress)
    for bad in built.unreadable[:SHOWN]:
        progress.say(f"skipped {bad.path}: {bad.reason}")
    if len(built.unreadable) > SHOWN:
        progress.say(f"... and {len(built.unreadable) - SHOWN:,} more; --json lists all of them")
    result: dict[str, Any] = {
        **vars(built),
        "file": str(built.file),
        "unreadable": [bad._asdict() for bad in built.unreadable],
        "dim": model.dim,
        "model": asdict(model.identity),
    }
    if args.approximate:
        with usage_errors():
            approximate = Index.open(built.file).approximate(progress.say)
        progress.say(approximate.verdict)
        result["approximate"] = {f"recall@{k}": share for k, share in approximate.recall.items()}
    console = output(args)
    console.say(built.summary)
    option = backbone_option(model.identity.backbone)
    search, serve = f"search {args.out} IMAGE{option}", f"serve {args.out}{option}"
    console.say(f"Next: proxysynth {search}, or proxysynth {serve}")
    return result


def run_predict(args: argparse.Namespace) -> dict[str, Any]:
    machine = resources(args)
    wanted: float | str | None = ANY if args.threshold == "none" else args.threshold
    with suppress(ValueError, TypeError):  # a similarity; others are targets
        wanted = float(args.threshold)
    with usage_errors():
        if isinstance(wanted, str):
            _check_target(wanted)
        if args.run.is_file():
            advice = f"use `proxysynth predict RUN --index {args.run}`"
            raise ValueError(f"{args.run} is a file: {advice}")
        check_order(args.run, args.pictures, "predict RUN IMAGE")
        if args.k != 1 and args.index is None:
            raise ValueError(f"-k {args.k} needs --index")
        model = load(args.run, args.device, backbone=args.backbone, trust=args.trust)
        index = None if args.index is None else Index.open(args.index)
        paths = [path for picture in args.pictures for path in _files(picture)]
        least = model.known_from(wanted) if index is None else index.threshold(wanted, args.run)
    options = {"index": index, "k": args.k, "threshold": ANY if least is None else least}
    predicted: list[tuple[Path, Prediction | UnreadableImage]] = []
    with Bars().task("predicting", len(paths)) as tick, usage_errors():
        for at in range(0, len(paths), BATCH):
            batch = paths[at : at + BATCH]
            predicted += _predict(model, batch, {**options, "workers": machine.workers})
            tick(len(batch), "")
    made = [(path, one) for path, one in predicted if isinstance(one, Prediction)]
    bad = [(path, one.reason) for path, one in predicted if isinstance(one, UnreadableImage)]
    for path, reason in bad:
        Bars().say(f"skipped {path}: {reason}")
    if not made:
        raise UsageError("none of the images can be read")
    rows = []
    for path, (label, nearest, similarity) in made:
        other = "" if label == nearest else nearest
        rows.append(("unknown" if label is None else label, f"{similarity:.4f}", other, str(path)))
    unknown = sum(one.label is None for _, one in made)
    console = output(args)
    console.columns(("class", "similarity", "nearest class", "image"), rows)
    if index is not None and (same := sum(one.similarity > 0.9999 for _, one in made)):
        console.say(f"{same:,} of {len(made):,} images are in the index themselves.")
    if least is None:
        console.say("No threshold was fitted, so no image is unknown; --threshold sets one.")
    elif unknown:
        number = f"{unknown:,} of {count(len(made), 'image')}"
        console.say(f"Unknown: {number}, with a similarity below {least:.4f} (see --threshold).")
        data = model.recorded.data
        if index is None and (held_out := data["query"]["classes"] - data["shared_classes"]):
            held = f"Held out of training: {count(held_out, 'class', 'classes')} of {data['name']}"
            console.say(f"{held}; predict with --index, or train with --all-classes.")
        elif index is None:
            console.say("For the nearest class of every image, use --threshold none, or --index.")
    return {
        "run": str(args.run),
        "by": "proxies" if index is None else str(args.index),
        "threshold": None if least == ANY else least,
        "predictions": [{"path": str(path), **one._asdict()} for path, one in made],
        "unknown": unknown,
        "unreadable": [{"path": str(path), "reason": reason} for path, reason in bad],
    }


def _check_target(text: str) -> None:
    try:
        parse_target(text)
    except ValueError as error:
        expected = "a similarity, a target such as far=0.01, or none"
        raise ValueError(f"--threshold must be {expected}, got {text!r}") from error


def check_order(run: str | Path, images: Sequence[Path], usage: str) -> None:
    """Raise ValueError if a run is given in the place of images, and no run in its own."""
    if not (Path(run) / RUN).exists() and any((place / RUN).exists() for place in images):
        raise ValueError(f"the run comes first: `proxysynth {usage}`")


def _files(path: Path) -> list[Path]:
    if path.is_dir():
        return [path / file.path for file in scan_folder(path)]
    if not path.exists():
        raise ValueError(f"there is no file {path}: give images or folders of images")
    return [path]


def _predict(
    model: Trained, paths: list[Path], options: dict[str, Any]
) -> list[tuple[Path, Prediction | UnreadableImage]]:
    """The predictions of a batch; if it has an unreadable image, of each image by itself."""
    try:
        return list(zip(paths, model.predict(paths, **options), strict=True))
    except UnreadableImage as error:
        if len(paths) == 1:
            return [(paths[0], error)]
        return [pair for path in paths for pair in _predict(model, [path], options)]


def run_duplicates(args: argparse.Namespace) -> dict[str, Any]:
    with usage_errors():
        index = Index.open(args.index)
        groups = find_duplicates(index, args.threshold)
    images, several = sum(map(len, groups)), count(len(groups), "group")
    titled = [(f"group {i}: {count(len(one), 'image')}", one) for i, one in enumerate(groups, 1)]
    console = output(args)
    if groups:
        console.say(f"Near-duplicates: {count(images, 'image')} of {len(index):,} in {several}")
    else:
        at = f"at {args.threshold:g} or above; a lower --threshold finds more"
        console.say(f"No near-duplicates among {len(index):,} images {at}.")
    nearest = "similarity to the nearest image of the group"
    _show(console, "group", nearest, titled)
    if args.out is not None:
        from proxysynth.search.contact_sheet import write_sheet

        lead = f"{several} at {args.threshold:g} or above, with the {nearest}."
        write_sheet(args.out, index, "Near-duplicates", lead, titled)
        console.say(f"Contact sheet: {args.out}")
    return {
        "index": str(args.index),
        "items": len(index),
        "threshold": args.threshold,
        "groups": [[asdict(hit) for hit in group] for group in groups],
        "duplicates": images - len(groups),
        "sheet": args.out and str(args.out),
    }


def run_cluster(args: argparse.Namespace) -> dict[str, Any]:
    with usage_errors():
        index = Index.open(args.index)
        clusters = cluster_index(index, args.method, k=args.k, least=args.min_size, seed=args.seed)
        nmi = agreement(index, clusters)
    sheets = [] if args.out is None else write_sheets(args.out, index, clusters)
    console = output(args)
    titled = [(each.title, each.images) for each in clusters if each.number > 0]
    _show(console, "cluster", "similarity to the mean of the cluster", titled)
    alone = len(index) - sum(len(images) for _, images in titled)
    if args.method == "hdbscan":
        outside = f"{alone:,} of {count(len(index), 'image')} in no cluster"
        console.say(f"{count(len(titled), 'cluster')}; {outside}")
    if nmi is not None:
        how = " (images in no cluster count as one cluster)" if alone else ""
        console.say(f"NMI of clusters and labels: {100 * nmi:.1f}%{how}")
    if sheets:
        console.say(f"Contact sheets: {sheets[0]}")
    return {
        "index": str(args.index),
        "items": len(index),
        "method": args.method,
        "clusters": [
            {
                "number": cluster.number,
                "label": None if cluster.label is None else cluster.label[0],
                "images": [asdict(hit) for hit in cluster.images],
            }
            for cluster in clusters
        ],
        "nmi": nmi,
        "sheets": [str(path) for path in sheets],
    }


def _show(
    console: Console, kind: str, number: str, groups: Sequence[tuple[str, Sequence[Hit]]]
) -> None:
    """Print the first groups of images, and the first images of each, below a heading."""
    if groups:
        console.say(f"Columns: {number}, path")
    for title, images in groups[:SHOWN]:
        console.say(title)
        for hit in images[:MEMBERS]:
            console.say(f"  {hit.similarity:.4f}  {hit.path}")
        if len(images) > MEMBERS:
            console.say(f"  ... and {count(len(images) - MEMBERS, 'more image')}")
    if len(groups) > SHOWN:
        console.say(f"... and {count(len(groups) - SHOWN, f'more {kind}')}; --json lists all")


def run_export(args: argparse.Namespace) -> dict[str, Any]:
    """Write the file, compare it with the run, and print its input and output shapes."""
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder: give a file such as {args.out / 'model.onnx'}")
    with usage_errors():
        source: Trained | Index
        if args.source.is_file():
            source = Index.open(args.source)
        else:
            source = load(args.source, "cpu", backbone=args.backbone, trust=args.trust)
        made = export(source, args.to, args.out)
    about, console = made.about, output(args)
    if isinstance(source, Trained):
        shapes = f"{tuple(about['input'])} -> {tuple(about['output'])}".replace("'", "")
        differs = f"differs from the run by at most {made.difference:.1e}"
        console.say(f"{made.file}: {about['backbone']}, {shapes}; {differs}")
    else:
        console.say(f"{made.file}: {about['items']:,} embeddings of {about['dim']} dimensions")
    if "items_file" in about:
        console.say(f"{about['items_file']}: id, path and label of each row")
    return {"file": str(made.file), "to": args.to, "difference": made.difference, **about}
