"""The results of an MLRC study: `result.json` and the page `study.html`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from proxysynth.files import locked, write_json
from proxysynth.formatting import count, percent
from proxysynth.protocols.mlrc import Outcome
from proxysynth.provenance import provenance
from proxysynth.report.figures import inline_svg, trial_history
from proxysynth.report.pages import render, write_page
from proxysynth.report.statistics import half_width

FORMAT = 1
RESULT, PAGE = "result.json", "study.html"
KINDS = ("separated", "concatenated")
TITLES = {"precision@1": "P@1", "r_precision": "RP", "map@r": "MAP@R"}
StudyResult = Mapping[str, Any]  # what result.json holds


def write_study(outcome: Outcome, folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Write the page and `result.json`; returns the contents of the latter.

    Workers that finish at the same time write the same files, one after the other.
    """
    folder = Path(folder).expanduser()
    result = result_of(outcome)
    with locked(folder, wait=True):
        write_page(folder / PAGE, study_page(result))
        write_json(folder / RESULT, result)  # last: its existence means that the study is over
    return result


def result_of(outcome: Outcome) -> dict[str, Any]:
    """The contents of `result.json`. Metrics are fractions, one per repetition."""
    study, best = outcome.study, outcome.best
    values = {
        kind: {name: [getattr(one, kind)[name] for one in outcome.repetitions] for name in TITLES}
        for kind in KINDS
    }
    return {
        "format": FORMAT,
        "name": study.name,
        "data": study.data,
        "loss": study.loss,
        "regularizer": study.regularizer,
        "scale": study.scale_name,
        "trials": study.scale.trials,
        "folds": study.scale.folds,
        "repetitions": len(outcome.repetitions),
        "seed": study.seed,
        "pruned": sum(trial.pruned for trial in outcome.trials),
        "run_again": sum(trial.lost for trial in outcome.trials),
        "best": best.params,
        "best_trial": best.index + 1,
        "value": best.value,
        "at_bounds": [one.name for one in study.space if one.near_bound(best.params[one.name])],
        **values,
        "queries_without_positive": max(one.alone for one in outcome.repetitions),
        "summary": {
            kind: {name: mean_and_interval(each) for name, each in values[kind].items()}
            for kind in KINDS
        },
        "importance": outcome.importance,
        "space": [asdict(item) for item in study.space],
        "search": [asdict(trial) | {"folds": list(trial.folds)} for trial in outcome.trials],
        "search_seconds": round(sum(trial.seconds for trial in outcome.trials), 1),
        "dim": study.base.dim,
        "backbone": study.base.backbone,
        "provenance": provenance(),
    }


def mean_and_interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean, and half the width of its 95% t-interval; None for a single value."""
    return {"mean": fmean(values), "ci95": half_width(values) if len(values) > 1 else None}


def method(result: StudyResult) -> str:
    """Loss and regularizer: "norm_softmax with proxy_synthesis"."""
    regularizer = result["regularizer"]
    return result["loss"] + ("" if regularizer == "none" else f" with {regularizer}")


def amount(result: StudyResult) -> str:
    """The amount of work, shown with every table."""
    pruned = f", {result['pruned']} of them pruned" if result["pruned"] else ""
    alone = result.get("queries_without_positive", 0)
    left_out = f"; {count(alone, 'unseen image')} alone in a class, left out" if alone else ""
    return (
        f"scale {result['scale']}: {count(result['trials'], 'trial')}{pruned}, "
        f"{count(result['folds'], 'fold')}, {count(result['repetitions'], 'repetition')}{left_out}"
    )


def at_bounds(result: StudyResult) -> str:
    """A sentence if best values lie at the ends of their ranges, else empty."""
    names = ", ".join(result["at_bounds"])
    return names and f"At an end of the searched range, so a better value may lie outside: {names}."


def metric_rows(result: StudyResult) -> list[list[str]]:
    """A row for each kind: "concatenated (512-dim)", "71.20 ± 0.31", ..."""
    rows = []
    for kind in KINDS:
        dims = result["dim"] and result["dim"] * (result["folds"] if kind == KINDS[1] else 1)
        row = [f"{kind} ({dims}-dim)" if dims else kind]
        for name in TITLES:
            spread = result["summary"][kind][name]
            half = "" if spread["ci95"] is None else f" ± {percent(spread['ci95'], 2)}"
            row.append(percent(spread["mean"], 2) + half)
        rows.append(row)
    return rows


def trial_rows(result: StudyResult) -> tuple[list[str], list[list[str]]]:
    """The head and the rows of the table of trials."""
    names = [item["name"] for item in result["space"]]
    head = ["trial", "MAP@R", *(name.rpartition(".")[2] for name in names), ""]
    rows = []
    for trial in result["search"]:
        states = {
            "best": trial["index"] + 1 == result["best_trial"],
            "pruned": trial["pruned"],
            "diverged": trial["note"],
            f"rerun {count(trial['lost'], 'time')}": trial["lost"],
        }
        params = [f"{trial['params'][name]:.3g}" for name in names]
        state = ", ".join(text for text, shown in states.items() if shown)
        rows.append([str(trial["index"] + 1), percent(trial["value"], 2), *params, state])
    return head, rows


def study_page(result: StudyResult) -> str:
    trial_head, trials = trial_rows(result)
    return render(
        "study.html",
        result=result,
        method=method(result),
        amount=amount(result),
        head=["%", *TITLES.values()],
        unseen=metric_rows(result),
        kinds=KINDS,
        names=TITLES,
        history=inline_svg(trial_history(result["search"]), "history", "MAP@R of each trial"),
        trial_head=trial_head,
        trials=trials,
        at_bounds=at_bounds(result),
        complete=result["trials"] - result["pruned"],
    )
