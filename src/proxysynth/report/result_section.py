"""The top of a report: the result, how it was measured, and whether training was worth it."""

from __future__ import annotations

from .data_facts import DataFacts
from .finished_run import FinishedRun
from .markup import Html, tag
from .numbers import count, measures, name, percent, points

UNTRAINED = "Untrained are the backbone's own features, before the first step of training."


def headline(run: FinishedRun) -> Html:
    """The metrics in large figures, and under them what they mean."""
    tiles = [
        tag(
            "div",
            tag("dt", name(key)),
            tag("dd", percent(run.metrics[key]), tag("small", "%")),
            class_="tile first" if place == 0 else "tile",
        )
        for place, key in enumerate(measures(run.metrics))
    ]
    return tag(
        "section",
        tag("dl", tiles, class_="tiles"),
        [tag("p", sentence) for sentence in protocol(run)],
    )


def protocol(run: FinishedRun) -> list[str]:
    """How the numbers came about, in sentences."""
    looked_up = f"{_looked_up(run.data)} {_trained_on(run.data)}"
    return [*_classified(run), looked_up, reported(run), *run.data.remarks]


def reported(run: FinishedRun) -> str:
    """Which epoch counts, and what it was chosen on."""
    more = {
        "last": ", whatever the ones before it gave",
        "best_on_test": ", as much of the literature does",
    }.get(run.result.chosen, "")
    return f"Reported is epoch {run.result.epoch}, {run.result.why}{more}."


def before_and_after(run: FinishedRun) -> Html | None:
    """The untrained backbone beside the trained one; None where it was not measured."""
    keys = [key for key in measures(run.metrics) if key in run.untrained]
    if not keys:
        return None
    rows = []
    for key in keys:
        change = run.metrics[key] - run.untrained[key]
        rows.append(
            tag(
                "tr",
                tag("th", name(key), scope="row"),
                tag("td", percent(run.untrained[key]), class_="number"),
                tag("td", percent(run.metrics[key]), class_="number"),
                tag("td", tag("span", points(change), class_=tone(change)), class_="number"),
            )
        )
    head = tag(
        "tr",
        tag("th", "per cent"),
        [tag("th", text, class_="number") for text in ("untrained", "trained", "difference")],
    )
    return tag(
        "section",
        tag("h2", "Before and after training"),
        tag("p", run.result.verdict, class_="note bad" if run.result.worse else None),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll"),
        tag("p", tag("small", UNTRAINED)),
    )


def tone(change: float) -> str | None:
    """The colour of a difference."""
    return None if points(change, 2) == "0.00" else "better" if change > 0 else "worse"


def _classified(run: FinishedRun) -> list[str]:
    if "accuracy" not in run.metrics:
        return []
    pictures = count(run.data.query_pictures, "picture")
    return [
        f"Accuracy is the share of {pictures} that the loss gives their own class, of "
        f"{run.data.train_classes:,} trained on; the other measures are of retrieval."
    ]


def _looked_up(data: DataFacts) -> str:
    classes = count(data.test_classes, "class", "classes")
    if data.shared_classes == data.test_classes:
        seen = "all of them also trained on"
    elif data.shared_classes:
        seen = f"{data.shared_classes} of them also trained on"
    else:
        seen = "none of them seen in training"
    if data.gallery_pictures is None:
        return (
            f"Each of {count(data.query_pictures, 'picture')} of {classes}, {seen}, is looked up "
            "among all the others by cosine similarity."
        )
    return (
        f"Each of {count(data.query_pictures, 'query', 'queries')} is looked up in a gallery of "
        f"{count(data.gallery_pictures, 'picture')} by cosine similarity; they are of {classes}, "
        f"{seen}."
    )


def _trained_on(data: DataFacts) -> str:
    kind = "class" if data.shared_classes else "other class"
    return (
        f"Training used {count(data.train_pictures, 'picture')} of "
        f"{count(data.train_classes, kind, kind + 'es')} of {data.title}."
    )
