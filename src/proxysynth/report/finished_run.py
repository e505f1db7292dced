"""A finished run as one value: everything that a report or a comparison says about it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from proxysynth.training.defaults import default_run
from proxysynth.training.metrics_log import read_metrics
from proxysynth.training.record import Result, read_result
from proxysynth.training.run import Run
from proxysynth.training.run_folder import read_run
from proxysynth.training.tensor_file import EMBEDDINGS, read_tensors
from proxysynth.values import encode

from .data_facts import DataFacts, data_facts
from .examples import Embedded
from .numbers import duration
from .thumbnails import Pictures, open_pictures


@dataclass(frozen=True)
class Evaluation:
    """A line of metrics.jsonl: the mean loss since the one before, and what was measured then."""

    epoch: int
    loss: float
    metrics: Mapping[str, float]
    validation: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class FinishedRun:
    """What a run's folder holds.

    Attributes:
        path: the folder; `name` is what people call the run.
        run: the run itself; `settings` and `defaults` are it, and what the same data would get if
            nothing else was asked for, as JSON.
        result: its metrics, which epoch they are of, and where they come from.
        history: the evaluations in order.
        data: facts of the data.
        classes: names of the labels of the test pictures; `query_names` and `gallery_names` are
            those of the pictures.
    """

    path: Path
    name: str
    run: Run
    result: Result
    history: tuple[Evaluation, ...]
    data: DataFacts
    classes: tuple[str, ...]
    query_names: tuple[str, ...]
    gallery_names: tuple[str, ...] | None

    @property
    def settings(self) -> dict[str, Any]:
        return encode(self.run)

    @property
    def defaults(self) -> dict[str, Any]:
        return encode(default_run(self.run.data))

    @property
    def metrics(self) -> Mapping[str, float]:
        return self.result.metrics

    @property
    def untrained(self) -> Mapping[str, float]:
        return self.result.untrained

    @property
    def provenance(self) -> dict[str, str]:
        """Data, device and time, and whatever the run noted of its surroundings."""
        return {
            "data": self.data.name,
            "fingerprint": self.data.fingerprint,
            "run": self.result.run,
            "device": self.result.device,
            "time": duration(self.result.seconds),
            **self.result.provenance,
        }

    def embedded(self) -> Embedded:
        """The embeddings of the test pictures, read now: many runs' at once could fill memory."""
        tensors, _ = read_tensors(self.path / EMBEDDINGS)
        own = self.gallery_names is None
        return Embedded(
            query=tensors["query"].float().numpy(),
            labels=tensors["query_labels"].long().numpy(),
            gallery=None if own else tensors["gallery"].float().numpy(),
            gallery_labels=None if own else tensors["gallery_labels"].long().numpy(),
        )

    def class_name(self, label: int) -> str:
        return self.classes[label]

    def pictures(self) -> Pictures:
        """The test pictures, from the data where it is now."""
        return open_pictures(self.run, self.query_names, self.gallery_names)


def read_finished(folder: str | os.PathLike[str]) -> FinishedRun:
    """Read a run's folder.

    Raises:
        ValueError: in one sentence, for a folder that is no run or whose run is not finished.
    """
    path = Path(folder).expanduser()
    recorded = read_run(path)
    result = read_result(path)
    lines = read_metrics(path)
    if result is None:
        done = lines[-1]["epoch"] if lines else 0
        raise ValueError(
            f"the run in {path} is not finished (epoch {done} of {recorded.run.epochs}): give its "
            "`proxysynth train` command again to go on with it"
        )
    about = _about(path / EMBEDDINGS)
    gallery = about.get("gallery")
    try:
        return FinishedRun(
            path=path,
            name=path.resolve().name,
            run=recorded.run,
            result=result,
            history=tuple(_evaluation(line) for line in lines),
            data=data_facts(recorded, result, about["classes"]),
            classes=tuple(about["classes"]),
            query_names=tuple(about["query"]),
            gallery_names=None if gallery is None else tuple(gallery),
        )
    except KeyError as error:
        raise ValueError(
            f"the files in {path} lack {error.args[0]!r}, so they are not of this version: train "
            "the run again in another folder"
        ) from error


def _about(path: Path) -> dict[str, Any]:
    """What a file of tensors says about itself, without reading the tensors."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            return {name: json.loads(text) for name, text in (file.metadata() or {}).items()}
    except (OSError, ValueError, safetensors.SafetensorError) as error:
        raise ValueError(
            f"{path} cannot be read ({error}): train the run again in another folder"
        ) from error


def _evaluation(line: Mapping[str, Any]) -> Evaluation:
    rest = {key: value for key, value in line.items() if isinstance(value, (int, float))}
    epoch, loss = int(rest.pop("epoch")), float(rest.pop("loss"))
    rest.pop("step", None)
    return Evaluation(epoch, loss, rest, line.get("validation", {}))
