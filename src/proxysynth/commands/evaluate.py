"""`proxysynth eval`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from proxysynth.commands.measures import COUNTS, show_measures
from proxysynth.commands.pictures_to_test import Pictures, pictures_to_test
from proxysynth.commands.usage import resources, understanding
from proxysynth.formatting import count
from proxysynth.protocols import (
    Conventional,
    Deformation,
    EmbeddingDeformation,
    contact_sheet,
    embeddings_of,
)
from proxysynth.training import load
from proxysynth.training.bars import Bars
from proxysynth.training.durable import write_bytes
from proxysynth.training.load import Trained
from proxysynth.training.resources import Resources

ONLY_FOR = {
    "nmi": ("--nmi", ("conventional",)),
    "ks": ("--ks", ("conventional", "deformation")),
    "sheet": ("--sheet", ("deformation",)),
    "opposite_zoom": ("--opposite-zoom", ("deformation",)),
    "seed": ("--seed", ("deformation", "embedding_deformation")),
}
"""Options that only some protocols have."""


def run_eval(args: argparse.Namespace) -> dict[str, Any]:
    """Embed the pictures, look them up, print the metrics."""
    machine = resources(args)
    with understanding():
        measure = _protocol(args)
        model = load(args.run, args.device)
    pictures = pictures_to_test(args, model, machine)
    facts = {
        "run": str(args.run),
        "data": pictures.name,
        "protocol": args.protocol,
        "epoch": model.epoch,
        "pictures": len(pictures),
    }
    told = measure(args, model, pictures, machine)
    classifies = model.run.task == "classification"
    warnings = pictures.warnings(() if classifies else model.classes)
    for sentence in warnings:
        Bars().say(f"Warning: {sentence}")
    return {**facts, **told, "warnings": warnings}


def _protocol(args: argparse.Namespace) -> Any:
    """The function that measures, if the options are ones of its protocol."""
    for name, (option, protocols) in ONLY_FOR.items():
        if getattr(args, name) not in (None, False) and args.protocol not in protocols:
            raise ValueError(
                f"{option} goes with --protocol {' or '.join(protocols)}, got {args.protocol}"
            )
    if args.sheet is not None:
        _check_sheet(args.sheet)
    _ks(args.ks)
    if args.seed is not None and args.seed < 0:
        raise ValueError(f"--seed takes a whole number from 0 on, got {args.seed}")
    return MEASURES[args.protocol]


def _conventional(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    protocol = Conventional(_ks(args.ks), args.nmi)
    with Bars().task("embedding", len(pictures)) as tick:
        tested = protocol(model, pictures.query, pictures.gallery, resources=machine, tick=tick)
    if not args.json:
        console = Console()
        show_measures({f"epoch {model.epoch}": tested.metrics}, _title(pictures), console)
        left_out = int(tested.metrics.get(COUNTS[1], 0))
        if left_out:
            console.print(
                f"{count(left_out, 'query', 'queries')} without another picture of the class: left "
                "out."
            )
    return {"metrics": tested.metrics}


def _deformation(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    protocol = Deformation(seed=args.seed or 0, opposite_zoom=args.opposite_zoom, ks=_ks(args.ks))
    sheet = None
    if args.sheet is not None:  # before the measuring, which takes longer
        sheet = str(args.sheet)
        write_bytes(args.sheet, contact_sheet(model, pictures.query, protocol, resources=machine))
        Bars().say(f"Contact sheet: {sheet}")
    versions = len(list(protocol.versions()))
    with Bars().task("embedding", versions * len(pictures)) as tick:
        metrics = protocol(model, pictures.query, pictures.gallery, resources=machine, tick=tick)
    if not args.json:
        rows = {name.replace("_", " "): measured for name, measured in metrics.items()}
        show_measures(rows, f"{_title(pictures)}, deformed", Console())
    return {"seed": protocol.seed, "sheet": sheet, "metrics": metrics}


def _embedding_deformation(
    args: argparse.Namespace, model: Trained, pictures: Pictures, machine: Resources
) -> dict[str, Any]:
    protocol = EmbeddingDeformation(seed=args.seed or 0)
    listings = {
        "train": [pictures.train] if pictures.train is not None else [],
        "test": [part for part in (pictures.query, pictures.gallery) if part is not None],
    }
    listings = {name: parts for name, parts in listings.items() if parts}
    metrics: dict[str, dict[str, float]] = {}
    with Bars().task("embedding", sum(len(p) for ps in listings.values() for p in ps)) as tick:
        embedded = {
            name: [embeddings_of(model, part, resources=machine, tick=tick) for part in parts]
            for name, parts in listings.items()
        }
    with Bars().task("mixing", len(listings) * len(protocol.lams)) as tick:
        for name, parts in listings.items():
            labels = torch.cat([torch.from_numpy(part.labels.copy()) for part in parts])
            recalls = protocol(torch.cat(embedded[name]), labels, tick=tick)
            metrics[name] = {f"{lam:.2f}": recall for lam, recall in recalls.items()}
    if not args.json:
        rows = {
            f"lam {lam}": {name: metrics[name][lam] for name in metrics}
            for lam in next(iter(metrics.values()))
        }
        show_measures(rows, f"Recall@1 of mixed embeddings, {pictures.name}, per cent", Console())
    return {"seed": protocol.seed, "pairs": protocol.pairs, "metrics": metrics}


MEASURES = {
    "conventional": _conventional,
    "deformation": _deformation,
    "embedding_deformation": _embedding_deformation,
}


def _title(pictures: Pictures) -> str:
    query = pictures.query
    classes = count(len(query.classes), "class", "classes")
    return f"{count(len(query), 'picture')} of {classes} of {pictures.name}, per cent"


def _check_sheet(path: Path) -> None:
    if path.suffix.lower() != ".png" or not path.absolute().parent.is_dir():
        raise ValueError(f"--sheet takes a PNG file in a folder that exists, got {path}")


def _ks(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        ks = tuple(int(part) for part in text.split(","))
    except ValueError:
        ks = (0,)
    if min(ks) < 1:
        raise ValueError(f"--ks takes whole numbers from 1 on, such as 1,10,100, got {text!r}")
    return ks
