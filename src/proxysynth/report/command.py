"""What to type to have a run again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS
from proxysynth.training.run import Run
from proxysynth.training.words import run_from_words
from proxysynth.values import KIND, encode

from .finished_run import FinishedRun

PYTHON = """from proxysynth.training import read_run, train

train(read_run({!r}).run, {!r})"""
FLAGS = ("backbone", "epochs", "seed")  # fields of a Run with an option of their own


def command(run: FinishedRun) -> str:
    """What to type to have a finished run again in another folder; in Python where it must be."""
    out = f"{run.name}-again"
    return repeat_command(run.run, out) or PYTHON.format(str(run.path), out)


def repeat_command(run: Run, out: str) -> str | None:
    """A short `proxysynth train` that trains exactly this run; None where there is none.

    It says only what is not a default. Each word is added because the command so far trains
    something else, and the last one because then it trains the run.

    Args:
        run: the run.
        out: the folder it should go to; the one it is in holds it already.
    """
    named = _names(run.loss)
    if named is None:
        return None
    loss, regularizer = named
    options: dict[str, Any] = {"data": run.data, "loss": loss, "regularizer": regularizer}
    settings: list[str] = []
    made = run_from_words(**options)
    while made != run:
        missing = list(_differences(encode(run), encode(made)))
        # One at a time, since some fields bring others along; all where one alone makes no run.
        for some in (missing[:1], missing):
            flags = {path: value for path, value in some if path in FLAGS}
            said = [f"{_spoken(p, regularizer)}={_typed(v)}" for p, v in some if p not in FLAGS]
            if flags.keys() & options.keys() or set(said) & set(settings):
                return None  # said already, and still not so
            trial = _try(options | flags, settings + said)
            if trial is not None:
                break
        else:
            return None
        made, options, settings = trial, options | flags, settings + said
    words = ["proxysynth", "train"]
    words += [run.data] if run.data != Run.data else []
    usual = _names(Run.loss)
    for name, default in zip(("loss", "regularizer"), usual or (), strict=True):
        words += [f"--{name}", options[name]] if options[name] != default else []
    for name in FLAGS:
        words += [f"--{name}", str(options[name])] if name in options else []
    for setting in settings:
        words += ["--set", setting]
    return shlex.join([*words, "--out", out])


def _try(options: dict[str, Any], settings: list[str]) -> Run | None:
    try:
        return run_from_words(**options, settings=settings)
    except ValueError:
        return None


def _names(loss: Any) -> tuple[str, str] | None:
    """A loss and its regulariser as the command line calls them."""
    outer = {kind: name for name, kind in REGULARIZERS.items() if kind is not None}
    regularizer = outer.get(type(loss), "none")
    inner = loss if regularizer == "none" else loss.loss
    name = next((name for name, kind in LOSSES.items() if type(inner) is kind), None)
    return None if name is None else (name, regularizer)


def _spoken(path: str, regularizer: str) -> str:
    """A regulariser holds the loss, so loss.loss.scale is called loss.scale, and loss.mu
    regularizer.mu."""
    if regularizer == "none" or not path.startswith("loss."):
        return path
    if path.startswith("loss.loss."):
        return path.removeprefix("loss.")
    return f"regularizer.{path.removeprefix('loss.')}"


def _differences(wanted: Any, given: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """path and value wherever the two differ, as deep as they are of one kind."""
    both = isinstance(wanted, dict) and isinstance(given, dict)
    if both and wanted.get(KIND) == given.get(KIND):
        for key, value in wanted.items():
            if value != given.get(key):
                yield from _differences(value, given.get(key), f"{path}.{key}" if path else key)
    else:
        yield path, wanted


def _typed(value: Any) -> str:
    """A value as `--set` reads it."""
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
