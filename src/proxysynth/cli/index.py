"""`proxysynth index`."""

from __future__ import annotations

import argparse
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.errors import TrainingFailed
from proxysynth.search.build import update_index
from proxysynth.search.index import Index
from proxysynth.search.model import open_model
from proxysynth.training.callbacks import Bars

SHOWN = 20  # unreadable files listed in the terminal


def run_index(args: argparse.Namespace) -> dict[str, Any]:
    """Embed the new images of the folder, write the index, and print a summary."""
    machine, progress = resources(args, set_threads=True), Bars()
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder: give a file such as {args.out / 'shop.index'}")
    with usage_errors():
        model = open_model(args.model, args.device, backbone=args.backbone, trust=args.trust)
    try:
        built = update_index(
            model,
            args.folder,
            args.out,
            rebuild=args.rebuild,
            verify=args.verify,
            workers=machine.workers,
            progress=progress,
        )
    except TrainingFailed:  # of the disk or the files, not of the arguments
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
    for bad in built.unreadable[:SHOWN]:
        progress.say(f"skipped {bad.path}: {bad.reason}")
    if len(built.unreadable) > SHOWN:
        progress.say(f"... and {len(built.unreadable) - SHOWN:,} more; --json lists all of them")
    result: dict[str, Any] = {
        **vars(built),
        "file": str(built.file),
        "unreadable": [bad._asdict() for bad in built.unreadable],
        "dim": model.dim,
        "model": model.identity.to_json(),
    }
    if args.approximate:
        with usage_errors():
            approximate = Index.open(built.file).approximate(progress.say)
        progress.say(approximate.verdict)
        result["approximate"] = {f"recall@{k}": share for k, share in approximate.recall.items()}
    if not args.json:
        Console().say(built.summary)
    return result
