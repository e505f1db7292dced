"""`proxysynth mlrc`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from proxysynth.cli.console import Console
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.cli.train import check_exists
from proxysynth.protocols.mlrc import Study, make_study, run_study
from proxysynth.protocols.mlrc.settings import parse_changes
from proxysynth.report.study import PAGE, write_study
from proxysynth.report.terminal import NestedBars, render_study
from proxysynth.training import WrongFolder

STUDIES = Path("runs") / "mlrc"


def run_mlrc(args: argparse.Namespace) -> dict[str, Any]:
    """Run the study, alone or with other processes; write and print its result."""
    machine = resources(args)
    study, folder = _study_and_folder(args)
    try:
        outcome = run_study(
            study, folder, storage=args.storage, resources=machine, progress=NestedBars()
        )
    except WrongFolder as error:
        raise UsageError(str(error)) from error
    result = write_study(outcome, folder)
    page = folder / PAGE
    if not args.json:
        console = Console()
        render_study(result, console)
        console.print(f"Page: {page}", markup=False, soft_wrap=True)
    return {"folder": str(folder), "page": str(page), **result}


def _study_and_folder(args: argparse.Namespace) -> tuple[Study, Path]:
    """The study that the options describe, and its folder."""
    with usage_errors():
        check_exists(args.data)
        study = make_study(
            args.data,
            args.loss,
            args.regularizer,
            args.scale,
            trials=args.trials,
            repetitions=args.runs,
            folds=args.folds,
            seed=args.seed,
            **parse_changes(args.settings),
        )
    return study, args.out or STUDIES / study.name
