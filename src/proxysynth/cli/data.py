"""`proxysynth data list`, `check` and `prepare`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.markup import escape

from proxysynth import data
from proxysynth.cli import print_json
from proxysynth.cli.console import output
from proxysynth.cli.parser import usage_errors
from proxysynth.values import encode, look_up


def run_list(args: argparse.Namespace) -> dict[str, Any]:
    rows = data.catalog_rows()
    console = output(args)
    for row in rows:
        parts = [
            f"{part} {row['pictures'][part]:,} images of {row['classes'][part]:,} classes"
            for part in row["pictures"]
        ]
        console.print(f"[bold]{row['name']}[/bold]  {escape(row['title'])}, {row['size']}")
        facts = {"has": "; ".join(parts), "needs": ", ".join(row["needs"])}
        facts |= {"from": row["published"], "license": row["license"], "note": row["note"]}
        for name, fact in facts.items():
            if fact:  # never wrapped: addresses are to be copied
                console.say(f"  {name:7}  {fact}")
        console.print()
    return {"benchmarks": rows}


def run_check(args: argparse.Namespace) -> dict[str, Any]:
    """Read every file of a copy, or try a file of weights; an incomplete copy and weights that
    recognize nothing are errors, whose details are printed as well."""
    checked: Any
    refusal = ""
    if args.name == "weights":
        from proxysynth.training.check_weights import check_weights

        checked = check_weights(args.root)
        result = {**encode(checked), "plausible": checked.plausible}
        if not checked.plausible:
            found = f"recognizes {checked.recognized} of {len(checked.ranks)} drawings"
            refusal = f"{args.root} fits {checked.backbone}, but {found}: get another copy"
    else:
        with _reading(args, "reading") as options:
            checked = data.check_benchmark(args.name, args.root, args.allow_incomplete, **options)
        result, refusal = encode(checked), checked.refusal
    output(args).print(checked.describe(), markup=False, soft_wrap=True)
    if refusal:
        if args.json:
            print_json(result)
        raise RuntimeError(refusal)
    return result


def run_prepare(args: argparse.Namespace) -> dict[str, Any]:
    out = args.out or args.root.with_name(f"{args.root.name}-{args.side}")
    copy = (args.name, args.root, out, args.side, args.allow_incomplete)
    try:
        with _reading(args, "resizing") as options:
            made = data.prepare_benchmark(*copy, **options)
    except data.UnreadableImages as error:  # its message suggests an option of other commands
        raise RuntimeError(str(error).replace("--skip-bad", "--allow-incomplete")) from error
    existed = f"{made.kept:,} existed already"
    output(args).say(f"{made.written:,} images written to {made.root}, {existed}.")
    return dict(encode(made))


@contextmanager
def _reading(args: argparse.Namespace, name: str) -> Iterator[dict[str, Any]]:
    """The threads that read a benchmark, and a progress bar over its images."""
    from proxysynth.training.callbacks import Bars

    with usage_errors():
        images = look_up(args.name, data.CATALOG, "benchmark").pictures
    workers = data.default_workers() if args.workers is None else args.workers
    with Bars().task(name, sum(images.values())) as tick:
        yield {"workers": workers, "tick": tick}
