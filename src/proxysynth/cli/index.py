"""`proxysynth index`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.errors import TrainingFailed
from proxysynth.formatting import printable
from proxysynth.search.build import update_index
from proxysynth.search.index import Index
from proxysynth.search.model import open_model
from proxysynth.training.callbacks import Bars

SHOWN = 20  # unreadable files listed in the terminal


def run_index(args: argparse.Namespace) -> dict[str, Any]:
    """Embed the new images of the folder, write the index, and print a summary."""
    machine, progress = resources(args), Bars()
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    if args.out.is_dir():
        raise UsageError(f"{args.out} is a folder: give a file such as {args.out / 'shop.index'}")
    with usage_errors():
        model = open_model(args.model, args.device, backbone=args.backbone, trust=args.trust)
    with _working():
        built = update_index(
            model,
            args.folder,
            args.out,
            rebuild=args.rebuild,
            verify=args.verify,
            workers=machine.workers,
            progress=progress,
        )
    for bad in built.unreadable[:SHOWN]:
        progress.say(f"skipped {bad.path}: {bad.reason}")
    if len(built.unreadable) > SHOWN:
        progress.say(f"... and {len(built.unreadable) - SHOWN:,} more; --json lists all of them")
    result: dict[str, Any] = {
        "file": str(built.file),
        "items": built.items,
        "dim": model.dim,
        "embedded": built.embedded,
        "resumed": built.resumed,
        "kept": built.kept,
        "removed": built.removed,
        "unreadable": [bad._asdict() for bad in built.unreadable],
        "damage": built.damage,
        "verified": built.verified,
        "written": built.written,
        "seconds": built.seconds,
        "model": model.identity.to_json(),
    }
    if args.approximate:
        with usage_errors():
            approximate = Index.open(built.file).approximate(progress.say)
        progress.say(approximate.verdict)
        result["approximate"] = {f"recall@{k}": share for k, share in approximate.recall.items()}
    if not args.json:
        Console().print(printable(built.summary), markup=False, highlight=False, soft_wrap=True)
    return result


@contextmanager
def _working() -> Iterator[None]:
    """Turn a ValueError into a UsageError, except for failures of the disk or the files."""
    try:
        yield
    except TrainingFailed:
        raise
    except ValueError as error:
        raise UsageError(str(error)) from error
