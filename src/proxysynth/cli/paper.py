"""`proxysynth paper`."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxysynth.cli.console import output
from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.formatting import count, duration
from proxysynth.paper.artifacts import TITLES
from proxysynth.values import suggestion

if TYPE_CHECKING:
    from proxysynth.paper.artifact import Artifact
    from proxysynth.paper.scale import Scale
    from proxysynth.paper.store import Store


def run_paper(args: argparse.Namespace) -> dict[str, Any]:
    if args.list:  # must not wait for torch
        for name, title in TITLES.items():
            output(args).say(f"{name:8}  {title}")
        return {"artifacts": TITLES}
    names = args.artifacts
    if not names:
        raise UsageError("name tables or figures, see `proxysynth paper --list`, or give `all`")
    with usage_errors():
        for name in names:
            if name not in (known := {**TITLES, "all": ""}):
                meant = suggestion(name, known)
                raise ValueError(f"unknown artifact {name!r}: {meant}see `proxysynth paper --list`")
    from proxysynth.errors import cannot_write, reason
    from proxysynth.files import CannotWrite
    from proxysynth.paper.artifacts import load_artifacts
    from proxysynth.paper.store import Store

    wanted, scale = load_artifacts(list(TITLES) if "all" in names else names), _scale(args)
    store = Store(args.out)
    try:  # before anything is trained
        if not args.plan or store.folder.is_file():  # mkdir refuses a file
            store.folder.mkdir(parents=True, exist_ok=True)
        if not args.plan and not os.access(store.folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "")
    except OSError as error:
        raise UsageError(
            f"--out takes a folder that can be written to, got {str(store.folder)[:100]!r} "
            f"({reason(error)}): give another place"
        ) from error
    if args.plan:
        return _show_plan(wanted, scale, store, args)
    try:
        return _make(wanted, scale, store, args)
    except CannotWrite as error:
        intact = "what was written before is complete"
        raise cannot_write(Path(str(error.filename)), error, intact) from error


def _make(
    wanted: Mapping[str, Artifact], scale: Scale, store: Store, args: argparse.Namespace
) -> dict[str, Any]:
    from proxysynth.paper import book
    from proxysynth.paper.artifact import Table
    from proxysynth.paper.store import train_all
    from proxysynth.provenance import provenance
    from proxysynth.training.callbacks import Bars

    progress = Bars()
    failed = train_all(wanted, scale, store, resources(args), progress)
    about = {"scale": scale.name, "seeds": str(len(scale.seeds)), **provenance()}
    artifacts: dict[str, dict[str, Any]] = {}
    with store.exclusive():
        for name, artifact in wanted.items():
            try:
                made = artifact(scale, store)
            except ValueError as error:
                if len(wanted) == 1:
                    raise
                progress.say(f"Skipped {name}: {error}")
                artifacts[name] = {"files": [], "reason": str(error)}
                continue
            files = [str(path) for path in book.add(name, made, scale, store, about)]
            artifacts[name], done = {"title": made.title, "files": files}, ""
            if isinstance(made, Table):
                cells = [cell for _, _, cell in made.cells() if not cell.text]
                measured = sum(bool(cell.ours) for cell in cells)
                artifacts[name] |= {"cells": len(cells), "measured": measured}
                done = f"{measured} of {len(cells)} cells measured, "
            progress.say(f"{made.title}: {done}{files[0]}")
        page, checked = book.write_book(scale, store, about)
    progress.say(f"Page: {page}. {book.conclusion(checked, scale)}")
    return {
        "scale": scale.name,
        "out": str(store.folder),
        "page": str(page),
        "artifacts": artifacts,
        "claims": [
            {"sentence": one.claim.sentence, "here": one.ours.status, "paper": one.paper.status}
            for one in checked
        ],
        "failed": {run.identity: reason for run, reason in failed.items()},
    }


def _scale(args: argparse.Namespace) -> Scale:
    from proxysynth.paper.scale import SCALES

    roots = {}
    with usage_errors():
        for text in args.data:
            name, _, root = text.partition(":")
            if not root:
                raise ValueError(f"--data takes NAME:ROOT such as cub200:birds, got {text!r}")
            roots[name] = root
        scale = SCALES[args.scale].with_roots(roots).with_settings(args.settings)
        for name, root in scale.roots:
            if not os.path.isdir(root):
                raise ValueError(f"--data {name}: there is no folder {root!r}, check the path")
        if args.seeds is not None and args.seeds < 1:
            raise ValueError(f"--seeds must be an integer >= 1, got {args.seeds}")
    return scale if args.seeds is None else replace(scale, seeds=tuple(range(args.seeds)))


def _show_plan(
    wanted: Mapping[str, Artifact], scale: Scale, store: Store, args: argparse.Namespace
) -> dict[str, Any]:
    """One line per artifact; with `--runs`, one per missing Run and study."""
    from proxysynth.paper.store import label, make_plans
    from proxysynth.protocols.estimates import Estimate

    plan, plans = make_plans(wanted, scale, store, Estimate(store.folder, args.device))
    console = output(args)
    if args.runs:
        lines = [(run.identity, plan.times[run], label(run)) for run in plan.known]
        lines += [("(searched)", plan.times[run], label(run)) for run in plan.later]
        studies = plan.studies.items()
        lines += [("study", plan.times[name], label(study.base)) for name, study in studies]
        for what, seconds, text in lines:
            console.say(f"{what:12}  {duration(seconds, rough=True):>12}  {text}")
    else:
        console.say(f"{'':8}  {'needed':>6}  {'done':>5}  {'time left':>12}")
        for name, one in plans.items():
            left = duration(one.seconds, rough=True) if one.missing else "-"
            console.say(f"{name:8}  {one.missing + one.done:>6}  {one.done:>5}  {left:>12}")
    console.say(f"{count(len(wanted), 'artifact')} at scale {scale.name}: {plan.summary}")
    return {
        "scale": scale.name,
        "artifacts": {
            name: {"needed": one.missing + one.done, "done": one.done, "seconds": one.seconds}
            for name, one in plans.items()
        },
        "missing": len(plan.known),
        "after_search": len(plan.later),
        "finished": plan.done,
        "seconds": plan.seconds,
        "measured": plan.finished,
        "runs": [
            {"identity": run.identity, "what": label(run), "seconds": plan.times[run]}
            for run in plan.known
        ],
        "studies": {name: plan.times[name] for name in plan.studies},
    }
