"""The top of a report: the result, how it was measured, and whether training was worth it."""

from __future__ import annotations

from collections.abc import Mapping

from .data_facts import DataFacts
from .finished_run import FinishedRun
from .markup import Html, tag
from .numbers import count, listed, measures, name, percent, points

UNTRAINED = "Untrained are the backbone's own features, before the first step of training."
MAIN = ("recall@1", "precision@1", "r_precision", "map@r")


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
    return [looked_up, reported(run), *run.data.remarks]


def reported(run: FinishedRun) -> str:
    """Which epoch counts, and what it was chosen on."""
    by = name(run.run.best_by)
    epoch = f"Reported is epoch {run.result.epoch}"
    return {
        "last": f"{epoch}, the last one, whatever the ones before it gave.",
        "best": f"{epoch}, the best by {by} on classes held out of the seen ones; the test "
        "classes had no say.",
        "best_on_test": f"{epoch}, the best by {by} on the test classes themselves, as much of the "
        "literature does: this flatters the result.",
    }.get(run.result.chosen, f"{epoch}, {run.result.why}.")


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
    worse = made_worse(run.metrics, run.untrained)
    told = training_changed(run.metrics, run.untrained, unseen=not run.data.shared_classes)
    return tag(
        "section",
        tag("h2", "Before and after training"),
        tag("p", told, class_="note bad" if worse else None),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll"),
        tag("p", tag("small", UNTRAINED)),
    )


def made_worse(trained: Mapping[str, float], untrained: Mapping[str, float]) -> list[str]:
    """The main measures that training lowered."""
    return [key for key in _main(trained, untrained) if trained[key] < untrained[key]]


def training_changed(
    trained: Mapping[str, float], untrained: Mapping[str, float], unseen: bool = True
) -> str:
    """One plain sentence: what training did to the main measures, on classes unseen or not."""
    keys = _main(trained, untrained)
    worse = made_worse(trained, untrained)
    better = [key for key in keys if trained[key] > untrained[key]]

    def told(keys: list[str]) -> str:
        return listed(
            f"{name(key)} from {percent(untrained[key])} to {percent(trained[key])}" for key in keys
        )

    if not worse and not better:
        return "Training changed nothing: the untrained backbone retrieves these classes as well."
    if not worse:
        return f"Training raised {told(better)}."
    if not better:
        classes = "unseen classes" if unseen else "classes"
        return (
            f"Training made it worse: it lowered {told(worse)}, so on these {classes} the "
            "untrained backbone is the better one; fewer epochs, a lower learning rate or more "
            "seen classes may help."
        )
    return f"Training made a part of it worse: it lowered {told(worse)}, and raised {told(better)}."


def tone(change: float) -> str | None:
    """The colour of a difference."""
    return None if points(change, 2) == "0.00" else "better" if change > 0 else "worse"


def _main(trained: Mapping[str, float], untrained: Mapping[str, float]) -> list[str]:
    keys = [key for key in measures(trained) if key in MAIN and key in untrained]
    return keys or [key for key in measures(trained) if key in untrained]


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
