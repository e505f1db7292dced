"""`proxysynth paper`."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from proxysynth.cli.parser import UsageError, resources, usage_errors
from proxysynth.errors import cannot_write
from proxysynth.files import CannotWrite
from proxysynth.paper.artifact import Artifact, Table
from proxysynth.paper.artifacts import ARTIFACTS
from proxysynth.paper.book import add, write_book
from proxysynth.paper.plan import Plan, estimator, make_plan
from proxysynth.paper.render.claims_page import counted
from proxysynth.paper.scale import SCALES, Scale
from proxysynth.paper.store import Store
from proxysynth.paper.work import do, label, spoken
from proxysynth.provenance import provenance
from proxysynth.training.bars import Bars
from proxysynth.training.progress import Progress
from proxysynth.values import nearest

OUT = Path("paper")


def run_paper(args: argparse.Namespace) -> dict[str, Any]:
    """Tables and figures into a folder, or a list or a plan of them."""
    if args.list:
        return _listed(args.json)
    wanted, scale = _wanted(args.artifacts), _scale(args)
    store = Store(_folder(args.out or OUT))
    if args.plan:
        return _planned(make_plan(wanted, scale, store), wanted, scale, args.json)
    _make_ready(store.folder)
    try:
        return _made(wanted, scale, store, args)
    except CannotWrite as error:
        raise cannot_write(Path(str(error.filename)), error, "what was made is whole") from error


def _made(
    wanted: Mapping[str, Artifact], scale: Scale, store: Store, args: argparse.Namespace
) -> dict[str, Any]:
    machine, progress = resources(args), Bars()
    broken = do(wanted, scale, store, machine, progress, estimator(store))
    about = {"scale": scale.name, "seeds": str(len(scale.seeds)), **provenance()}
    told: dict[str, Any] = {}
    with store.alone():
        for name, artifact in wanted.items():
            try:
                what = artifact.make(scale, store)
            except ValueError as error:
                if len(wanted) == 1:
                    raise
                progress.say(f"{name} was not made: {error}")
                told[name] = {"files": [], "reason": str(error)}
                continue
            files = [str(path) for path in add(name, what, artifact, scale, store, about)]
            told[name] = {"title": what.title, "files": files, **_counted(what)}
            progress.say(f"{what.title}: {_spoken(told[name])}{files[0]}")
        page, checked = write_book(ARTIFACTS, scale, store, about)
    _say_end(progress, page, checked)
    return {
        "scale": scale.name,
        "out": str(store.folder),
        "page": str(page),
        "artifacts": told,
        "claims": [
            {"sentence": one.claim.sentence, "here": one.ours.status, "paper": one.paper.status}
            for one in checked
        ],
        "failed": {run.identity: reason for run, reason in broken.items()},
    }


def _say_end(progress: Progress, page: Path, checked: list[Any]) -> None:
    progress.say(f"The page is {page}. Of the paper's claims, here {counted(checked)}.")


def _counted(what: object) -> dict[str, int]:
    """How many cells have a number of ours, of how many that could."""
    if not isinstance(what, Table):
        return {}
    cells = [cell for row in what.rows for cell in row.cells if not cell.text]
    return {"cells": len(cells), "measured": sum(bool(cell.ours) for cell in cells)}


def _spoken(told: Mapping[str, Any]) -> str:
    return f"{told['measured']} of {told['cells']} cells measured, " if "cells" in told else ""


def _wanted(names: list[str]) -> dict[str, Artifact]:
    """The artifacts of these names in the paper's order; "all" for every one."""
    if not names:
        raise UsageError(
            "expected the names of tables or figures, got none: give `all`, or some of "
            "`proxysynth paper --list`"
        )
    for name in names:
        if name != "all" and name not in ARTIFACTS:
            raise UsageError(f"unknown artifact {name!r}: {nearest(name, [*ARTIFACTS, 'all'])}")
    return {name: one for name, one in ARTIFACTS.items() if "all" in names or name in names}


def _folder(out: Path) -> Path:
    """`--out`, refused where it is a file: its Runs would look like broken ones."""
    try:
        wrong = out.expanduser().exists() and not out.expanduser().is_dir()
    except OSError as error:  # such as a name that is too long
        raise _unusable(out, error) from error
    if wrong:
        raise UsageError(f"--out takes a folder, got the file {str(out)!r}: give another place")
    return out


def _make_ready(folder: Path) -> None:
    """Make sure that there is a folder to write to, before anything is trained."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, PermissionError(errno.EACCES, ""))


def _unusable(out: Path, error: OSError) -> UsageError:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    named = str(out) if len(str(out)) < 100 else f"{str(out)[:60]}..."
    return UsageError(
        f"--out takes a folder that can be written to, got {named!r}, where that fails ({reason}): "
        "give another place"
    )


def _scale(args: argparse.Namespace) -> Scale:
    roots = {}
    for text in args.data:
        name, colon, root = text.partition(":")
        if not colon or not root:
            raise UsageError(
                f"--data takes NAME:ROOT such as cub200:data/CUB_200_2011, got {text!r}"
            )
        if not Path(root).expanduser().is_dir():
            raise UsageError(f"--data {name}: there is no folder {root!r}, check the path")
        roots[name] = root
    with usage_errors():
        scale = SCALES[args.scale].with_roots(roots)
        if args.seeds is not None:
            if args.seeds < 1:
                raise ValueError(f"--seeds must be a whole number from 1 on, got {args.seeds}")
            scale = replace(scale, seeds=tuple(range(args.seeds)))
    return scale


def _listed(as_json: bool) -> dict[str, Any]:
    if not as_json:
        for name, artifact in ARTIFACTS.items():
            print(f"{name:8}  {artifact.title}")
    return {"artifacts": {name: artifact.title for name, artifact in ARTIFACTS.items()}}


def _planned(
    plan: Plan, wanted: Mapping[str, Artifact], scale: Scale, as_json: bool
) -> dict[str, Any]:
    if not as_json:
        for run in plan.known:
            print(f"{run.identity}  {spoken(plan.times[run]):>8}  {label(run)}")
        for run in plan.later:
            print(f"{'(searched)':12}  {spoken(plan.times[run]):>8}  {label(run)}")
        print(_summed(plan, wanted, scale))
    return {
        "scale": scale.name,
        "artifacts": list(wanted),
        "missing": len(plan.known),
        "after_search": len(plan.later),
        "finished": plan.done,
        "seconds": plan.seconds,
        "measured": plan.measured,
        "runs": [
            {"identity": run.identity, "what": label(run), "seconds": plan.times[run]}
            for run in plan.known
        ],
    }


def _summed(plan: Plan, wanted: Mapping[str, Artifact], scale: Scale) -> str:
    """The last line of a plan."""
    what = f"{len(wanted)} artifact{'s' * (len(wanted) != 1)} at the scale {scale.name}"
    count = len(plan.known) + len(plan.later)
    if not count and not plan.done:
        return f"{what}: nothing is to be trained."
    if not count:
        return f"{what}: all {plan.done} Runs are finished."
    basis = "by the finished ones" if plan.measured else "by rough rates of each network"
    told = (
        f"{what}: {count} Run{'s' * (count != 1)} missing, {plan.done} finished; about "
        f"{spoken(plan.seconds)} in one process, {basis}."
    )
    searched = " What is marked (searched) will have the alpha and mu that a search finds."
    return told + searched * bool(plan.later)
