"""The page of one run, from the result down to where it comes from."""

from __future__ import annotations

import os
from pathlib import Path

from .command import command
from .figures import Curve, curves, histogram
from .finished_run import FinishedRun, read_finished
from .markup import Html, page, tag
from .numbers import count, measures, name, percent
from .pages import write_page
from .query_grid import lookups
from .report import Report, make_report
from .result_section import before_and_after, headline
from .settings import changed, method, rows
from .svg import SERIES, inline_svg
from .thumbnails import Pictures

FILE = "report.html"
DRAWN = ("accuracy", "recall@1", "precision@1", "map@r")  # measures that get a curve
TOLD = (
    "Drawn at random, one half among the queries whose nearest neighbour is right, the other among "
    "those where it is wrong: not in proportion to how often either happens. A green border and ✓ "
    "mark a neighbour of the query's class, a red one and ✗ any other; the number is the cosine "
    "similarity."
)


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` into the folder of a finished run, whole or not at all."""
    run = read_finished(folder)
    return write_page(run.path / FILE, report_page(make_report(run), run.pictures()))


def report_page(report: Report, pictures: Pictures) -> Html:
    """The whole document."""
    run = report.run
    return page(
        f"{run.name}: {method(run.settings)} on {run.data.title}",
        tag(
            "header",
            tag("p", "Proxysynth report", class_="over"),
            tag("h1", run.name),
            tag("p", _summary(run), class_="lead"),
        ),
        headline(run),
        before_and_after(run),
        _curves(run),
        _queries(report, pictures),
        _pairs(report),
        _settings(run),
        _repeat(run),
        _provenance(run),
    )


def _summary(run: FinishedRun) -> str:
    parts = (
        f"{method(run.settings)} on {run.data.title}",
        run.run.backbone,
        count(run.run.epochs, "epoch"),
        f"seed {run.run.seed}",
    )
    return ", ".join(parts)


def _curves(run: FinishedRun) -> Html | None:
    if not run.history:
        return None
    epoch = run.result.epoch
    keys = [key for key in measures(*(line.metrics for line in run.history)) if key in DRAWN]
    epochs = [line.epoch for line in run.history]
    loss = Curve("", epochs, [line.loss for line in run.history])
    lines = []
    for key, color in zip(keys, SERIES, strict=False):
        level = 100 * run.untrained[key] if key in run.untrained else None
        values = [100 * line.metrics[key] for line in run.history]
        lines.append(Curve(name(key), epochs, values, color, level))
    by = run.run.best_by
    if all(by in line.validation for line in run.history):
        values = [100 * line.validation[by] for line in run.history]
        lines.append(Curve(f"{name(by)} held out", epochs, values, SERIES[len(lines)]))
    drawn = (
        inline_svg(curves([loss], "loss", epoch), "loss", "Loss over epochs"),
        inline_svg(curves(lines, "per cent", epoch), "measures", "Measures over epochs"),
    )
    told = f"The dotted upright line is epoch {epoch}, the one reported"
    if any(line.level is not None for line in lines):
        told += "; the dashed levels are the untrained backbone"
    return tag(
        "section",
        tag("h2", "Training"),
        tag("p", f"{told}.", class_="quiet"),
        tag("div", [tag("figure", svg) for svg in drawn], class_="figures"),
        _every_epoch(run),
    )


def _every_epoch(run: FinishedRun) -> Html:
    keys = measures(*(line.metrics for line in run.history))
    head = tag("tr", [tag("th", t, class_="number") for t in ("epoch", "loss", *map(name, keys))])
    rows = [
        tag(
            "tr",
            tag("td", line.epoch, class_="number"),
            tag("td", f"{line.loss:.4f}", class_="number"),
            [tag("td", percent(line.metrics.get(key)), class_="number") for key in keys],
        )
        for line in run.history
    ]
    table = tag("table", tag("thead", head), tag("tbody", rows))
    return tag(
        "details",
        tag("summary", f"The numbers of {count(len(rows), 'evaluation')}"),
        tag("div", table, class_="scroll"),
    )


def _queries(report: Report, pictures: Pictures) -> Html:
    run = report.run
    body: list[object] = [tag("p", TOLD, class_="quiet")]
    if pictures.missing:
        body.append(tag("p", pictures.missing, class_="note"))
    kinds = (("right", "Nearest neighbour right", report.right),
             ("wrong", "Nearest neighbour wrong", report.wrong))  # fmt: skip
    for kind, title, examples in kinds:
        if examples:
            body += [tag("h3", title), lookups(examples, pictures, run.class_name)]
        else:
            body += [tag("h3", title), tag("p", f"No query's nearest neighbour is {kind}.")]
    return tag("section", tag("h2", "Queries and what they retrieve"), body)


def _pairs(report: Report) -> Html | None:
    pairs = report.pairs
    if pairs is None:
        return None
    drawn = inline_svg(
        histogram(pairs.alike, pairs.unlike), "pairs",
        "Similarities of pairs of the same class and of different classes",
    )  # fmt: skip
    return tag(
        "section",
        tag("h2", "Similarity of pairs"),
        tag(
            "p",
            "The further apart the two, the easier a class is found. A pair of one class is more "
            f"similar than a pair of two in {percent(pairs.order())} per cent of all cases.",
        ),
        tag("figure", drawn, tag("figcaption", pairs.told())),
    )


def _settings(run: FinishedRun) -> Html:
    told = rows(run.settings)
    unusual = changed(run.settings, run.defaults)

    def table(paths: list[str]) -> Html:
        lines = [
            tag("tr", tag("th", path, scope="row"), tag("td", told[path], class_="value"))
            for path in paths
        ]
        return tag("div", tag("table", tag("tbody", lines)), class_="scroll")

    usual = [path for path in told if path not in unusual]
    return tag(
        "section",
        tag("h2", "Settings"),
        tag("p", "Those that differ from the defaults for this data:", class_="quiet")
        if unusual
        else tag("p", "All at their defaults for this data."),
        table(unusual) if unusual else None,
        tag("details", tag("summary", f"{len(usual)} at their defaults"), table(usual)),
    )


def _repeat(run: FinishedRun) -> Html:
    return tag("section", tag("h2", "Repeat it"), tag("pre", command(run)))


def _provenance(run: FinishedRun) -> Html:
    rows = [(tag("dt", key), tag("dd", value)) for key, value in run.provenance.items() if value]
    return tag("section", tag("h2", "Where it comes from"), tag("dl", rows, class_="facts"))
