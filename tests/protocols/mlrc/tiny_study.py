"""A study of seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from proxysynth.protocols.mlrc import Study, make_study
from proxysynth.training import Split

SPLIT = Split(train_classes=6, test_classes=5, faces_per_class=6)


def tiny_study(loss: str = "norm_softmax", regularizer: str = "none", **changes: Any) -> Study:
    settings = {"split": SPLIT, "epochs": 1, "evaluate_every": 1, "dim": 8, **changes}
    study = make_study("glyphs", loss, regularizer, "smoke", **settings)
    # No pruning: which trials are whole would depend on who was faster.
    return replace(study, scale=replace(study.scale, prune=False))
