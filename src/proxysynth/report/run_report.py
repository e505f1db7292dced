"""The report of one run: read from its folder, measured, and written as `report.html`."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from markupsafe import Markup

from proxysynth.formatting import distinct_captions, metric_keys, metric_name
from proxysynth.models.libraries import backbone_option
from proxysynth.report.examples import Pictures, choose, open_pictures, sample
from proxysynth.report.figures import SERIES, Curve, curves, histogram, inline_svg, roc
from proxysynth.report.pages import render, write_page
from proxysynth.report.settings import changed, method, option_names, rows
from proxysynth.retrieval.calibration import DEFAULT_TARGET, Calibration, count_pairs
from proxysynth.retrieval.knn import Sets, as_sets
from proxysynth.tensor_files import read_tensors
from proxysynth.training import run_folder
from proxysynth.training.defaults import default_run
from proxysynth.training.run import Run
from proxysynth.training.run_folder import Result
from proxysynth.values import encode

SAMPLE = 10_000  # images whose pairs are counted: a few seconds, growing with the square
DRAWN = ("accuracy", "recall@1", "precision@1", "map@r")  # metrics drawn over epochs
PYTHON = """from proxysynth.training import read_run, train

train(read_run({!r}).run, {!r})"""


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """The contents of a finished run's folder."""

    path: Path
    name: str  # of the folder
    run: Run
    result: Result
    history: tuple[dict[str, Any], ...]  # the evaluations in order, the lines of `metrics.jsonl`
    classes: tuple[str, ...]  # names of the labels of the test images
    query_names: tuple[str, ...]  # of the test images
    gallery_names: tuple[str, ...] | None
    image_size: int  # that the network was given; the setting may leave it to the backbone
    evaluated: FinishedRun | None = None  # the run that was tested, if this one saw all classes

    @property
    def tested(self) -> FinishedRun:
        """The run whose metrics and embeddings these are."""
        return self.evaluated or self

    @property
    def data(self) -> dict[str, Any]:
        return self.tested.result.data

    @property
    def title(self) -> str:
        """The name of the data without leading folders."""
        return os.path.basename(self.data["name"].rstrip("/\\")) or self.data["name"]

    @property
    def settings(self) -> dict[str, Any]:
        return encode(self.run)

    @property
    def used_settings(self) -> dict[str, Any]:
        """The settings, with the image size that the backbone chose."""
        return {**self.settings, "image_size": self.image_size}

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.result.metrics

    @property
    def layer_left_out(self) -> bool:
        """Whether interpolation left out the embedding layer that it was trained with."""
        return self.run.drops_layer and bool(self.result.interpolation)

    @property
    def command(self) -> str:
        """What trains the run again in another folder."""
        config, out = self.tested.path.resolve() / run_folder.RUN, f"{self.path.resolve()}-again"
        if option_names(self.tested.run.loss) is None:  # the command line knows no such loss
            return PYTHON.format(str(config.parent), out)
        command = ["proxysynth", "train", "--config", str(config), "--out", out]
        command += ["--all-classes"] if self.result.evaluated else []
        return shlex.join(command) + backbone_option(self.tested.run.backbone)

    def embedded(self) -> Sets:
        """The test embeddings, read on demand: those of many runs could fill the memory."""
        path = self.tested.path / run_folder.EMBEDDINGS
        tensors, _ = read_tensors(path, self.tested.result.checksums.get(run_folder.EMBEDDINGS))
        try:
            query = tensors["query"].float(), tensors["query_labels"].long()
            if self.gallery_names is None:
                return as_sets(*query)
            gallery = tensors["gallery"].float(), tensors["gallery_labels"].long()
            return as_sets(*query, *gallery)
        except KeyError as error:
            raise ValueError(f"{path} lacks {error}: train the run again") from error

    def pictures(self) -> Pictures:
        """The test images, from the current location of the data."""
        return open_pictures(self.tested.run, self.query_names, self.gallery_names)


def read_finished(folder: str | os.PathLike[str]) -> FinishedRun:
    """Read a run's folder.

    Raises:
        ValueError: for a folder that is no run or whose run is not finished.
    """
    path = Path(folder).expanduser()
    recorded, result = run_folder.read_run(path), run_folder.read_result(path)
    run = recorded.run
    if result is None or result.epochs != run.epochs:
        lines = run_folder.read_metrics(path)
        raise ValueError(
            f"the run in {path} is not finished (epoch {lines[-1]['epoch'] if lines else 0} of "
            f"{run.epochs}): repeat its `proxysynth train` command to resume it"
        )
    name = path.resolve().name
    if result.evaluated:
        tested = read_finished(path / run_folder.EVALUATED)
        return replace(tested, path=path, name=name, run=run, result=result, evaluated=tested)
    names: dict[str, Any] = {"classes": [], "query": []}
    if result.metrics:
        _, names = read_tensors(
            path / run_folder.EMBEDDINGS, result.checksums.get(run_folder.EMBEDDINGS)
        )
    needed: dict[str, type] = dict.fromkeys(("name", "fingerprint", "test_fingerprint"), str)
    needed |= dict.fromkeys(("train", "query"), dict)
    lacking = [key for key, kind in needed.items() if not isinstance(result.data.get(key), kind)]
    lists = {"gallery": [], **names}  # no gallery: the queries are their own
    lacking += [k for k in ("classes", "query", "gallery") if not isinstance(lists.get(k), list)]
    if lacking:
        raise ValueError(f"the files in {path} lack {lacking[0]!r}: train the run again elsewhere")
    return FinishedRun(
        path=path,
        name=name,
        run=run,
        result=result,
        history=tuple(run_folder.read_metrics(path, result.checksums.get(run_folder.METRICS))),
        classes=tuple(names["classes"]),
        query_names=tuple(names["query"]),
        gallery_names=tuple(names["gallery"]) if "gallery" in names else None,
        image_size=recorded.image_size,
    )


