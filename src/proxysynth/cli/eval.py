"""`proxysynth eval`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from proxysynth import protocols
from proxysynth.cli.console import output
from proxysynth.cli.index import check_order
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import Splits, check_splits
from proxysynth.data.sources import open_test_data
from proxysynth.files import write_bytes
from proxysynth.formatting import count, printable
from proxysynth.retrieval.reranking import parse_methods
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
"""The protocols that have these options."""


def run_eval(args: Namespace) -> dict[str, Any]:
    machine = resources(args)
    with usage_errors():
        _check_options(args)
    result = (_evaluate_index if args.run.is_file() else _evaluate_run)(args, machine)
    for sentence in result["warnings"]:
        Bars().say(f"Warning: {sentence}")
    return result


def _evaluate_run(args: Namespace, machine: Resources) -> dict[str, Any]:
    """A protocol on the run's own test data, or on other data."""
    with usage_errors():
        check_order(args.run, [] if args.data is None else [Path(args.data)], "eval RUN DATA")
        model = load(args.run, args.device, backbone=args.backbone, trust=args.trust)
    data = _own_data(args, model, machine) if args.data is None else _data(args, model, machine)
    for note in data.notes:
        Bars().say(note)
    if not all(len(part) for name, part in data.parts.items() if name != "train"):
        raise ValueError("none of the images can be read: choose other data")
    return {
        "run": str(args.run),
        "data": data.name,
        "protocol": args.protocol,
        "epoch": model.epoch,
        "pictures": _count(data),
        **MEASURES[args.protocol](args, model, data, machine),
        "warnings": [*_one_class(data), *_seen(data.query.without_empty_classes().classes, model)],
    }


def _check_options(args: Namespace) -> None:
    """Raise ValueError for options of another protocol, and for wrong values."""
    for name, needed in ONLY_FOR.items():
        value = getattr(args, name)
        if value is not None and value is not False and args.protocol not in needed:
            option, names = name.replace("_", "-"), " or ".join(needed)
            raise ValueError(f"--{option} needs --protocol {names}, got {args.protocol}")
    sheet = args.sheet
    if sheet and (sheet.suffix.lower() != ".png" or not sheet.absolute().parent.is_dir()):
        raise ValueError(f"--sheet must be a PNG file in an existing folder, got {sheet}")
    if args.rerank is not None:
        parse_methods(args.rerank)
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"--seed must be an integer >= 0, got {args.seed}")


def _evaluate_index(args: Namespace, machine: Resources) -> dict[str, Any]:
    """A folder of labeled queries against an index."""
    options = {"ks": args.ks or (1, 2, 4, 8), "rerank": args.rerank, "workers": machine.workers}
    with usage_errors():
        if args.data is None:
            raise ValueError(f"an index needs labeled queries: `proxysynth eval {args.run} FOLDER`")
        if args.protocol != "conventional" or args.nmi:
            raise ValueError("--protocol and --nmi need a run, got an index")
        index = Index.open(args.run)
        model = index.embedder(None, args.device, backbone=args.backbone, trust=args.trust).model
        found = evaluate_queries(index, args.data, **options, progress=Bars())
    if found.unreadable and not args.skip_bad:
        one, bad = found.unreadable[0], count(len(found.unreadable), "query", "queries")
        such = f"such as {one.path} ({one.reason})"
        raise ValueError(f"{bad} cannot be read, {such}: remove them, or add --skip-bad")
    title = f"{found.metrics['queries']:,} queries, each searching {len(index):,} images, percent"
    _show(args, {printable(args.run.name): found.metrics}, title)
    return {
        "index": str(args.run),
        "data": args.data,
        "rerank": args.rerank,
        "metrics": found.metrics,
        "unreadable": [one._asdict() for one in found.unreadable],
        "warnings": [*found.notes, *_seen(found.labels, model)],
    }


# ---- Protocols


def _retrieval(args: Namespace, model: Trained, data: Splits, machine: Resources) -> dict[str, Any]:
    protocol = protocols.Conventional(args.ks or (), args.nmi, args.rerank)
    with Bars().task("embedding", _count(data)) as tick:
        tested = protocol(model, data.query, data.gallery, resources=machine, tick=tick)
    _show(args, {args.run.resolve().name: tested.metrics}, _title(data))
    excluded = int(tested.metrics.get("queries_without_positive", 0))
    if excluded:
        queries = count(excluded, "query", "queries")
        output(args).print(f"Excluded: {queries} without another image of the same class.")
    return {"metrics": tested.metrics}


