"""The page of a study: the unseen classes, the search, what mattered, where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .markup import Html, page, tag
from .numbers import percent
from .study_figures import ON_PAGE, history, importances
from .study_result import KINDS
from .study_words import TITLES, amount, dimensions, method, number, short, state, with_interval
from .svg import inline_svg


def study_page(result: Mapping[str, Any]) -> Html:
    """The whole document."""
    return page(
        f"{method(result)} on {result['data']}: MLRC",
        tag(
            "header",
            tag("p", "Proxysynth study", class_="over"),
            tag("h1", f"{method(result)} on {result['data']}"),
            tag("p", f"{result['backbone']}, {amount(result)}", class_="lead"),
        ),
        _unseen(result),
        _best(result),
        _search(result),
        _mattered(result),
        _provenance(result),
    )


def _table(head: list[str], rows: list[list[object]]) -> Html:
    titles = [tag("th", text, class_="number" if i else None) for i, text in enumerate(head)]
    lines = [
        tag("tr", tag("th", row[0], scope="row"), [tag("td", c, class_="number") for c in row[1:]])
        for row in rows
    ]
    table = tag("table", tag("thead", tag("tr", titles)), tag("tbody", lines))
    return tag("div", table, class_="scroll")


def _unseen(result: Mapping[str, Any]) -> Html:
    rows: list[list[object]] = []
    for kind in KINDS:
        summary = result["summary"][kind]
        rows.append([dimensions(result, kind), *(with_interval(summary[k]) for k in TITLES)])
    each: list[list[object]] = [
        [f"{kind}, repetition {place + 1}", *(percent(result[kind][k][place], 2) for k in TITLES)]
        for kind in KINDS
        for place in range(result["repetitions"])
    ]
    head = ["per cent", *TITLES.values()]
    told = (
        "No picture of these classes was opened before the search was over. Each repetition trains "
        f"{result['folds']} models, one without each fold of the seen classes; separated is the "
        "mean over the models, concatenated joins their embeddings."
    )
    if result["repetitions"] > 1:
        told += f" ± is the 95 % t-interval of {result['repetitions']} repetitions."
    return tag(
        "section",
        tag("h2", "Unseen classes"),
        tag("p", told, class_="quiet"),
        _table(head, rows),
        tag("details", tag("summary", "Each repetition"), _table(head, each)),
    )


def _best(result: Mapping[str, Any]) -> Html:
    rows: list[list[object]] = [
        [item["name"], number(result["best"][item["name"]]), _between(item)]
        for item in result["space"]
    ]
    return tag(
        "section",
        tag("h2", "Best parameters"),
        tag(
            "p",
            f"Those of trial {result['best_trial']}, whose folds gave MAP@R "
            f"{percent(result['value'], 2)} on classes held out of the seen ones.",
        ),
        _table(["parameter", "best", "searched"], rows),
    )


def _between(item: Mapping[str, Any]) -> str:
    return f"{number(item['low'])} to {number(item['high'])}{', log' if item['log'] else ''}"


def _search(result: Mapping[str, Any]) -> Html:
    drawn = inline_svg(history(result["search"], ON_PAGE), "history", "MAP@R of each trial")
    names = [item["name"] for item in result["space"]]
    rows: list[list[object]] = [
        [
            trial["index"] + 1,
            percent(trial["value"], 2),
            *(number(trial["params"][name]) for name in names),
            state(trial),
        ]
        for trial in result["search"]
    ]
    told = "A dot is a trial, the mean over its folds; the line is the best so far."
    if result["pruned"]:
        told += " A cross is a pruned trial, the mean over the folds that it had."
    return tag(
        "section",
        tag("h2", "Search"),
        tag("p", told, class_="quiet"),
        tag("figure", drawn),
        tag(
            "details",
            tag("summary", "The numbers of all trials"),
            _table(["trial", "MAP@R", *map(short, names), ""], rows),
        ),
    )


def _mattered(result: Mapping[str, Any]) -> Html | None:
    if not result["importance"]:
        return None
    figure = importances(result["importance"], ON_PAGE)
    drawn = inline_svg(figure, "importance", "Importance of each parameter")
    whole = result["trials"] - result["pruned"]
    caution = f" With {whole} whole trials it is a hint, no more." if whole < 30 else ""
    return tag(
        "section",
        tag("h2", "What mattered"),
        tag("p", f"By PED-ANOVA, over the whole trials.{caution}", class_="quiet"),
        tag("figure", drawn),
    )


def _provenance(result: Mapping[str, Any]) -> Html:
    told = result["provenance"]
    rows = [(tag("dt", key), tag("dd", value)) for key, value in told.items() if value]
    return tag("section", tag("h2", "Where it comes from"), tag("dl", rows, class_="facts"))