def write_report(folder: str | os.PathLike[str]) -> Path:
    """Write `report.html` into the folder of a finished run, atomically."""
    run = read_finished(folder)
    return write_page(run.path / run_folder.REPORT, report_page(run))


def report_page(run: FinishedRun) -> str:
    context: dict[str, Any] = {"kinds": (), "pairs": None, "pairs_svg": None, "roc_svg": None}
    made = run.result.calibration
    calibration = Calibration.from_json(made) if made else None
    if run.metrics:
        test = run.embedded()
        some = sample(test, SAMPLE)
        pairs = count_pairs(some)
        context["kinds"] = tuple(zip(("correct", "wrong"), choose(test), strict=True))
        if pairs.of_both_kinds:
            thresholds = {} if calibration is None else calibration.thresholds
            figure = histogram(pairs, thresholds.get(DEFAULT_TARGET))
            about = "Similarities of same- and different-class pairs"
            context["pairs_svg"] = inline_svg(figure, "pairs", about)
            context |= {"pairs": pairs, "sampled": max(len(test.x), len(test.gallery)) > SAMPLE}
    if calibration is not None and len(calibration.curve) > 1:
        context["roc_svg"] = inline_svg(roc(calibration.curve), "roc", "True over false accepts")
    # The number of warm-up epochs depends on that of epochs.
    warm = default_run(run.run.data, epochs=run.run.epochs).warmup_epochs
    defaults = encode(default_run(run.run.data, warmup_epochs=warm))
    unusual, metrics = changed(run.settings, defaults), metric_keys(run.metrics)
    return render(
        "run.html",
        run=run,
        folder=shlex.quote(str(run.path.resolve())),
        option="" if run.result.better_backbone else backbone_option(run.run.backbone),
        method=method(run.settings),
        metrics=metrics,
        compared=[key for key in metrics if key in run.result.untrained],
        figures=_training_figures(run) if run.history else [],
        history_metrics=metric_keys(*run.history),
        pictures=run.pictures(),
        captions=distinct_captions(run.classes),
        interpolation=_interpolation(run),
        before="start" if run.run.init is not None else "untrained",
        calibration=calibration,
        changed=unusual,
        unchanged={k: text for k, text in rows(run.settings).items() if k not in unusual},
        **context,
    )


def _interpolation(run: FinishedRun) -> dict[str, Any] | None:
    """The curve over a, and what it shows; None if the trained network is saved as it is."""
    held = run.result.interpolation
    if not held or held["a"] is None:
        return None
    if held["a"] == 1 and held["by"] is None and not run.layer_left_out:
        return None
    points, by, trained = held["points"], held["by"], held["trained"]
    at = [point["a"] for point in points]
    shown = [key for key in metric_keys(points[0]["metrics"]) if key in DRAWN]
    drawn = [(metric_name(key), "metrics", key) for key in shown]
    drawn += [(f"{metric_name(by)} held out", "validation", by)] if by is not None else []
    lines = [
        Curve(title, at, [100 * p[part][key] for p in points], color, 100 * trained[part][key])
        for (title, part, key), color in zip(drawn, SERIES, strict=False)
    ]
    figure = curves(lines, "%", held["a"], "a") if lines and len(points) > 1 else None
    return {
        "figure": figure and inline_svg(figure, "interpolation", "Metrics over a"),
        "a": held["a"],
        "by": by and metric_name(by),
        "with_layer": {key: trained["metrics"][key] for key in shown},
    }


def _training_figures(run: FinishedRun) -> list[Markup]:
    """The loss and the metrics over epochs."""
    epoch, epochs = run.result.epoch, [line["epoch"] for line in run.history]
    keys, untrained = [k for k in metric_keys(*run.history) if k in DRAWN], run.result.untrained
    loss = Curve("", epochs, [line["loss"] for line in run.history])
    lines = []
    for key, color in zip(keys, SERIES, strict=False):
        level = 100 * untrained[key] if key in untrained else None
        values = [100 * line[key] for line in run.history]
        lines.append(Curve(metric_name(key), epochs, values, color, level))
    by = run.run.best_by
    if all(by in line.get("validation", ()) for line in run.history):
        values = [100 * line["validation"][by] for line in run.history]
        lines.append(Curve(f"{metric_name(by)} held out", epochs, values, SERIES[len(lines)]))
    figures = [inline_svg(curves([loss], "loss", epoch), "loss", "Loss over epochs")]
    if lines:
        figures.append(inline_svg(curves(lines, "%", epoch), "metrics", "Metrics over epochs"))
    return figures
