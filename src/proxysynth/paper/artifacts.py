"""ARTIFACTS: every table and figure of the paper by its name."""

from __future__ import annotations

from proxysynth.paper.artifact import Artifact
from proxysynth.paper.figures import FIGURES
from proxysynth.paper.tables import (
    ablations,
    classification,
    conventional,
    cost,
    mlrc,
    regularizers,
    robustness,
)

_TABLES = {
    artifact.name: artifact
    for module in (
        ablations, classification, conventional, cost, mlrc, regularizers, robustness,
    )
    for artifact in module.TABLES
}  # fmt: skip
_NAMES = (
    *(f"table{number}" for number in "123456"),
    *(f"table{letter}" for letter in "ABCDEFGHIJKL"),
    *(f"figure{number}" for number in "12345"),
    *(f"figure{letter}" for letter in "ABCD"),
)

ARTIFACTS: dict[str, Artifact] = {name: (_TABLES | FIGURES)[name] for name in _NAMES}
"""The 27 of them in the paper's order."""
