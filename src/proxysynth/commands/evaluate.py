"""`proxysynth eval`."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from proxysynth.commands.measures import COUNTS, show_measures
from proxysynth.commands.usage import resources, understanding
from proxysynth.data import open_data
from proxysynth.data.everything import to_test_on
from proxysynth.protocols.conventional import Conventional, own_splits
from proxysynth.training import load
from proxysynth.training.bars import Bars


def run_eval(args: argparse.Namespace) -> dict[str, Any]:
    """Embed the pictures, look them up, print the metrics."""
    machine = resources(args)
    with understanding():
        protocol = Conventional(_ks(args.ks), args.nmi)
        model = load(args.run, args.device)
        if args.data is None:
            splits = own_splits(model, machine)
            query, gallery = splits.query, splits.gallery
        else:
            splits = open_data(args.data)
            query, gallery = to_test_on(args.data, splits)
    total = len(query) + (0 if gallery is None else len(gallery))
    with Bars().task("embedding", total) as tick:
        tested = protocol(model, query, gallery, resources=machine, tick=tick)
    name = args.data or model.run.data
    if not args.json:
        console = Console()
        title = f"{len(query):,} pictures of {len(query.classes):,} classes of {name}, per cent"
        show_measures({f"epoch {model.epoch}": tested.metrics}, title, console)
        left_out = int(tested.metrics.get(COUNTS[1], 0))
        if left_out:
            console.print(f"{left_out:,} queries have no other picture of their class: left out.")
    facts = {"run": str(args.run), "data": name, "protocol": args.protocol, "epoch": model.epoch}
    return {**facts, "pictures": total, "metrics": tested.metrics}


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