def _deformed(args: Namespace, model: Trained, data: Splits, machine: Resources) -> dict[str, Any]:
    seed = args.seed or 0
    protocol = protocols.Deformation(seed=seed, opposite_zoom=args.opposite_zoom, ks=args.ks or ())
    if args.sheet is not None:  # first, since the evaluation takes longer
        sheet = protocols.contact_sheet(model, data.query, protocol, resources=machine)
        write_bytes(args.sheet, sheet)
        Bars().say(f"Contact sheet: {args.sheet}")
    with Bars().task("embedding", len(list(protocol.versions())) * _count(data)) as tick:
        metrics = protocol(model, data.query, data.gallery, resources=machine, tick=tick)
    rows = {name.replace("_", " "): measured for name, measured in metrics.items()}
    _show(args, rows, f"{_title(data)}, deformed")
    return {"seed": seed, "sheet": args.sheet and str(args.sheet), "metrics": metrics}


def _mixed(args: Namespace, model: Trained, data: Splits, machine: Resources) -> dict[str, Any]:
    protocol = protocols.EmbeddingDeformation(seed=args.seed or 0)
    metrics: dict[str, dict[str, float]] = {}
    for name, listings in (("train", [data.train]), ("test", [data.query, data.gallery])):
        parts = [part for part in listings if part]
        if not parts:  # other data than the run's has no training part
            continue
        with Bars().task("embedding", sum(map(len, parts))) as tick:
            x = [
                protocols.embeddings_of(model, part, resources=machine, tick=tick) for part in parts
            ]
        labels = torch.cat([label_tensor(part) for part in parts])
        with Bars().task("mixing", len(protocol.lams)) as tick:
            recalls = protocol(torch.cat(x), labels, tick=tick)
        metrics[name] = {f"{lam:.2f}": recall for lam, recall in recalls.items()}
    lams = next(iter(metrics.values()))
    rows = {f"lam {lam}": {name: metrics[name][lam] for name in metrics} for lam in lams}
    _show(args, rows, f"Recall@1 of mixed embeddings, {data.name}, percent")
    return {"seed": protocol.seed, "pairs": protocol.pairs, "metrics": metrics}


MEASURES = {"conventional": _retrieval, "deformation": _deformed, "embedding_deformation": _mixed}


def _show(args: Namespace, rows: dict[str, dict[str, float]], title: str) -> None:
    if not args.json:
        from proxysynth.report.terminal import render_metrics  # matplotlib, slow

        ranking = f", re-ranked by {args.rerank}" if args.rerank else ""
        render_metrics(rows, title + ranking, output(args))


# ---- Data


def _count(data: Splits) -> int:
    """The images that are tested on."""
    return len(data.query) + len(data.gallery or ())


def _title(data: Splits) -> str:
    classes = count(len(data.query.classes), "class", "classes")
    others = "the others" if data.gallery is None else count(len(data.gallery), "image")
    images = count(len(data.query), "image")
    return f"{data.name}: {images} of {classes}, each searching {others}, percent"


def _one_class(data: Splits) -> Iterator[str]:
    """A warning if every answer is correct."""
    searched = (data.gallery or data.query).without_empty_classes().classes
    if len(searched) == 1:
        one = f"All searched images are of one class ({searched[0]})"
        yield f"{one}, so every query is correct: evaluate on 2 or more classes."


def _seen(classes: Iterable[str], model: Trained) -> Iterator[str]:
    """A warning if the model was trained on some of the classes that it is tested on."""
    tested = set(classes)
    both = 0 if model.run.task == "classification" else len(tested & set(model.classes))
    if both:
        some = "All" if both == len(tested) else f"{both:,} of {len(tested):,}"
        yield f"{some} classes share names with classes seen in training and may not be unseen."


def _own_data(args: Namespace, model: Trained, machine: Resources) -> Splits:
    """The images that the run was trained and tested on."""
    if args.skip_bad:
        run = replace(model.run, skip_bad=True)
        model = replace(model, recorded=replace(model.recorded, run=run))
    if not open_splits(model.run).testable:
        evaluated = args.run / EVALUATED
        other = f", or evaluate {evaluated}" if find_run(evaluated) else ""
        raise UsageError(f"{args.run} was trained on all its classes: name other data{other}")
    return replace(protocols.own_splits(model, machine, Bars()), name=model.run.data)


def _data(args: Namespace, model: Trained, machine: Resources) -> Splits:
    """Other images, each read once; bad ones are an error or skipped."""
    with usage_errors():
        query, gallery = open_test_data(args.data)
    query = query.without_empty_classes() if gallery is None else query
    splits = Splits(query.of_classes(()), query, gallery, name=args.data)
    cache, bars = make_cache(model.run, model.embedder, machine), Bars()
    with bars.task("reading", sum(map(len, splits.parts.values()))) as tick:
        return check_splits(
            splits, args.skip_bad, cache, machine.loader_workers, tick=tick, say=bars.say
        )
