"""`proxysynth eval`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from typing import Any

import torch

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import Listing, UnreadableImages
from proxysynth.data.check import unreadable_images, without
from proxysynth.data.sources import open_test_data
from proxysynth.files import write_bytes
from proxysynth.formatting import count, printable
from proxysynth.protocols import (
    Conventional,
    Deformation,
    EmbeddingDeformation,
    contact_sheet,
    embeddings_of,
    own_splits,
)
from proxysynth.retrieval.reranking import parse_methods
from proxysynth.search.build import scan_folder
from proxysynth.search.groups import evaluate_queries
from proxysynth.search.index import Index
from proxysynth.training import load
from proxysynth.training.callbacks import Bars
from proxysynth.training.inference import Trained, label_tensor
from proxysynth.training.prepare import make_cache, open_splits
from proxysynth.training.resources import Resources
from proxysynth.training.run_folder import EVALUATED, find_run

ONLY_FOR = {
    "nmi": ("conventional",),
    "rerank": ("conventional",),
    "ks": ("conventional", "deformation"),
    "sheet": ("deformation",),
    "opposite_zoom": ("deformation",),
    "seed": ("deformation", "embedding_deformation"),
}
"""Options that only some protocols have."""


def run_eval(args: argparse.Namespace) -> dict[str, Any]:
    """Embed the images, measure, and print the metrics."""
    machine = resources(args)
    with usage_errors():
        _check_options(args)
        if args.run.is_file():
            return _evaluate_index(args, machine)
        model = load(args.run, args.device, backbone=args.backbone, trust=args.trust)
    pictures = pictures_to_test(args, model, machine)
    measured = MEASURES[args.protocol](args, model, pictures, machine)
    warnings = pictures.warnings(() if model.run.task == "classification" else model.classes)
    for sentence in warnings:
        Bars().say(f"Warning: {sentence}")
    return {
        "run": str(args.run),
        "data": pictures.name,
        "protocol": args.protocol,
        "epoch": model.epoch,
        "pictures": len(pictures),
        **measured,
        "warnings": warnings,
    }


def _check_options(args: argparse.Namespace) -> None:
    """Raise ValueError for options of another protocol, and for wrong values."""
    for name, protocols in ONLY_FOR.items():
        if getattr(args, name) not in (None, False) and args.protocol not in protocols:
            option, needed = name.replace("_", "-"), " or ".join(protocols)
            raise ValueError(f"--{option} needs --protocol {needed}, got {args.protocol}")
    sheet = args.sheet
    if sheet and (sheet.suffix.lower() != ".png" or not sheet.absolute().parent.is_dir()):
        raise ValueError(f"--sheet must be a PNG file in an existing folder, got {sheet}")
    if args.rerank is not None:
        parse_methods(args.rerank)
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"--seed must be an integer >= 0, got {args.seed}")


def _evaluate_index(args: argparse.Namespace, machine: Resources) -> dict[str, Any]:
    """A folder of labeled queries against an index."""
    if args.data is None or args.protocol != "conventional" or args.nmi:
        raise ValueError(
            "an index is evaluated with a folder of queries, one sub-folder per label, and without "
            "--protocol and --nmi"
        )
    resources(args, set_threads=True)
    index = Index.open(args.run)
    index.embedder(None, args.device, backbone=args.backbone, trust=args.trust)
    with Bars().task("embedding", len(scan_folder(args.data))) as tick:
        found = evaluate_queries(
            index,
            args.data,
            ks=args.ks or (1, 2, 4, 8),
            rerank=args.rerank,
            workers=machine.workers,
            tick=tick,
        )
    if found.unreadable and not args.skip_bad:
        one = found.unreadable[0]
        raise ValueError(
            f"{count(len(found.unreadable), 'query', 'queries')} cannot be read, such as "
            f"{one.path} ({one.reason}): remove them, or skip them with --skip-bad"
        )
    if not args.json:
        title = f"{found.metrics['queries']:,} queries against {len(index):,} images, percent"
        _show({printable(args.run.name): found.metrics}, title)
    for sentence in found.notes:
        Bars().say(f"Note: {sentence}")
    return {
        "index": str(args.run),
        "data": args.data,
        "rerank": args.rerank,
        "metrics": found.metrics,
        "unreadable": [one._asdict() for one in found.unreadable],
        "warnings": list(found.notes),
    }


def _conventional(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    protocol = Conventional(args.ks or (), args.nmi, args.rerank)
    with Bars().task("embedding", len(pictures)) as tick:
        tested = protocol(model, pictures.query, pictures.gallery, resources=machine, tick=tick)
    if not args.json:
        _show({f"epoch {model.epoch}": tested.metrics}, _title(pictures))
        excluded = int(tested.metrics.get("queries_without_positive", 0))
        if excluded:
            queries = count(excluded, "query", "queries")
            Console().print(f"Excluded: {queries} without another image of the same class.")
    return {"metrics": tested.metrics}


def _deformation(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    seed = args.seed or 0
    protocol = Deformation(seed=seed, opposite_zoom=args.opposite_zoom, ks=args.ks or ())
    if args.sheet is not None:  # first, since the evaluation takes longer
        write_bytes(args.sheet, contact_sheet(model, pictures.query, protocol, resources=machine))
        Bars().say(f"Contact sheet: {args.sheet}")
    versions = len(list(protocol.versions()))
    with Bars().task("embedding", versions * len(pictures)) as tick:
        metrics = protocol(model, pictures.query, pictures.gallery, resources=machine, tick=tick)
    if not args.json:
        rows = {name.replace("_", " "): measured for name, measured in metrics.items()}
        _show(rows, f"{_title(pictures)}, deformed")
    return {"seed": seed, "sheet": args.sheet and str(args.sheet), "metrics": metrics}


def _embedding_deformation(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    protocol = EmbeddingDeformation(seed=args.seed or 0)
    metrics: dict[str, dict[str, float]] = {}
    for name, listings in (
        ("train", [pictures.train]),
        ("test", [pictures.query, pictures.gallery]),
    ):
        parts = [part for part in listings if part is not None]
        if not parts:
            continue
        with Bars().task("embedding", sum(map(len, parts))) as tick:
            x = [embeddings_of(model, part, resources=machine, tick=tick) for part in parts]
        labels = torch.cat([label_tensor(part) for part in parts])
        with Bars().task("mixing", len(protocol.lams)) as tick:
            recalls = protocol(torch.cat(x), labels, tick=tick)
        metrics[name] = {f"{lam:.2f}": recall for lam, recall in recalls.items()}
    if not args.json:
        lams = next(iter(metrics.values()))
        rows = {f"lam {lam}": {name: metrics[name][lam] for name in metrics} for lam in lams}
        _show(rows, f"Recall@1 of mixed embeddings, {pictures.name}, percent")
    return {"seed": protocol.seed, "pairs": protocol.pairs, "metrics": metrics}


MEASURES = {
    "conventional": _conventional,
    "deformation": _deformation,
    "embedding_deformation": _embedding_deformation,
}


def _show(rows: dict[str, dict[str, float]], title: str) -> None:
    from proxysynth.report.terminal import render_metrics  # matplotlib, slow

    render_metrics(rows, title, Console())


def _title(pictures: Pictures) -> str:
    query = pictures.query
    classes = count(len(query.classes), "class", "classes")
    return f"{pictures.name}: {count(len(query), 'image')} of {classes}, percent"


@dataclass(frozen=True)
class Pictures:
    """The images to evaluate on.

    name: of the data, as the user wrote it.    train: the seen classes; None for other data.
    query, gallery: `gallery` is None if the queries are searched among themselves.
    """

    name: str
    query: Listing
    gallery: Listing | None
    train: Listing | None = None

    def __len__(self) -> int:
        return len(self.query) + (0 if self.gallery is None else len(self.gallery))

    def warnings(self, seen: tuple[str, ...]) -> list[str]:
        """Reasons why the metrics may mislead; `seen` are the classes of the training."""
        searched = (self.gallery or self.query).without_empty_classes().classes
        warnings = []
        if len(searched) == 1:
            warnings.append(
                f"All searched images are of one class ({searched[0]}), so every query "
                "is correct with any model: evaluate on 2 or more classes."
            )
        tested = set(self.query.without_empty_classes().classes)
        both = len(tested & set(seen))
        if both:
            some = "All" if both == len(tested) else f"{both:,} of {len(tested):,}"
            warnings.append(
                f"{some} classes have the names of classes seen in training, so the result is not "
                "only about unseen classes."
            )
        return warnings


def pictures_to_test(args: argparse.Namespace, model: Trained, machine: Resources) -> Pictures:
    """The images that the options name, each read once; bad ones are an error or skipped."""
    if args.data is None:
        if args.skip_bad:
            run = replace(model.run, skip_bad=True)
            model = replace(model, recorded=replace(model.recorded, run=run))
        if not open_splits(model.run).testable:
            evaluated = args.run / EVALUATED
            other = f", or evaluate {evaluated}" if find_run(evaluated) else ""
            raise UsageError(
                f"{args.run} was trained on all classes of its data, or all but one, which leaves "
                f"nothing to evaluate it on: name other data{other}"
            )
        splits = own_splits(model, machine, Bars())
        for note in splits.notes:
            Bars().say(note)
        return Pictures(model.run.data, splits.query, splits.gallery, splits.train)
    with usage_errors():
        query, gallery = open_test_data(args.data)
    parts = {"query": query} if gallery is None else {"query": query, "gallery": gallery}
    cache, total = make_cache(model.run, model.embedder, machine), sum(map(len, parts.values()))
    with Bars().task("reading", total) as tick:
        bad = unreadable_images(parts, cache, machine.loader_workers, lambda *_: tick(1, ""))
    errors = [error for found in bad.values() for error in found.values()]
    if errors:
        fault = UnreadableImages(errors, total)
        fault.report(Bars().say)
        if not args.skip_bad:
            raise fault
        Bars().say(f"{fault.summary()}. They are skipped.")
        parts = {name: without(part, bad[name]) for name, part in parts.items()}
        if not all(map(len, parts.values())):
            raise ValueError("none of the images can be read: choose other data")
    if gallery is None:
        parts["query"] = parts["query"].without_empty_classes()
    return Pictures(args.data, parts["query"], parts.get("gallery"))
