"""From `--set field=value` to what all trainings of a study share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxysynth.training.run import KINDS, Run
from proxysynth.training.split import Split
from proxysynth.values import spelt_field

SEARCHED = ("loss", "regularizer")
OF_THE_PROTOCOL = ("seed", "data", "report_epoch", "split.fold", "split.folds", "task")


def changes_from_words(settings: Sequence[str]) -> dict[str, Any]:
    """Fields of `Run` from "field=value" and "split.field=value".

    What the search finds, and what makes the protocol what it is, cannot be set.
    """
    changes: dict[str, Any] = {}
    split: dict[str, Any] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ValueError(f"--set takes field=value, got {setting!r}")
        part, _, name = path.rpartition(".")
        if path == "proxy_lr" or path in SEARCHED or part in SEARCHED:
            raise ValueError(f"--set {setting}: the search chooses it, leave it out")
        if path in OF_THE_PROTOCOL:
            raise ValueError(f"--set {setting}: the protocol says it, leave it out")
        if part == "split":
            split[name] = spelt_field(Split, name, text, KINDS)
        elif part:
            raise ValueError(f"--set {setting}: unknown part {part!r}, split has fields")
        else:
            changes[name] = spelt_field(Run, name, text, KINDS)
    if split:
        changes["split"] = Split(**split)
    return changes
