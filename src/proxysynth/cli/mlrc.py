"""`proxysynth mlrc`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from proxysynth.cli.console import output
from proxysynth.cli.parser import resources, usage_errors
from proxysynth.cli.train import check_exists
from proxysynth.formatting import count, duration
from proxysynth.protocols.mlrc import Study, make_study, run_study
from proxysynth.protocols.mlrc.settings import parse_changes
from proxysynth.protocols.mlrc.study import STUDY, check_folder
from proxysynth.report.study import PAGE, RESULT, write_study
from proxysynth.report.terminal import render_study
from proxysynth.training import WrongFolder
from proxysynth.training.callbacks import Bars

STUDIES = Path("runs") / "mlrc"
ENORMOUS = 2 * 24 * 3600  # seconds above which a plan suggests a smaller scale


def run_mlrc(args: argparse.Namespace) -> dict[str, Any]:
    machine = resources(args)
    with usage_errors():
        check_exists(args.data)
        sizes = {"trials": args.trials, "repetitions": args.runs, "folds": args.folds}
        changes = {"seed": args.seed, **parse_changes(args.settings)}
        study = make_study(args.data, args.loss, args.regularizer, args.scale, **sizes, **changes)
    folder = args.out or STUDIES / study.name_with_scale
    if args.plan:
        return _show_plan(study, folder, args)
    with usage_errors(WrongFolder):
        outcome = run_study(study, folder, storage=args.storage, resources=machine, progress=Bars())
    result = write_study(outcome, folder)
    page = str(folder / PAGE)
    render_study(result, output(args))
    output(args).say(f"Page: {page}")
    return {"folder": str(folder), "page": page, **result}


def _show_plan(study: Study, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """What the study trains, what of it is done in this folder, and how long the rest takes."""
    from proxysynth.protocols.estimates import Estimate

    scale, estimate = study.scale, Estimate(folder, args.device)
    done = len(list(folder.glob("*/*/fold*/result.json")))
    if (folder / STUDY).exists():
        with usage_errors():
            check_folder(folder, study.facts())
    try:
        made = json.loads((folder / RESULT).read_bytes())
        finished = made["trials"] >= scale.trials and made["repetitions"] >= scale.repetitions
    except (OSError, ValueError, KeyError, TypeError):
        finished = False
    seconds = 0.0 if finished else estimate.study(study)
    left = seconds * max(0, study.trainings - done) / study.trainings
    basis = "finished training runs" if estimate.finished else "a few timed steps"
    console = output(args)
    console.say(
        f"{study.name} at scale {study.scale_name}: {count(scale.trials, 'trial')} and "
        f"{count(scale.repetitions, 'repetition')} of {scale.folds} folds, {study.trainings} "
        f"training runs of up to {count(study.base.epochs, 'epoch')}; {done} done in {folder}."
    )
    console.say(
        "Finished: the same command shows the result."
        if finished
        else f"At most {duration(left, rough=True)} in one process, without early stopping or "
        f"pruning, estimated from {basis}."
    )
    if left > ENORMOUS and study.scale_name == "paper":
        console.say("--scale small has far fewer and shorter training runs.")
    return {
        "study": study.name,
        "scale": study.scale_name,
        "trials": scale.trials,
        "folds": scale.folds,
        "repetitions": scale.repetitions,
        "trainings": study.trainings,
        "done": done,
        "finished": finished,
        "seconds": left,
        "folder": str(folder),
    }
