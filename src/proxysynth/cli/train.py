"""`proxysynth train`."""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from proxysynth.cli import FAILED, INTERRUPTED, USAGE, config
from proxysynth.cli.console import output
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.data import CATALOG, open_data
from proxysynth.distributed.process_group import Ranks, join_process_group, reports_failure
from proxysynth.files import LOCK
from proxysynth.models.libraries import backbone_option
from proxysynth.report import write_report
from proxysynth.report.settings import option_names
from proxysynth.report.terminal import render_metrics
from proxysynth.training import Run, read_run, train
from proxysynth.training.callbacks import Bars
from proxysynth.training.inference import has_embedding_layer, require_trust
from proxysynth.training.interrupts import handle_signals
from proxysynth.training.run_folder import EVALUATED, REPORT, RESULT, RUN, find_run
from proxysynth.values import parse_settings

RUNS = Path("runs")
FOLDER = "FOLDER"  # in a command that the user completes


def run_train(args: argparse.Namespace) -> dict[str, Any] | None:
    if args.show_config:
        run, _ = _run_and_folder(args)
        if not args.json:
            print(config.to_toml(run))
        return config.to_dict(run)
    with handle_signals(), join_process_group() as ranks:
        try:
            return _train(args, ranks)
        except (ValueError, OSError, RuntimeError) as error:
            if reports_failure(ranks):
                raise
            sys.exit(USAGE if isinstance(error, UsageError) else FAILED)
        except KeyboardInterrupt as error:
            if ranks.first:
                raise
            sys.exit(getattr(error, "status", INTERRUPTED))


def _train(args: argparse.Namespace, ranks: Ranks) -> dict[str, Any] | None:
    machine = resources(args)
    if args.tensorboard and find_spec("tensorboard") is None:  # before all images are read
        raise UsageError("--tensorboard needs TensorBoard: pip install 'proxysynth[tensorboard]'")
    run, folder = _run_and_folder(args)
    both = args.all_classes or find_run(folder / EVALUATED) is not None
    # A finished run keeps its report: its images may have moved since.
    before = _reported(folder)
    with usage_errors():
        result = train(run, folder, all_classes=both, resources=machine, progress=Bars())
    if not ranks.first:
        return None
    console, report = output(args), folder / REPORT
    trained = before is None or before != _reported(folder)
    if trained:
        if result.evaluated:
            write_report(folder / EVALUATED)
        report = write_report(folder)
    else:
        console.say("This run is finished: nothing was left to train.")
    if result.metrics:
        start = "untrained" if run.init is None else "before"
        rows = {"trained": result.metrics, start: result.untrained}
        tested = f"{result.tested.capitalize()} of {result.data['name']}"
        render_metrics(rows, f"{tested}, percent ({result.why})", console)
        if trained and run.drops_layer and result.interpolation.get("a") is not None:
            console.say(
                f"The epochs above were measured with the embedding layer of {run.dim} dimensions, "
                "these metrics without it, as it is not saved (see the report, Interpolation); to "
                "keep it, use --set interpolate=none."
            )
        console.say(result.verdict)
    if result.evaluated:
        console.say(result.notes[0])
    console.say(f"Report: {report}")
    if images := _images(run, args.data):
        model = result.better_backbone or folder
        out = f"{Path(folder).name}.index"
        out += "" if result.better_backbone else backbone_option(run.backbone)
        more = ", where FOLDER has a sub-folder per class" if images == FOLDER else ""
        console.say(f"Next: proxysynth index {model} {images} -o {out}{more}")
    return {"folder": str(folder), "report": str(report), **result.to_json()}


def _images(run: Run, given: str | None) -> str | None:
    """The folder that holds the run's images, as it was given; None if there is none. The labels
    of a CSV are not those of its folder."""
    data = given if given and os.path.exists(given) else os.path.expanduser(run.data)
    if run.data == "glyphs" or not os.path.exists(data):
        return None
    return data if os.path.isdir(data) else FOLDER


def _reported(folder: Path) -> bytes | None:
    """The result that the report in a folder shows, if there are both."""
    result = folder / RESULT
    return result.read_bytes() if result.is_file() and (folder / REPORT).is_file() else None


def _run_and_folder(args: argparse.Namespace) -> tuple[Run, Path]:
    """The run that the options and the configuration file describe, and its folder."""
    with usage_errors():
        if args.config is not None and args.config.is_dir():  # of a run
            args.config /= RUN
        options = (*config.NAMED, "backbone", "epochs", "seed")
        given = {name: getattr(args, name) for name in options}
        for name, least in (("epochs", 1), ("seed", 0)):
            if (number := given[name]) is not None and number < least:
                raise ValueError(f"--{name} must be an integer >= {least}, got {number}")
        given |= {"pretrained": False if args.from_scratch else None}
        given |= {"skip_bad": args.skip_bad or None, "init": args.init and str(args.init)}
        given = {name: value for name, value in given.items() if value is not None}
        given |= parse_settings(args.settings)
        settings = config.override({} if args.config is None else config.read(args.config), given)
        resumed = _resumed(args, settings) if args.resume else None
        if resumed is None and args.init is not None:
            settings = config.override(_earlier_settings(args.init), settings)
        run = resumed or config.make_run(settings)
        if "backbone" not in given:
            source = args.out / RUN if resumed else args.config or args.init
            require_trust(run.backbone, source, args.trust)
        if resumed is None:
            check_exists(run.data)
    if args.out is not None:
        return run, args.out
    parts = [os.path.splitext(os.path.basename(run.data.rstrip("/")))[0] or "data"]
    parts += [*(option_names(run.loss) or ()), f"seed{run.seed}", run.identity[:6]]
    parts += ["all"] if args.all_classes else []
    return run, RUNS / "-".join(parts)


def _resumed(args: argparse.Namespace, settings: config.Settings) -> Run | None:
    """The run in --out, with the settings that are given, so that another one is refused; None if
    it has not been recorded, because a kill came first."""
    if args.out is None:
        raise ValueError("--resume needs the folder of the run to resume: add --out DIR")
    # The run that is evaluated describes both trainings of a folder on all classes.
    found = find_run(args.out / EVALUATED) or find_run(args.out)
    if found is None:
        if settings.keys() <= {"epochs", "skip_bad"} and not (args.out / LOCK).exists():
            read_run(args.out)  # an error: neither a run nor settings to start one
        return None
    run, epochs = found.run, args.epochs
    if changes := {path: value for path, value in settings.items() if path != "epochs"}:
        run = config.make_run(config.override(config.to_settings(run), changes))
    if epochs is not None and epochs < run.epochs and epochs not in run.extended:
        raise ValueError(f"--epochs {epochs}: the run has {run.epochs} epochs already, give more")
    return run if epochs is None or epochs <= run.epochs else run.extend(epochs)


def _earlier_settings(folder: Path) -> config.Settings:
    """The settings that a run started from an earlier one inherits."""
    earlier = config.to_settings(read_run(folder).run)
    own = {"weights", "pretrained", "init", "extended", "split.unseen_fraction"}
    kept = {path: value for path, value in earlier.items() if path not in own}
    if not has_embedding_layer(folder):
        kept["dim"] = None
    return kept | {"pretrained": False}


def check_exists(data: str) -> None:
    """Raise ValueError if the data does not exist; its contents are checked later."""
    name, colon, root = data.partition(":")
    path = root if colon and name in CATALOG else data
    if data != "glyphs" and not os.path.exists(os.path.expanduser(path)):
        open_data(data)
