"""From the words of a command to a run: `--loss arcface --set loss.m2=0.2 --set lr=3e-4`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxysynth.losses import LOSSES
from proxysynth.regularizers import REGULARIZERS, VirtualSoftmax
from proxysynth.training.defaults import default_run
from proxysynth.training.run import KINDS, Run
from proxysynth.training.split import Split
from proxysynth.values import look_up, nearest, spelt_field

NO_FIELDS = "the regularizer 'none' has no fields: leave out --set regularizer.{}"

# Fields that are said elsewhere in a command.
OPTIONS = {
    "data": "give the data as the first word of the command instead",
    "regularizer.loss": "name the loss with --loss instead",
}


def run_from_words(
    data: str = "glyphs",
    loss: str = "norm_softmax",
    regularizer: str = "proxy_synthesis",
    settings: Sequence[str] = (),
    **given: Any,
) -> Run:
    """The run these words ask for, on top of the defaults for the data.

    Args:
        data: "glyphs", a folder, a CSV, or "name:ROOT".
        loss: a key of `LOSSES`.
        regularizer: a key of `REGULARIZERS`.
        settings: "field=value", "loss.field=value", "regularizer.field=value", "split.field=value".
        given: fields of `Run` that have an option of their own; None leaves the default.
    """
    kinds = {
        "loss": look_up(loss, LOSSES, "loss"),
        "regularizer": look_up(regularizer, REGULARIZERS, "regularizer"),
        "split": Split,
    }
    fields: dict[str, dict[str, Any]] = {"loss": {}, "regularizer": {}, "split": {}, "": {}}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals or not path:
            raise ValueError(f"--set takes field=value, got {setting!r}")
        part, dot, name = path.rpartition(".")
        if part not in fields or (not dot and path in kinds):
            raise ValueError(f"--set {setting}: {_where(path, kinds)}")
        if path in OPTIONS:
            raise ValueError(f"--set {setting}: {OPTIONS[path]}")
        kind = kinds.get(part, Run)
        if kind is None:
            raise ValueError(NO_FIELDS.format(name))
        fields[part][name] = spelt_field(kind, name, text, KINDS)

    made = kinds["loss"](**fields["loss"])
    if kinds["regularizer"] is VirtualSoftmax and fields[""].get("task") == "classification":
        fields["regularizer"].setdefault("clip", None)  # the paper clips for retrieval only (D.4)
    if kinds["regularizer"] is not None:
        made = kinds["regularizer"](made, **fields["regularizer"])
    changes = {name: value for name, value in given.items() if value is not None} | fields[""]
    if fields["split"]:
        changes["split"] = Split(**fields["split"])
    return default_run(data, loss=made, **changes)


def _where(path: str, kinds: dict[str, Any]) -> str:
    if path in kinds:
        return f"name one of its fields, as {path}.{'scale' if path == 'loss' else 'FIELD'}=VALUE"
    return f"unknown part {path.rpartition('.')[0]!r}: {nearest(path, kinds)}"
