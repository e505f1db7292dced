"""`proxysynth train`."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from proxysynth.cli import FAILED, INTERRUPTED, USAGE
from proxysynth.cli.eval import show_measures
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import BENCHMARKS, open_data
from proxysynth.distributed.process_group import Ranks, joined, speaks
from proxysynth.report import write_report
from proxysynth.report.run_report import REPORT
from proxysynth.training import Run, WrongFolder, read_run, train
from proxysynth.training.bars import Bars
from proxysynth.training.record import RESULT
from proxysynth.training.words import run_from_words

RUNS = Path("runs")


def run_train(args: argparse.Namespace) -> dict[str, Any] | None:
    """Train, write the report, print the result. Of several processes one speaks."""
    with joined() as ranks:
        try:
            return _trained(args, ranks)
        except (ValueError, OSError, RuntimeError) as error:
            if speaks(ranks):
                raise
            sys.exit(USAGE if isinstance(error, UsageError) else FAILED)
        except KeyboardInterrupt:
            if ranks.first:
                raise
            sys.exit(INTERRUPTED)


def _trained(args: argparse.Namespace, ranks: Ranks) -> dict[str, Any] | None:
    machine = resources(args)
    run, folder = _asked(args)
    report = folder.expanduser() / REPORT
    # Looked at again, a finished run keeps its report: the pictures may have moved since.
    told = report.is_file() and (report.parent / RESULT).is_file()
    try:
        result = train(run, folder, resources=machine, progress=Bars())
    except WrongFolder as error:
        raise UsageError(str(error)) from error
    if not ranks.first:
        return None
    if not told:
        report = write_report(folder)
    if not args.json:
        console = Console()
        show_measures(
            {"trained": result.metrics, "untrained backbone": result.untrained},
            f"{result.tested.capitalize()} of {result.data['name']}, per cent ({result.why})",
            console,
        )
        console.print(result.verdict, markup=False)
        console.print(f"Report: {report}", markup=False, soft_wrap=True)
    return {"folder": str(folder), "report": str(report), **result.to_json()}


def _asked(args: argparse.Namespace) -> tuple[Run, Path]:
    """The run these words ask for, and its folder."""
    words = (args.data, args.loss, args.regularizer, args.backbone, args.epochs, args.seed)
    silent = not (any(word is not None for word in words) or args.settings or args.from_scratch)
    with usage_errors():
        if args.resume:
            if args.out is None:
                raise ValueError("--resume goes on with the run in a folder: name it with --out")
            recorded = read_run(args.out)
            if silent:
                skip = args.skip_bad or recorded.run.skip_bad
                return replace(recorded.run, skip_bad=skip), args.out
        run = run_from_words(
            "glyphs" if args.data is None else args.data,
            args.loss or "norm_softmax",
            args.regularizer or "proxy_synthesis",
            args.settings,
            backbone=args.backbone,
            epochs=args.epochs,
            seed=args.seed,
            pretrained=False if args.from_scratch else None,
            skip_bad=True if args.skip_bad else None,
        )
        _check_there(run.data)
    if args.out is not None:
        return run, args.out
    name = os.path.splitext(os.path.basename(run.data.rstrip("/")))[0] or "data"
    loss, regularizer = args.loss or "norm_softmax", args.regularizer or "proxy_synthesis"
    return run, RUNS / f"{name}-{loss}-{regularizer}-seed{run.seed}-{run.identity[:6]}"


def _check_there(data: str) -> None:
    """Data that cannot be found is a mistyped word; what is wrong inside it is found out later."""
    name, colon, root = data.partition(":")
    place = root if colon and name in BENCHMARKS else data
    if data != "glyphs" and not os.path.exists(place):
        open_data(data)
