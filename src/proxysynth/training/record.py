"""Result: what came of a run. `result.json` is written last, so it says that the run is over."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from proxysynth.errors import TrainingFailed, WrongFolder
from proxysynth.files import write_json
from proxysynth.training.verdict import made_worse, training_changed

FORMAT = 1
RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """What a run gave. Metrics are fractions in [0, 1].

    Args:
        run: the run's identity.
        metrics: of the reported epoch, on the classes never seen in training.
        untrained: the same metrics of the backbone's features before the first step.
        epoch, epochs: the reported one, counted from 1, and how many there were.
        chosen: how that epoch was: "last", "best" or "best_on_test"; `why` says it in words.
        validation: its metrics on the classes held out of the seen ones, where there are any.
        seconds: spent on the run, over all its sessions.
        device: what it was trained on.
        data: name, fingerprint, and pictures and classes of each part.
        provenance: commit, machine, versions, date.
        notes: sentences about the data.
    """

    run: str
    metrics: dict[str, float]
    untrained: dict[str, float]
    epoch: int
    epochs: int
    chosen: str
    why: str
    validation: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    device: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[str, ...]:
        """The measures that training made worse than the untrained backbone's."""
        return made_worse(self.metrics, self.untrained)

    @property
    def tested(self) -> str:
        """Which classes the metrics are about: unseen ones, or other pictures of the seen."""
        shared = self.data.get("shared_classes", 0)
        if "accuracy" in self.metrics or (shared and shared == self.data["query"]["classes"]):
            return "seen classes"
        return "seen and unseen classes" if shared else "unseen classes"

    @property
    def verdict(self) -> str:
        """Trained against untrained, in one sentence."""
        return training_changed(self.metrics, self.untrained, self.tested)

    def to_json(self) -> dict[str, Any]:
        told = {"format": FORMAT, **asdict(self)}
        return {**told, "made_worse": bool(self.worse), "verdict": self.verdict}


def write_result(folder: Path, result: Result) -> None:
    write_json(folder / RESULT, result.to_json())


def read_result(folder: Path) -> Result | None:
    """The result of a finished run; None where it is not finished."""
    path = folder / RESULT
    try:
        told = json.loads(path.read_bytes())
        version = told.pop("format")
        newer = version > FORMAT
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _damaged(path) from error
    if newer:
        raise WrongFolder(
            f"{path} was written by a newer version of proxysynth (format {version}, this one "
            f"reads {FORMAT}): upgrade proxysynth"
        )
    told = {name: value for name, value in told.items() if name in Result.__dataclass_fields__}
    try:
        return Result(**{**told, "notes": tuple(told["notes"])})
    except (KeyError, TypeError) as error:
        raise _damaged(path) from error


def _damaged(path: Path) -> TrainingFailed:
    return TrainingFailed(f"{path} cannot be read: delete it to have it made again")
