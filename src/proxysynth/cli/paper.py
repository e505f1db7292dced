"""`proxysynth paper`."""

from __future__ import annotations

import argparse
import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from proxysynth.cli.parser import UsageError, usage_errors
from proxysynth.formatting import count, duration
from proxysynth.paper.artifacts import TITLES
from proxysynth.values import nearest

if TYPE_CHECKING:
    from proxysynth.paper.artifact import Artifact
    from proxysynth.paper.plan import Plan
    from proxysynth.paper.scale import Scale
    from proxysynth.paper.store import Store

OUT = Path("paper")


def run_paper(args: argparse.Namespace) -> dict[str, Any]:
    """Make tables and figures, or list or plan them."""
    if args.list:  # must not wait for torch
        if not args.json:
            for name, title in TITLES.items():
                print(f"{name:8}  {title}")
        return {"artifacts": TITLES}
    from proxysynth.errors import cannot_write
    from proxysynth.files import CannotWrite
    from proxysynth.paper.artifacts import load_artifacts
    from proxysynth.paper.store import Store

    wanted, scale = load_artifacts(_names(args.artifacts)), _scale(args)
    store = Store(_folder(args.out or OUT))
    if args.plan:
        return _show_plan(wanted, scale, store, args)
    _prepare(store.folder)
    try:
        return _make(wanted, scale, store, args)
    except CannotWrite as error:
        raise cannot_write(
            Path(str(error.filename)), error, "what was written before is complete"
        ) from error


def _make(
    wanted: Mapping[str, Artifact], scale: Scale, store: Store, args: argparse.Namespace
) -> dict[str, Any]:
    from proxysynth.cli.parser import resources
    from proxysynth.paper.book import add, write_book
    from proxysynth.paper.findings import counted
    from proxysynth.paper.plan import train_all
    from proxysynth.provenance import provenance
    from proxysynth.training.callbacks import Bars

    progress = Bars()
    failed = train_all(wanted, scale, store, resources(args), progress)
    about = {"scale": scale.name, "seeds": str(len(scale.seeds)), **provenance()}
    artifacts: dict[str, Any] = {}
    with store.exclusive():
        for name, artifact in wanted.items():
            try:
                made = artifact.make(scale, store)
            except ValueError as error:
                if len(wanted) == 1:
                    raise
                progress.say(f"{name} was not made: {error}")
                artifacts[name] = {"files": [], "reason": str(error)}
                continue
            files = [str(path) for path in add(name, made, scale, store, about)]
            cells = _cell_counts(made)
            artifacts[name] = {"title": made.title, "files": files, **cells}
            done = "{measured} of {cells} cells measured, ".format(**cells) if cells else ""
            progress.say(f"{made.title}: {done}{files[0]}")
        page, checked = write_book(scale, store, about)
    progress.say(f"Page: {page}. Of the paper's claims, {counted(checked)}.")
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


def _cell_counts(made: object) -> dict[str, int]:
    """How many cells of a table there are, and how many have a number of ours."""
    from proxysynth.paper.artifact import Table

    if not isinstance(made, Table):
        return {}
    cells = [cell for row in made.rows for cell in row.cells if not cell.text]
    return {"cells": len(cells), "measured": sum(bool(cell.ours) for cell in cells)}


def _names(names: list[str]) -> list[str]:
    """The names of the artifacts asked for; `all` for every one."""
    if not names:
        raise UsageError(
            "expected the names of tables or figures, got none: give `all`, or some of "
            "`proxysynth paper --list`"
        )
    for name in names:
        if name != "all" and name not in TITLES:
            raise UsageError(f"unknown artifact {name!r}: {nearest(name, [*TITLES, 'all'])}")
    return list(TITLES) if "all" in names else names


def _folder(out: Path) -> Path:
    """`--out`, which must not be a file."""
    try:
        is_file = out.expanduser().exists() and not out.expanduser().is_dir()
    except OSError as error:  # such as a name that is too long
        raise _unusable(out, error) from error
    if is_file:
        raise UsageError(f"--out takes a folder, got the file {str(out)!r}: give another place")
    return out


def _prepare(folder: Path) -> None:
    """Make sure that the folder can be written to, before anything is trained."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(folder, error) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise _unusable(folder, PermissionError(errno.EACCES, ""))


def _unusable(out: Path, error: OSError) -> UsageError:
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    name = str(out) if len(str(out)) < 100 else f"{str(out)[:60]}..."
    return UsageError(
        f"--out takes a folder that can be written to, got {name!r} ({reason}): give another place"
    )


def _scale(args: argparse.Namespace) -> Scale:
    from proxysynth.paper.scale import SCALES

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
        scale = SCALES[args.scale].with_roots(roots).with_settings(args.settings)
        if args.seeds is not None:
            if args.seeds < 1:
                raise ValueError(f"--seeds must be an integer >= 1, got {args.seeds}")
            scale = replace(scale, seeds=tuple(range(args.seeds)))
    return scale


def _show_plan(
    wanted: Mapping[str, Artifact], scale: Scale, store: Store, args: argparse.Namespace
) -> dict[str, Any]:
    """One line per artifact; with `--runs`, one per missing Run and study."""
    from proxysynth.paper.plan import label, make_plan
    from proxysynth.protocols.estimates import Estimate

    estimate = Estimate(store.folder, args.device)
    plans = {name: make_plan({name: one}, scale, store, estimate) for name, one in wanted.items()}
    plan = make_plan(wanted, scale, store, estimate)
    if not args.json:
        if args.runs:
            for run in (*plan.known, *plan.later):
                name = run.identity if run in plan.known else "(searched)"
                print(f"{name:12}  {duration(plan.times[run], rough=True):>12}  {label(run)}")
            for name in plan.studies:
                print(f"{'study':12}  {duration(plan.times[name], rough=True):>12}  {name}")
        else:
            print(f"{'':8}  {'needed':>6}  {'done':>5}  {'time left':>12}")
            for name, one in plans.items():
                left = duration(one.seconds, rough=True) if one.missing else "-"
                print(f"{name:8}  {one.missing + one.done:>6}  {one.done:>5}  {left:>12}")
        print(_plan_summary(plan, wanted, scale))
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


def _plan_summary(plan: Plan, wanted: Mapping[str, Artifact], scale: Scale) -> str:
    """The last line of a plan."""
    what = f"{count(len(wanted), 'artifact')} at the scale {scale.name}"
    if not plan.missing:
        finished = f"all {count(plan.done, 'Run')} finished" if plan.done else "nothing to train"
        return f"{what}: {finished}."
    runs = len(plan.known) + len(plan.later)
    needed = [count(runs, "Run")] if runs else []
    needed += [count(len(plan.studies), "study", "studies")] if plan.studies else []
    basis = "finished Runs" if plan.finished else "a few timed steps"
    summary = (
        f"{what}: {' and '.join(needed)} missing, {plan.done} finished; about "
        f"{duration(plan.seconds, rough=True)} in one process, estimated from {basis}. Shared Runs "
        "are counted once."
    )
    later = " Runs marked (searched) will get the alpha and mu that a search finds."
    return summary + later * bool(plan.later)
